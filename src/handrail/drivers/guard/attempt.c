/* The guard run as a command for self-tests: makes attempts that a sandbox should refuse, and prints the results. */
#define _GNU_SOURCE
#include "attempt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int attempt_errno(long result)
{
	return result < 0 ? errno : 0;
}

static int show_environment(const char *argument)
{
	(void)argument;
	for (char **at = environ; *at; at++)
		dprintf(1, "variable\tshown\t%.*s\n", (int)strcspn(*at, "=\n"), *at);
	return 0;
}

/* Does the content of an open file change when the file is written anew? */
static int hold(const char *path)
{
	char before[TEXT_MAX] = "", after[TEXT_MAX] = "", go;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || pread(fd, before, sizeof before - 1, 0) < 0)
		return 0;
	dprintf(1, "held\tshown\t%s\n", before);
	if (read(0, &go, 1) != 1 || pread(fd, after, sizeof after - 1, 0) < 0)
		return 0;
	return strcmp(before, after) == 0 ? EPERM : 0;
}

/* A tree that is hard to end: in its own session, ignoring signals, with a lock that shows others that it lives. */
static int linger(const char *path)
{
	int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno;
	if (fork() == 0) {
		setsid();
		for (int i = 1; i < NSIG; i++)
			signal(i, SIG_IGN);
		dprintf(1, "lingers\tshown\t\n");
		for (;;)
			pause();
	}
	close(fd);
	for (;;)
		pause();
}

static int lock(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	return attempt_errno(fd < 0 ? -1 : flock(fd, LOCK_EX | LOCK_NB));
}

/* A bystander: it runs, with its argument visible to others, until its input ends. */
static int stay(const char *argument)
{
	char byte;

	(void)argument;
	dprintf(1, "stays\tshown\t\n");
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}

static const struct attempt simple[] = {
	{"environment", show_environment}, {"hold", hold}, {"linger", linger}, {"lock", lock}, {"stay", stay}, {NULL, NULL},
};
static const struct attempt *const all[] = {simple, reaching, gaining, exceeding};

static const struct attempt *find(const char *name)
{
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		for (const struct attempt *at = all[i]; at->name; at++)
			if (strcmp(at->name, name) == 0)
				return at;
	return NULL;
}

/* Make an attempt in a process of its own, because an attempt may change or end its process. */
static void report(const struct attempt *attempt, const char *argument)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(attempt->try(argument) & 0xff);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		dprintf(1, "%s\tunknown\t%s\n", attempt->name, strerror(errno));
	else if (WIFSIGNALED(status))
		dprintf(1, "%s\trefused\tsignal %d\n", attempt->name, WTERMSIG(status));
	else if (WEXITSTATUS(status) == 0)
		dprintf(1, "%s\treached\t\n", attempt->name);
	else
		dprintf(1, "%s\trefused\t%s\n", attempt->name, strerror(WEXITSTATUS(status)));
}

int attempt_main(int count, char **arguments)
{
	dprintf(1, "STARTED\n");
	for (int i = 0; i + 1 < count; i += 2) {
		const struct attempt *attempt = find(arguments[i]);

		if (!attempt)
			return 2;
		report(attempt, arguments[i + 1]);
	}
	dprintf(1, "ENDED\n");
	return 7;
}
