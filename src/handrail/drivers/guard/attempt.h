/* The attempts of a self-test. Each attempt returns 0 when it succeeded, else the errno with which it was refused. */
#ifndef ATTEMPT_H
#define ATTEMPT_H

#include <sys/types.h>

enum { TEXT_MAX = 256 };

struct attempt {
	const char *name;
	int (*try)(const char *argument);
};
extern const struct attempt reaching[], gaining[], exceeding[];      /* each ends with a name of NULL */

int attempt_main(int count, char **arguments);
int attempt_errno(long result);                                     /* 0, or errno when the result is negative */

#endif
