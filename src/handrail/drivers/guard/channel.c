/* The stream to the client: buffers each way, and never a blocking call. */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_SIZE = 256 << 10, IDLE_ROOM = 512 << 10, PASSED_MAX = 64 };

struct channel channel;
static int passed[PASSED_MAX];
static size_t passed_count;

void put_number(uint8_t *at, uint64_t value, size_t width)
{
	for (size_t i = 0; i < width; i++)
		at[i] = (uint8_t)(value >> (8 * i));
}

static void *must(void *memory)
{
	if (!memory)
		_exit(71);
	return memory;
}

size_t channel_waiting(void)
{
	return channel.out_used - channel.out_start;
}

uint8_t *channel_room(size_t size)
{
	if (channel.out_start == channel.out_used)
		channel.out_start = channel.out_used = 0;
	if (channel.out_room - channel.out_used < size && channel.out_start > 0) {
		memmove(channel.outbox, channel.outbox + channel.out_start, channel_waiting());
		channel.out_used -= channel.out_start;
		channel.out_start = 0;
	}
	if (channel.out_room - channel.out_used < size) {
		channel.out_room = channel.out_used + size + (64 << 10);
		channel.outbox = must(realloc(channel.outbox, channel.out_room));
	}
	return channel.outbox + channel.out_used;
}

void channel_put(size_t size)
{
	channel.out_used += size;
}

void channel_send(uint8_t type, uint32_t id, const void *body, size_t size)
{
	uint8_t *at = channel_room(FRAME_HEAD + size);

	put_number(at, size + FRAME_HEAD - FRAME_PREFIX, 4);
	at[4] = type;
	put_number(at + 5, id, 4);
	if (size)
		memcpy(at + FRAME_HEAD, body, size);
	channel_put(FRAME_HEAD + size);
}

bool channel_flush(void)
{
	while (channel_waiting() > 0) {
		ssize_t done = write(channel.out, channel.outbox + channel.out_start, channel_waiting());

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return errno == EAGAIN;
		channel.out_start += (size_t)done;
	}
	if (channel.out_room > IDLE_ROOM) {
		free(channel.outbox);
		channel.outbox = NULL;
		channel.out_start = channel.out_used = channel.out_room = 0;
	}
	return true;
}

int channel_passed(void)
{
	int fd = passed[0];

	if (passed_count == 0)
		channel_broken("a command without its descriptors");
	memmove(passed, passed + 1, --passed_count * sizeof *passed);
	return fd;
}

static void keep_passed(struct msghdr *got)
{
	for (struct cmsghdr *part = CMSG_FIRSTHDR(got); part; part = CMSG_NXTHDR(got, part)) {
		size_t size = part->cmsg_len - CMSG_LEN(0);

		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		if (got->msg_flags & MSG_CTRUNC || passed_count * sizeof *passed + size > sizeof passed)
			channel_broken("more descriptors than commands");
		memcpy(passed + passed_count, CMSG_DATA(part), size);
		passed_count += size / sizeof *passed;
	}
}

/* Like read, but also takes the descriptors that come along. */
static ssize_t receive(uint8_t *at, size_t size)
{
	_Alignas(struct cmsghdr) char along[CMSG_SPACE(sizeof passed)];
	struct iovec piece = {at, size};
	struct msghdr got = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = along, .msg_controllen = sizeof along};
	ssize_t done = recvmsg(channel.in, &got, MSG_CMSG_CLOEXEC);

	if (done < 0 && errno == ENOTSOCK)
		return read(channel.in, at, size);
	if (done > 0)
		keep_passed(&got);
	return done;
}

bool channel_fill(void)
{
	ssize_t done;

	if (channel.in_room - channel.in_used < READ_SIZE) {
		channel.in_room = channel.in_used + READ_SIZE;
		channel.inbox = must(realloc(channel.inbox, channel.in_room));
	}
	done = receive(channel.inbox + channel.in_used, channel.in_room - channel.in_used);
	if (done > 0)
		channel.in_used += (size_t)done;
	return done > 0 || (done < 0 && (errno == EAGAIN || errno == EINTR));
}

const uint8_t *channel_frame(size_t *size)
{
	long whole = frame_size(channel.inbox, channel.in_used);

	if (whole < 0)
		channel_broken("a frame that is too short or too long");
	*size = (size_t)whole;
	return whole > 0 && (size_t)whole <= channel.in_used ? channel.inbox : NULL;
}

void channel_drop(size_t size)
{
	channel.in_used -= size;
	memmove(channel.inbox, channel.inbox + size, channel.in_used);
	if (channel.in_used == 0 && channel.in_room > IDLE_ROOM) {
		free(channel.inbox);
		channel.inbox = NULL;
		channel.in_room = 0;
	}
}

/* Read the rest before closing: unread bytes would reset the stream, and the client would not receive the reason. */
_Noreturn void channel_broken(const char *why)
{
	static char unread[64 << 10];

	channel_send(OUT_BROKEN, 0, why, strlen(why));
	channel_flush();
	while (read(channel.in, unread, sizeof unread) > 0)
		;
	work_end_all();
	_exit(70);
}
