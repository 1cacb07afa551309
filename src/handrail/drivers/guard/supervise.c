/* The supervisor of one command: starts it, passes signals to its whole tree, and ends when the tree is dead. */
#define _GNU_SOURCE
#include "guard.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GRACE = 50, KILL_EVERY = 2, KILL_EVERY_MAX = 50, STACK = 64 << 10 };

/* The state of the command. */
struct watch {
	int link;
	pid_t leader;
	bool ended, empty, killing, left_running;
	int status;
	int64_t patience;       /* until when the rest of the tree may end by itself */
	int pause;              /* between two rounds of killing */
};

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Close descriptors one by one, for a kernel without close_range, or a filter that forbids it. */
static void close_each(unsigned first, unsigned last)
{
	struct dirent *entry;
	struct rlimit files;
	DIR *dir = opendir("/proc/self/fd");

	while (dir && (entry = readdir(dir))) {
		unsigned fd = (unsigned)atoi(entry->d_name);

		if (isdigit((unsigned char)entry->d_name[0]) && fd >= first && fd <= last && (int)fd != dirfd(dir))
			close((int)fd);
	}
	if (dir)
		closedir(dir);
	else if (getrlimit(RLIMIT_NOFILE, &files) == 0)
		for (unsigned fd = first; fd <= last && fd < files.rlim_cur; fd++)
			close((int)fd);
}

static void close_range_of(unsigned first, unsigned last)
{
	if (syscall(SYS_close_range, first, last, 0) < 0)
		close_each(first, last);
}

void keep_only(int *fds, size_t count)
{
	unsigned next = 0;

	qsort(fds, count, sizeof *fds, compare);
	for (size_t i = 0; i < count; i++) {
		if (fds[i] < 0 || (unsigned)fds[i] < next)
			continue;
		if ((unsigned)fds[i] > next)
			close_range_of(next, (unsigned)fds[i] - 1);
		next = (unsigned)fds[i] + 1;
	}
	close_range_of(next, ~0u);
}

static void say(int link, uint8_t kind, uint32_t a, uint8_t flags)
{
	struct report report = {.kind = kind, .flags = flags, .a = a};

	send(link, &report, sizeof report, MSG_NOSIGNAL);
}

/* Open the own score for the out-of-memory killer. A process must be dumpable to open it. */
static int open_score(void)
{
	int fd;

	prctl(PR_SET_DUMPABLE, 1);
	fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
	prctl(PR_SET_DUMPABLE, 0);
	return fd;
}

/* Start the command with the highest score for the out-of-memory killer, which it inherits: the kernel then kills
 * commands first, not supervisors. CLONE_VM with CLONE_VFORK: no page tables are copied, and the payload can write the
 * reason of a failure into the plan. */
static pid_t start_payload(struct plan *plan, int score)
{
	static char stack[STACK] __attribute__((aligned(16)));
	char own[16];
	ssize_t width = pread(score, own, sizeof own, 0);
	pid_t pid;

	if (width > 0 && pwrite(score, "1000", 4, 0) < 0)
		width = 0;
	pid = clone(payload, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, plan);
	if (pid < 0) {
		plan->where = FAILED_START;
		plan->error = errno;
	}
	if (width > 0)
		width = pwrite(score, own, (size_t)width, 0);
	return pid;
}

static void signal_all(int number)
{
	if (settings.jail)
		kill(-1, number);
	else
		tree_signal(number, NULL);
}

static void listen_to_guard(struct watch *watch)
{
	char letter;
	ssize_t done = recv(watch->link, &letter, 1, MSG_DONTWAIT);

	if (done < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (done == 1 && letter == 'T') {
		signal_all(SIGTERM);
		signal_all(SIGCONT);
		return;
	}
	watch->killing = true;
	if (done <= 0)
		watch->link = -1;
}

static void reap_some(struct watch *watch)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == watch->leader) {
			watch->ended = true;
			watch->status = status;
		}
	watch->empty = pid < 0;
	if (watch->ended && !watch->empty && !watch->patience)
		watch->patience = now_ms() + GRACE;
}

/* Returns in how many ms it must be called again; -1 when only an event can change anything. */
static int act(struct watch *watch)
{
	int64_t left;

	if (watch->ended && !watch->killing) {
		left = watch->patience - now_ms();
		if (left > 0)
			return (int)left;
		watch->left_running = true;
		watch->killing = true;
	}
	if (!watch->killing)
		return -1;
	signal_all(SIGKILL);
	watch->pause = watch->pause * 2 < KILL_EVERY_MAX ? watch->pause * 2 : KILL_EVERY_MAX;
	return watch->pause;
}

/* Kill the command if the supervisor can no longer poll: a command may lower its supervisor's limit on open files. */
static void end_unheard(struct watch *watch)
{
	struct timespec moment = {0, watch->pause * 1000000l};

	watch->killing = true;
	nanosleep(&moment, NULL);
}

static void watch_over(struct watch *watch)
{
	for (;;) {
		reap_some(watch);
		if (watch->empty)
			return;
		int timeout = act(watch);
		struct timespec wait = {timeout / 1000, (long)(timeout % 1000) * 1000000};
		struct pollfd fd = {watch->link, POLLIN, 0};

		int heard = ppoll(&fd, 1, timeout < 0 ? NULL : &wait, &while_waiting);

		if (heard > 0)
			listen_to_guard(watch);
		else if (heard < 0 && errno != EINTR)
			end_unheard(watch);
	}
}

_Noreturn void supervise(struct plan *plan)
{
	struct watch watch = {.link = plan->link, .pause = KILL_EVERY};
	int kept[] = {plan->input, plan->output[0], plan->output[1], plan->script, plan->link};
	uint32_t code;
	bool by_signal;
	int score;

	keep_only(kept, sizeof kept / sizeof *kept);
	score = open_score();
	if (!settings.jail && prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		plan->error = errno, plan->where = FAILED_START;
	else if (settings.jail && mount("proc", "/proc", "proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		plan->error = errno, plan->where = FAILED_START;
	if (!plan->error)
		watch.leader = start_payload(plan, score);
	if (plan->error) {
		say(plan->link, OUT_FAILED, (uint32_t)plan->error, (uint8_t)plan->where);
		_exit(0);
	}
	say(plan->link, OUT_STARTED, (uint32_t)watch.leader, 0);
	keep_only(&watch.link, 1);
	watch_over(&watch);
	by_signal = WIFSIGNALED(watch.status);
	code = (uint32_t)(by_signal ? 128 + WTERMSIG(watch.status) : WEXITSTATUS(watch.status));
	if (watch.link >= 0)
		say(watch.link, OUT_EXITED, code, (uint8_t)((by_signal ? BY_SIGNAL : 0) | (watch.left_running ? LEFT_RUNNING : 0)));
	_exit(0);
}
