/* The table of requests in progress: commands and file operations. */
#define _GNU_SOURCE
#include "guard.h"
#include "work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WORK_MAX = 1024, PATIENCE = 2000 };

size_t work_count;
struct work *first;
static uint32_t last_id;

static struct work *find(uint32_t id)
{
	struct work *work = first;

	while (work && work->id != id)
		work = work->next;
	return work;
}

void shut(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void release(struct work *work)
{
	struct work **at = &first;

	while (*at != work)
		at = &(*at)->next;
	*at = work->next;
	shut(&work->link);
	shut(&work->input);
	shut(&work->output[0]);
	shut(&work->output[1]);
	if (work->answer)
		munmap(work->answer, sizeof *work->answer);
	free(work->queue);
	free(work);
	work_count--;
}

void send_failed(struct work *work, uint32_t error, uint8_t where)
{
	uint8_t body[5];

	put_number(body, error, 4);
	body[4] = where;
	channel_send(OUT_FAILED, work->id, body, sizeof body);
	work->failed = true;
}

static struct work *begin(uint32_t id, bool command)
{
	struct work *work = calloc(1, sizeof *work);

	if (!work)
		_exit(71);
	if (id <= last_id)
		channel_broken("an id that is not new");
	last_id = id;
	*work = (struct work){.id = id, .command = command, .link = -1, .output = {-1, -1}, .input = -1};
	work->credit = FIRST_CREDIT;
	work->memory_kills = command ? memory_kills() : 0;
	work->next = first;
	first = work;
	work_count++;
	return work;
}

static void begun(struct work *work, int error)
{
	if (!error)
		return;
	send_failed(work, (uint32_t)error, FAILED_START);
	release(work);
}

void work_start(const struct message *message)
{
	struct work *work = begin(message->id, true);
	bool passed = message->start.flags & WITH_PIPES;
	int input = passed ? channel_passed() : -1, output = passed ? channel_passed() : -1;

	begun(work, work_count > WORK_MAX ? EAGAIN : launch_command(work, message, (int[]){input, output}));
	shut(&input);
	shut(&output);
}

void work_file(const struct message *message)
{
	struct work *work = begin(message->id, false);

	begun(work, work_count > WORK_MAX ? EAGAIN : launch_file(work, message));
}

/* Write as much input as the pipe takes, and tell the client how much it took. */
void feed(struct work *work)
{
	uint8_t body[4];
	ssize_t done;

	while (work->queued > 0 && work->input >= 0) {
		done = write(work->input, work->queue, work->queued);
		if (done < 0 && errno == EAGAIN)
			return;
		if (done < 0) {
			shut(&work->input);
			channel_send(OUT_DEAF, work->id, NULL, 0);
			break;
		}
		work->queued -= (size_t)done;
		memmove(work->queue, work->queue + done, work->queued);
		put_number(body, (uint64_t)done, 4);
		channel_send(OUT_TAKEN, work->id, body, sizeof body);
	}
	free(work->queue);
	work->queue = NULL;
	work->queued = 0;
	if (work->closing)
		shut(&work->input);
}

static void take_input(struct work *work, const uint8_t *bytes, size_t size)
{
	if (work->input < 0) {
		channel_send(OUT_DEAF, work->id, NULL, 0);
		return;
	}
	if (work->closing || work->queued + size > INPUT_WINDOW)
		channel_broken("more input than was agreed");
	work->queue = realloc(work->queue, work->queued + size);
	if (!work->queue)
		_exit(71);
	memcpy(work->queue + work->queued, bytes, size);
	work->queued += size;
	feed(work);
}

static void send_signal(struct work *work, uint8_t number)
{
	uint8_t letter = number == SIGKILL ? 'K' : 'T';

	if (work->ended)
		return;
	if (!work->command) {
		kill(work->pid, number);
		return;
	}
	if (number == SIGKILL && !work->kill_at)
		work->kill_at = now_ms() + PATIENCE;
	send(work->link, &letter, 1, MSG_NOSIGNAL);
}

void work_kill(struct work *work)
{
	send_signal(work, SIGKILL);
}

void work_message(const struct message *message)
{
	struct work *work = find(message->id);

	if (!work && (message->id == 0 || message->id > last_id))
		channel_broken("an id that never was");
	if (!work)
		return;
	if (message->type == IN_INPUT)
		take_input(work, message->input.bytes, message->input.size);
	else if (message->type == IN_CREDIT)
		work->credit += message->credit;
	else if (message->type == IN_SIGNAL)
		send_signal(work, message->signal);
	else if (message->type == IN_CLOSE) {
		work->closing = true;
		feed(work);
	}
}
