/* Starts a command or a file operation: its pipes, its process, and the descriptors that process keeps. */
#define _GNU_SOURCE
#include "guard.h"
#include "work.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

static int pipe_for(int *ours, int *theirs, bool we_read)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	*ours = ends[we_read ? 0 : 1];
	*theirs = ends[we_read ? 1 : 0];
	return fcntl(*ours, F_SETFL, O_NONBLOCK);
}

static void close_plan(struct plan *plan)
{
	if (plan->input != settings.null_fd)
		shut(&plan->input);
	shut(&plan->output[0]);
	shut(&plan->output[1]);
	shut(&plan->script);
	shut(&plan->link);
}

static int open_pipes(struct work *work, struct plan *plan, bool input, bool command)
{
	int links[2];

	if (input && pipe_for(&work->input, &plan->input, false) < 0)
		return -1;
	for (int i = 0; i < (command ? 2 : 1); i++)
		if (plan->output[i] < 0 && pipe_for(&work->output[i], &plan->output[i], true) < 0)
			return -1;
	if (!command)
		return 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, links) < 0)
		return -1;
	work->link = links[0];
	plan->link = links[1];
	return fcntl(work->link, F_SETFL, O_NONBLOCK);
}

static int write_script(const char *line)
{
	static const char opening[] = "exec 9<&-; ";
	const char *parts[] = {opening, line};
	int fd = memfd_create("line", MFD_CLOEXEC);

	if (fd < 0)
		return -1;
	for (size_t i = 0; i < 2; i++)
		for (size_t size = strlen(parts[i]), at = 0; at < size;) {
			ssize_t done = write(fd, parts[i] + at, size - at);

			if (done <= 0) {
				close(fd);
				return -1;
			}
			at += (size_t)done;
		}
	return fd;
}

/* The argv of a shell that runs `line`; a line too long for one argument is passed by a descriptor. */
static int shell_words(struct plan *plan, const char *line, char **words)
{
	size_t count = 0;

	if (settings.shell == SHELL_NONE) {
		errno = ENOENT;
		return -1;
	}
	if (strlen(line) > LONG_LINE) {
		plan->script = write_script(line);
		if (plan->script < 0)
			return -1;
		line = ". /dev/fd/9";
	}
	words[count++] = (char *)(uintptr_t)settings.shell_path;
	if (settings.shell == SHELL_BASH) {
		words[count++] = "-o";
		words[count++] = "pipefail";
	}
	words[count++] = "-c";
	words[count++] = (char *)(uintptr_t)line;
	words[count] = NULL;
	plan->argv = words;
	return 0;
}

static pid_t split(unsigned long flags)
{
	return (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
}

/* Handle a START: 0, or an errno. `pipes` are the client's own, or -1. */
int launch_command(struct work *work, const struct message *message, const int *pipes)
{
	static char *shell[8];
	struct plan plan = {.input = settings.null_fd, .output = {-1, -1}, .script = -1, .link = -1};
	char **lists = calloc(message->start.argv.count + message->start.env.count + 2, sizeof *lists);
	int error = 0;

	if (!lists)
		return ENOMEM;
	plan.cwd = message->start.cwd.bytes;
	plan.argv = lists;
	plan.env = lists + message->start.argv.count + 1;
	strings_list(&message->start.argv, plan.argv);
	strings_list(&message->start.env, plan.env);
	if (message->start.flags & OWN_ENVIRONMENT)
		plan.env = environ;
	if (pipes[0] >= 0)
		plan.input = pipes[0], plan.output[0] = pipes[1];
	if (message->start.kind == KIND_LINE && shell_words(&plan, message->start.argv.bytes, shell) < 0)
		error = errno;
	if (!error && open_pipes(work, &plan, message->start.flags & WITH_INPUT, true) < 0)
		error = errno;
	if (!error) {
		work->pid = split(settings.jail ? CLONE_NEWPID | CLONE_NEWNS : 0);
		if (work->pid == 0)
			supervise(&plan);
		error = work->pid < 0 ? errno : 0;
	}
	if (pipes[0] >= 0)              /* the caller closes them */
		plan.input = settings.null_fd, plan.output[0] = -1;
	close_plan(&plan);
	free(lists);
	return error;
}

/* Handle a FILE: 0, or an errno. */
int launch_file(struct work *work, const struct message *message)
{
	struct plan plan = {.input = settings.null_fd, .output = {-1, -1}, .script = -1, .link = -1};
	int error = open_pipes(work, &plan, message->file.op == OP_WRITE, false) < 0 ? errno : 0;
	void *answer = mmap(NULL, sizeof *work->answer, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (answer != MAP_FAILED)
		work->answer = answer;
	else if (!error)
		error = errno;
	if (!error) {
		work->pid = split(0);
		if (work->pid == 0) {
			if (dup2(plan.input, 0) < 0 || dup2(plan.output[0], 1) < 0)
				_exit(1);
			file_operation(message, work->answer);
		}
		error = work->pid < 0 ? errno : 0;
	}
	close_plan(&plan);
	return error;
}
