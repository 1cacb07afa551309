/* What a self-test tries. Each attempt gives 0 when it got through, else the errno of what refused it. */
#ifndef ATTEMPT_H
#define ATTEMPT_H

#include <sys/types.h>

enum { TEXT_MAX = 256 };

struct attempt {
	const char *name;
	int (*try)(const char *argument);
};
extern const struct attempt reaching[], gaining[], exceeding[];      /* each ends with a name of NULL */

int attempt_main(int count, char **words);
int attempt_errno(long result);                                     /* 0, or errno when the result is negative */

#endif
