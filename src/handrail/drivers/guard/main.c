/* The guard: runs commands and file operations for one client, and ends with the client, as do all its commands. */
#define _GNU_SOURCE
#include "attempt.h"
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FIXED_FDS = 3, FDS_EACH = 4 };

struct settings settings;
sigset_t while_waiting;
/* A pidfd of the client. Not PR_SET_PDEATHSIG, which fires when the thread that started the guard ends; and the stream
 * alone does not tell: a child that the client forked may keep it open. */
static int client_fd = -1;

int64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void nothing(int number)
{
	(void)number;
}

static void prepare_signals(void)
{
	struct sigaction plain = {.sa_handler = SIG_DFL}, ignore = {.sa_handler = SIG_IGN}, note = {.sa_handler = nothing};
	sigset_t children;

	for (int i = 1; i < NSIG; i++)
		sigaction(i, &plain, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	sigaction(SIGXFSZ, &ignore, NULL);
	sigaction(SIGCHLD, &note, NULL);
	sigemptyset(&while_waiting);
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	sigprocmask(SIG_SETMASK, &children, NULL);
}

static void prepare_process(void)
{
	struct rlimit files;
	int fd;

	/* Fill 0, 1 and 2 if they are closed: a pipe that got such a number would become a command's stream. */
	while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd < 3)
		continue;
	if (fd >= 0)
		close(fd);
	prctl(PR_SET_DUMPABLE, 0);      /* commands run as the same user, and may not trace the guard or read its memory */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	umask(022);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (!settings.keeps_privileges)
		settings.not_forgotten = forget_privileges();
}

static void choose_shell(void)
{
	static const char *const bash[] = {"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"};

	for (size_t i = 0; i < 3 && settings.shell == SHELL_NONE; i++)
		if (access(bash[i], X_OK) == 0) {
			settings.shell = SHELL_BASH;
			settings.shell_path = bash[i];
		}
	if (settings.shell == SHELL_NONE && access("/bin/sh", X_OK) == 0) {
		settings.shell = SHELL_SH;
		settings.shell_path = "/bin/sh";
	}
}

static void keep_roots(const struct strings *roots)
{
	char *copy = malloc(roots->size + 1);

	settings.roots = calloc(roots->count + 1, sizeof *settings.roots);
	settings.root_fds = calloc(roots->count + 1, sizeof *settings.root_fds);
	if (!copy || !settings.roots || !settings.root_fds)
		_exit(71);
	memcpy(copy, roots->bytes, roots->size);
	strings_list(&(struct strings){roots->count, copy, roots->size}, settings.roots);
	settings.root_count = roots->count;
	for (size_t i = 0; i < roots->count; i++) {
		settings.root_fds[i] = open(settings.roots[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (settings.root_fds[i] < 0)
			channel_broken("a root that cannot be opened");
	}
}

static void greet(const struct message *message)
{
	uint8_t body[8];
	const char *wrong;

	memcpy(settings.limits, message->hello.limits, sizeof settings.limits);
	settings.jail = message->hello.jail;
	if (!settings.jail && settings.not_forgotten && settings.not_forgotten != EPERM)
		channel_broken("no sandbox: privileges cannot be given up");
	if (settings.jail && settings.keeps_privileges)
		channel_broken("no sandbox: a jail keeps no privileges");
	if (settings.jail && (wrong = prepare_jail()))
		channel_broken(wrong);
	settings.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	keep_roots(&message->hello.roots);
	choose_shell();
	settings.greeted = true;
	put_number(body, PROTOCOL_VERSION, 2);
	body[2] = settings.shell;
	body[3] = 0;
	put_number(body + 4, (uint64_t)getpid(), 4);
	channel_send(OUT_HELLO, 0, body, sizeof body);
}

static void handle(const struct message *message)
{
	if ((message->type == IN_HELLO) == settings.greeted)
		channel_broken("a hello that is missing, or comes twice");
	if (message->type == IN_HELLO)
		greet(message);
	else if (message->type == IN_START)
		work_start(message);
	else if (message->type == IN_FILE)
		work_file(message);
	else
		work_message(message);
}

static void handle_frames(void)
{
	struct message message;
	const uint8_t *frame;
	const char *wrong;
	size_t size;

	while ((frame = channel_frame(&size))) {
		wrong = frame_read(frame, size, &message);
		if (wrong)
			channel_broken(wrong);
		handle(&message);
		channel_drop(size);
	}
}

static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		work_child_ended(pid, status);
	if (pid < 0)
		orphans_possible = false;
	if (orphans_possible)
		orphans_possible = tree_signal(SIGKILL, work_is_ours) > 0;
}

_Noreturn static void leave(void)
{
	work_end_all();
	_exit(0);
}

static void turn(void)
{
	static struct pollfd *fds;
	static struct work **owners;
	static size_t room;
	size_t needed = FIXED_FDS + FDS_EACH * work_count, count;
	struct timespec wait;
	int timeout = watch_timeout(work_timeout());

	if (room < needed) {
		room = needed * 2;
		fds = realloc(fds, room * sizeof *fds);
		owners = realloc(owners, room * sizeof(struct work *));
		if (!fds || !owners)
			_exit(71);
	}
	fds[0] = (struct pollfd){channel.in, channel_waiting() < OUTBOX_FULL ? POLLIN : 0, 0};
	fds[1] = (struct pollfd){channel.out, channel_waiting() ? POLLOUT : 0, 0};
	fds[2] = (struct pollfd){client_fd, POLLIN, 0};
	count = FIXED_FDS + work_poll(fds + FIXED_FDS, owners + FIXED_FDS, room - FIXED_FDS);
	wait = (struct timespec){timeout / 1000, (long)(timeout % 1000) * 1000000};
	if (ppoll(fds, count, timeout < 0 ? NULL : &wait, &while_waiting) < 0 && errno != EINTR)
		_exit(71);
	if (fds[2].revents && client_fd >= 0)
		leave();
	for (size_t i = FIXED_FDS; i < count; i++)
		if (fds[i].revents)
			work_ready(owners[i], &fds[i]);
	reap();
	if (fds[0].revents) {
		if (!channel_fill())
			leave();
		handle_frames();
	}
	watch_memory();
	work_finish();
	if (!channel_flush())
		leave();
}

/* Keep a descriptor of the guard from every process that it starts, whatever else goes wrong. */
static void keep_to_itself(int fd, int flags)
{
	if (fd < 0)
		return;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (flags)
		fcntl(fd, F_SETFL, flags);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--attempt") == 0)
		return attempt_main(argc - 2, argv + 2);
	channel.in = 0;
	channel.out = 1;
	settings.memory_events = -1;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--channel") == 0)
			channel.in = channel.out = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--client") == 0)
			client_fd = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--memory-events") == 0)
			settings.memory_events = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--privileges") == 0)
			settings.keeps_privileges = strcmp(argv[i + 1], "kept") == 0;
	}
	prepare_process();
	prepare_signals();
	keep_to_itself(channel.in, O_NONBLOCK);
	keep_to_itself(channel.out, O_NONBLOCK);
	keep_to_itself(client_fd, 0);
	keep_to_itself(settings.memory_events, 0);
	for (;;)
		turn();
}
