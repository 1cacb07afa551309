/* How a request ends: its process is reaped, its pipes are drained, the client is told; and how all end at once. */
#define _GNU_SOURCE
#include "guard.h"
#include "work.h"

#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SWEEP_EVERY = 5, FAREWELL = 10000 };

bool orphans_possible;

/* Note the bytes left in the pipes: the tree is dead, so no more will come. */
void work_ended(struct work *work)
{
	int size;

	work->ended = true;
	shut(&work->link);
	for (int i = 0; i < 2; i++)
		if (work->output[i] >= 0 && ioctl(work->output[i], FIONREAD, &size) == 0)
			work->left[i] = (size_t)size;
}

/* A worker's answer is in shared memory. Without an answer or a report, the exit status is passed on as NO_ANSWER. */
static void end_without_report(struct work *work, int status)
{
	if (!work->command && *work->answer > 0) {
		work->code = (uint32_t)*work->answer - 1;
		return;
	}
	work->code = (uint32_t)(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
	work->flags = (uint8_t)(NO_ANSWER | (WIFSIGNALED(status) ? BY_SIGNAL : 0));
	if (work->command)
		orphans_possible = !settings.jail;
}

void work_child_ended(pid_t pid, int status)
{
	struct work *work = first;

	while (work && (work->pid != pid || work->ended))
		work = work->next;
	if (!work)
		return;
	hear(work);
	if (work->ended)
		return;
	if (!work->failed)
		end_without_report(work, status);
	work_ended(work);
}

static bool drained(const struct work *work)
{
	for (int i = 0; i < 2; i++)
		if (work->output[i] >= 0 && work->left[i] > 0)
			return false;
	return true;
}

static void say_exited(const struct work *work)
{
	uint8_t body[5];

	put_number(body, work->code, 4);
	body[4] = (uint8_t)(work->flags | (ran_out_of_memory(work) ? OUT_OF_MEMORY : 0));
	channel_send(OUT_EXITED, work->id, body, sizeof body);
}

void work_finish(void)
{
	int64_t now = 0;

	for (struct work *work = first, *next; work; work = next) {
		next = work->next;
		if (work->ended && (work->failed || drained(work))) {
			if (!work->failed)
				say_exited(work);
			release(work);
			continue;
		}
		if (work->ended || !work->kill_at)
			continue;
		now = now ? now : now_ms();
		if (now >= work->kill_at) {
			kill(work->pid, SIGKILL);
			work->kill_at = now + FAREWELL;
		}
	}
}

int work_timeout(void)
{
	int64_t soonest = orphans_possible ? SWEEP_EVERY : -1, now = 0, left;

	for (struct work *work = first; work; work = work->next) {
		if (!work->kill_at || work->ended)
			continue;
		now = now ? now : now_ms();
		left = work->kill_at > now ? work->kill_at - now : 0;
		if (soonest < 0 || left < soonest)
			soonest = left;
	}
	return (int)soonest;
}

bool work_is_ours(pid_t pid)
{
	for (struct work *work = first; work; work = work->next)
		if (work->pid == pid && !work->ended)
			return true;
	return false;
}

static bool nobody(pid_t pid)
{
	(void)pid;
	return false;
}

/* End everything: in a jail the kernel kills all with the first process; elsewhere supervisors do, when links close. */
void work_end_all(void)
{
	int64_t until = now_ms() + FAREWELL;
	struct timespec moment = {0, 1000000};
	pid_t pid;

	if (getpid() == 1)
		return;
	for (struct work *work = first; work; work = work->next) {
		if (!work->command)
			kill(work->pid, SIGKILL);
		shut(&work->link);
		shut(&work->input);
		shut(&work->output[0]);
		shut(&work->output[1]);
	}
	while (now_ms() < until) {
		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			work_child_ended(pid, 0);
		if (pid < 0)
			return;
		tree_signal(SIGKILL, now_ms() < until - FAREWELL / 2 ? work_is_ours : nobody);
		nanosleep(&moment, NULL);
	}
}
