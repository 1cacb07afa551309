/* Keeps commands to the limit on memory, where no cgroup does, and tells which of them ran while memory ran out.

   Resident memory is cheap to read, but counts what processes share once for each of them: it only says when to look
   closer. Proportional memory, without the pages of files on disk, decides. Then the command that uses most is killed
   with its whole tree: killing one process at a time would lose against a command that goes on forking. */
#define _GNU_SOURCE
#include "guard.h"
#include "work.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In ms. Memory cannot grow faster than pages are cleared: about 4 MiB in a ms for the two processors measured. So the
   nearer the limit, the sooner the next look. A look that takes long is repeated later: at most a fifth of the time. */
enum { SOONEST = 10, LATEST = 100, FASTEST_GROWTH = 4 << 20, REST = 4, KILL_WAIT = 200 };
enum { TEXT = 4096 };

struct sum {
	uint64_t resident, proportional;
	bool closely;
};

static int64_t next_look;       /* 0 while nothing is watched */
static int64_t patience;        /* until when a killed command may take to release its memory */

static size_t read_text(const char *path, char *text)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size = fd < 0 ? -1 : read(fd, text, TEXT - 1);

	if (fd >= 0)
		close(fd);
	text[size > 0 ? size : 0] = 0;
	return size > 0 ? (size_t)size : 0;
}

static uint64_t resident(pid_t pid)
{
	char path[64], text[TEXT];
	unsigned long long pages = 0;

	snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
	if (read_text(path, text))
		sscanf(text, "%*s %llu", &pages);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t field(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? strtoull(at + strlen(name), NULL, 10) << 10 : 0;
}

/* A process may hide this by not being dumpable: then all that is resident counts. Pages of files on disk do not count,
   because the kernel can drop them. An old kernel does not tell them apart. */
static uint64_t proportional(pid_t pid)
{
	char path[64], text[TEXT];

	snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
	if (!read_text(path, text))
		return resident(pid);
	if (!strstr(text, "\nPss_Anon:"))
		return field(text, "\nPss:");
	return field(text, "\nPss_Anon:") + field(text, "\nPss_Shmem:");
}

static void add(pid_t pid, void *context)
{
	struct sum *sum = context;

	if (sum->closely)
		sum->proportional += proportional(pid);
	else
		sum->resident += resident(pid);
}

static bool runs(const struct work *work)
{
	return work->command && work->started && !work->ended;
}

/* Without its supervisor, which is the guard's own program and not the command's. */
static uint64_t used(const struct work *work, bool closely)
{
	struct sum sum = {0, 0, closely};

	tree_each(work->pid, add, &sum);
	return closely ? sum.proportional : sum.resident;
}

static uint64_t used_by_all(bool closely, struct work **largest, bool *dying)
{
	uint64_t all = 0, most = 0;

	*dying = false;
	for (struct work *work = first; work; work = work->next) {
		uint64_t each = runs(work) ? used(work, closely) : 0;

		all += each;
		*dying = *dying || (runs(work) && work->out_of_memory);
		if (each > most && !work->out_of_memory)
			most = each, *largest = work;
	}
	return all;
}

/* In how many ms to look again. */
static int64_t look(int64_t now)
{
	uint64_t limit = settings.limits[LIMIT_MEMORY], all;
	struct work *largest = NULL;
	bool dying;
	int64_t wait;

	all = used_by_all(false, &largest, &dying);
	if (all > limit)
		all = used_by_all(true, &largest, &dying);
	if (all > limit && largest && (!dying || now >= patience)) {
		largest->out_of_memory = true;
		work_kill(largest);
		patience = now + KILL_WAIT;
	}
	if (all >= limit)
		return SOONEST;
	wait = (int64_t)((limit - all) / FASTEST_GROWTH);
	return wait < SOONEST ? SOONEST : wait > LATEST ? LATEST : wait;
}

void watch_memory(void)
{
	int64_t now, took, wait;
	bool any = false;

	if (settings.limits[LIMIT_MEMORY] == NO_LIMIT)
		return;
	for (struct work *work = first; work && !any; work = work->next)
		any = runs(work);
	now = now_ms();
	if (!any)
		next_look = 0, patience = 0;
	else if (!next_look)
		next_look = now + SOONEST;      /* most commands have ended by then, and cost nothing */
	else if (now >= next_look) {
		wait = look(now);
		took = now_ms() - now;
		next_look = now + took + (wait > took * REST ? wait : took * REST);
	}
}

int watch_timeout(int timeout)
{
	int64_t left;

	if (!next_look)
		return timeout;
	left = next_look - now_ms();
	left = left > 0 ? left : 0;
	return timeout < 0 || left < timeout ? (int)left : timeout;
}

/* How often the kernel killed something in the sandbox's cgroup; 0 without one. */
uint64_t memory_kills(void)
{
	char text[TEXT];
	const char *at;
	ssize_t size;

	if (settings.memory_events < 0)
		return 0;
	size = pread(settings.memory_events, text, sizeof text - 1, 0);
	text[size > 0 ? size : 0] = 0;
	at = strstr(text, "oom_kill ");
	return at ? strtoull(at + strlen("oom_kill "), NULL, 10) : 0;
}

bool ran_out_of_memory(const struct work *work)
{
	return work->command && (work->out_of_memory || memory_kills() > work->memory_kills);
}
