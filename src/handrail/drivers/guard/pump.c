/* Passes the output of each request, and the reports of its supervisor, on to the client. */
#define _GNU_SOURCE
#include "guard.h"
#include "work.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIPE = 64 << 10, WIDE_PIPE = 512 << 10, PIECE = 128 << 10 };

/* The bytes of this stream that may be passed on now. Both streams use the same credit, so each piece changes it. */
static size_t allowed(const struct work *work, int which)
{
	int64_t most = work->credit + (work->ended ? OVERDRAFT : 0);

	if (work->ended && (int64_t)work->left[which] < most)
		most = (int64_t)work->left[which];
	if (channel_waiting() >= OUTBOX_HIGH || most <= 0 || !(work->ended || work->started || !work->command))
		return 0;
	return most < PIECE ? (size_t)most : PIECE;
}

/* Pass on one piece of output, straight from the pipe into the channel's buffer. */
static void pump(struct work *work, int which)
{
	size_t size = allowed(work, which);
	uint8_t *at;
	ssize_t done;

	if (size == 0)                  /* a read of no bytes looks like the end of the stream */
		return;
	at = channel_room(FRAME_HEAD + 1 + size);
	done = read(work->output[which], at + FRAME_HEAD + 1, size);
	if (done == PIPE)               /* it was full: fast output gets a larger pipe */
		fcntl(work->output[which], F_SETPIPE_SZ, WIDE_PIPE);
	if (done < 0 && errno == EAGAIN)
		work->left[which] = 0;
	if (done <= 0) {
		if (done == 0 || errno != EAGAIN)
			shut(&work->output[which]);
		return;
	}
	put_number(at, (uint64_t)done + 1 + FRAME_HEAD - FRAME_PREFIX, 4);
	at[4] = OUT_OUTPUT;
	put_number(at + 5, work->id, 4);
	at[FRAME_HEAD] = (uint8_t)(which + 1);
	channel_put(FRAME_HEAD + 1 + (size_t)done);
	work->credit -= done;
	if (work->ended)
		work->left[which] -= (size_t)done;
}

void hear(struct work *work)
{
	struct report report;
	uint8_t body[4];
	ssize_t done;

	while (work->link >= 0) {
		done = recv(work->link, &report, sizeof report, 0);
		if (done < 0 && errno == EAGAIN)
			return;
		if (done != sizeof report) {
			shut(&work->link);
		} else if (report.kind == OUT_STARTED) {
			work->started = true;
			put_number(body, report.a, 4);
			channel_send(OUT_STARTED, work->id, body, sizeof body);
		} else if (report.kind == OUT_FAILED) {
			send_failed(work, report.a, report.flags);
		} else {
			work->code = report.a;
			work->flags = report.flags;
			work_ended(work);
		}
	}
}

size_t work_poll(struct pollfd *fds, struct work **owners, size_t room)
{
	size_t count = 0;

	for (struct work *work = first; work && count + 4 <= room; work = work->next) {
		int wanted[] = {work->link, allowed(work, 0) ? work->output[0] : -1, allowed(work, 1) ? work->output[1] : -1,
				work->input};

		for (int i = 0; i < 4; i++) {
			if (wanted[i] < 0)
				continue;
			owners[count] = work;
			fds[count++] = (struct pollfd){wanted[i], i == 3 ? (work->queued ? POLLOUT : 0) : POLLIN, 0};
		}
	}
	return count;
}

void work_ready(struct work *work, const struct pollfd *fd)
{
	if (fd->fd == work->link) {
		hear(work);
	} else if (fd->fd == work->input) {
		if (fd->revents & POLLERR && !work->queued) {
			shut(&work->input);
			channel_send(OUT_DEAF, work->id, NULL, 0);
		}
		feed(work);
	} else {
		pump(work, fd->fd == work->output[0] ? 0 : 1);
	}
}
