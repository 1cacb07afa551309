/* Feeds the frame parser with good frames, spoilt frames and noise; a sanitizer says when it reads what it must not.

   frames SECONDS SEED [planted]      "planted" adds one read too far: the sanitizer must report it */
#include "frame.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROOM = 4096, BATCH = 1000 };

static uint64_t state;
static bool planted;
static unsigned long good, bad, incomplete;
static volatile size_t sink;

static uint64_t chance(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return below ? state % below : state;
}

static void put(uint8_t *at, uint64_t value, size_t width)
{
	for (size_t i = 0; i < width; i++)
		at[i] = (uint8_t)(value >> (8 * i));
}

static void use_strings(const struct strings *strings)
{
	char **list = calloc(strings->count + 1, sizeof *list);

	if (!list)
		abort();
	strings_list(strings, list);
	for (uint32_t i = 0; i < strings->count; i++)
		sink += strlen(list[i]);
	if (list[strings->count] != NULL)
		abort();
	free(list);
}

static void use(const struct message *message)
{
	if (message->type == IN_HELLO) {
		use_strings(&message->hello.roots);
	} else if (message->type == IN_START) {
		use_strings(&message->start.cwd);
		use_strings(&message->start.argv);
		use_strings(&message->start.env);
		if (message->start.argv.count == 0 || message->start.cwd.count != 1)
			abort();
	} else if (message->type == IN_FILE) {
		use_strings(&message->file.path);
		if (message->file.path.bytes[0] != '/')
			abort();
	} else if (message->type == IN_INPUT) {
		for (size_t i = 0; i < message->input.size; i++)
			sink += message->input.bytes[i];
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct message message;
	uint8_t *exact;
	long whole = frame_size(data, size);

	if (whole <= 0 || (size_t)whole > size) {
		whole <= 0 ? bad++ : incomplete++;
		return 0;
	}
	exact = malloc((size_t)whole);          /* no byte more than the frame, so that none more can be read */
	if (!exact)
		abort();
	memcpy(exact, data, (size_t)whole);
	if (frame_read(exact, (size_t)whole, &message)) {
		bad++;
	} else {
		good++;
		use(&message);
		if (planted)
			sink += exact[whole];
	}
	free(exact);
	return 0;
}

static size_t some_strings(uint8_t *at, size_t room, uint32_t count)
{
	size_t used = 8;

	for (uint32_t i = 0; i < count && used + 40 < room; i++) {
		size_t size = chance(32);

		for (size_t j = 0; j < size; j++)
			at[used++] = (uint8_t)(1 + chance(255));
		at[used++] = 0;
	}
	put(at, count, 4);
	put(at + 4, used - 8, 4);
	return used;
}

/* A frame that is mostly right. */
static size_t make_frame(uint8_t *frame)
{
	uint8_t *body = frame + FRAME_HEAD;
	uint8_t type = (uint8_t)(1 + chance(8));
	size_t used = 0;

	if (type == IN_HELLO) {
		memset(body, 0, 4);
		put(body, PROTOCOL_VERSION, 2);
		memset(body + 4, 0xff, 32);
		used = 36 + some_strings(body + 36, 500, (uint32_t)chance(4));
	} else if (type == IN_START) {
		body[0] = (uint8_t)chance(2);
		body[1] = (uint8_t)chance(2);
		used = 2 + some_strings(body + 2, 500, 1);
		used += some_strings(body + used, 1000, (uint32_t)(1 + chance(5)));
		used += some_strings(body + used, 1000, (uint32_t)chance(9));
	} else if (type == IN_FILE) {
		memset(body, 0, 21);
		body[0] = (uint8_t)(1 + chance(6));
		used = 21 + some_strings(body + 21, 500, 1);
		body[29] = '/';
	} else {
		used = type == IN_CLOSE ? 0 : type == IN_CREDIT ? 4 : type == IN_SIGNAL ? 1 : chance(300);
		for (size_t i = 0; i < used; i++)
			body[i] = type == IN_SIGNAL ? 9 : (uint8_t)chance(256);
	}
	put(frame, used + FRAME_HEAD - FRAME_PREFIX, 4);
	frame[4] = type;
	put(frame + 5, chance(0), 4);
	return used + FRAME_HEAD;
}

static size_t spoil(uint8_t *frame, size_t size)
{
	static const uint32_t numbers[] = {0, 1, 2, 0x7f, 0xff, 0x100, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff};
	size_t at = chance(size);

	switch (chance(6)) {
	case 0:
		frame[at] ^= (uint8_t)(1u << chance(8));
		return size;
	case 1:
		return at;
	case 2:
		put(frame + at, numbers[chance(11)], at + 4 <= size ? 4 : size - at);
		return size;
	case 3:
		memmove(frame + at + 1, frame + at, size - at);
		return size + 1;
	case 4:
		memmove(frame + at, frame + at + 1, size - at - 1);
		return size - 1;
	default:
		put(frame, chance(2) ? size - FRAME_PREFIX : chance(size * 2), 4);
		return size;
	}
}

int main(int count, char **words)
{
	time_t until = time(NULL) + (count > 1 ? atoi(words[1]) : 1);
	uint8_t frame[ROOM];
	size_t size;

	state = (count > 2 ? strtoull(words[2], NULL, 10) : 1) * 2654435761u + 1;
	planted = count > 3 && strcmp(words[3], "planted") == 0;
	do {
		for (int i = 0; i < BATCH; i++) {
			size = make_frame(frame);
			for (uint64_t times = chance(4); times > 0 && size > 1 && size < ROOM - 8; times--)
				size = spoil(frame, size);
			LLVMFuzzerTestOneInput(frame, size);
		}
	} while (time(NULL) < until);
	printf("%lu good, %lu bad, %lu incomplete\n", good, bad, incomplete);
	return 0;
}
