/* Attempts to use more than a limit. The argument is the limit, after a directory and a colon where one is needed; 0
   means none: then the attempt sets a low one itself, to see that limits hold here at all. */
#define _GNU_SOURCE
#include "attempt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOW = 24, FEW = 16, MANY = 128, BEYOND = 8, HELD = 2000000, CPU_SECONDS = 1000, PAGE = 4096, DIRECTORY_MAX = 3072 };

/* Whether the limit in force is the one that was asked for. */
static int in_force(int resource, rlim_t asked)
{
	struct rlimit limit;

	return getrlimit(resource, &limit) == 0 && (asked == 0 || limit.rlim_cur <= asked);
}

static int lower(int resource, rlim_t value)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit) < 0)
		return -1;
	if (limit.rlim_max > value)
		limit.rlim_max = value;
	if (limit.rlim_cur > limit.rlim_max)
		limit.rlim_cur = limit.rlim_max;
	return setrlimit(resource, &limit);
}

static int open_files(const char *text)
{
	rlim_t asked = strtoull(text, NULL, 10);

	if (asked == 0 && lower(RLIMIT_NOFILE, asked = LOW) < 0)
		return 0;
	for (rlim_t i = 0; i <= asked; i++)
		if (dup(0) < 0)
			return errno;
	return 0;
}

static int processes(const char *text)
{
	pid_t children[MANY + BEYOND];
	int count = 0, error = 0, most = LOW + 1;
	rlim_t asked = strtoull(text, NULL, 10);

	if (asked > 0 && asked <= MANY)         /* the kernel does not count root's, but a cgroup does: so use them up */
		most = (int)asked + BEYOND;
	if (!in_force(RLIMIT_NPROC, asked) || (most == LOW + 1 && lower(RLIMIT_NPROC, LOW) < 0))
		return 0;
	while (count < most && !error) {
		children[count] = fork();
		if (children[count] == 0)
			for (;;)
				pause();
		error = attempt_errno(children[count]);
		count += !error;
	}
	for (int i = 0; i < count; i++)
		kill(children[i], SIGKILL);
	while (wait(NULL) > 0)
		;
	return error;
}

/* Shared memory first, which no limit of a single process bounds, then private. It is held for a while, because a watch
   may need one; who keeps the limit kills this whole command meanwhile. */
static int memory(const char *text)
{
	static const int kinds[] = {MAP_SHARED, MAP_PRIVATE};
	size_t size = 2 * (size_t)strtoull(text, NULL, 10);
	int error = 0, reached = 0;

	for (size_t i = 0; i < 2; i++) {
		char *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, kinds[i] | MAP_ANONYMOUS, -1, 0);

		if (bytes == MAP_FAILED) {
			error = errno;
			continue;
		}
		memset(bytes, 1, size);
		usleep(i ? 0 : HELD);
		munmap(bytes, size);
		reached++;
	}
	return reached ? 0 : error;
}

/* Check that the cpu limit is set and cannot be raised; using the time up would take that long. */
static int cpu(const char *text)
{
	struct rlimit limit;

	if (!in_force(RLIMIT_CPU, strtoull(text, NULL, 10)) || lower(RLIMIT_CPU, CPU_SECONDS) < 0)
		return 0;
	getrlimit(RLIMIT_CPU, &limit);
	limit.rlim_max++;
	return attempt_errno(setrlimit(RLIMIT_CPU, &limit));
}

static int open_nameless(const char *directory)
{
	char path[PAGE];
	int fd;

	snprintf(path, sizeof path, "%s/handrail-attempt-%d", directory, (int)getpid());
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		unlink(path);
	return fd;
}

static char *split(char *text, rlim_t *asked)
{
	char *colon = strrchr(text, ':');

	*asked = colon ? strtoull(colon + 1, NULL, 10) : 0;
	if (colon)
		*colon = 0;
	return text;
}

static int file_size(const char *text)
{
	char copy[DIRECTORY_MAX];
	rlim_t asked;
	int fd;

	snprintf(copy, sizeof copy, "%s", text);
	fd = open_nameless(split(copy, &asked));
	if (asked == 0 && lower(RLIMIT_FSIZE, asked = PAGE) < 0)
		return 0;
	return fd < 0 ? 0 : attempt_errno(ftruncate(fd, (off_t)asked + 1));
}

/* Asks for all the space of the directory and one page more; space larger than the limit is not filled to prove it. */
static int private_space(const char *text)
{
	struct statvfs space;
	char copy[DIRECTORY_MAX];
	rlim_t asked;
	uint64_t whole;
	int fd;

	snprintf(copy, sizeof copy, "%s", text);
	if (statvfs(split(copy, &asked), &space) < 0)
		return errno;
	whole = (uint64_t)space.f_blocks * space.f_frsize;
	if (whole == 0 || whole > asked + PAGE)
		return 0;
	if (space.f_files == 0 || space.f_files > asked / PAGE + FEW)
		return 0;               /* empty files take memory too */
	fd = open_nameless(copy);
	return fd < 0 ? 0 : attempt_errno(fallocate(fd, 0, 0, (off_t)whole + PAGE));
}

const struct attempt exceeding[] = {
	{"open-files", open_files}, {"processes", processes}, {"cpu", cpu}, {"file-size", file_size},
	{"space", private_space}, {"memory", memory}, {NULL, NULL},
};
