/* Frames: parses what a client sent as untrusted input, without side effects. */
#include "frame.h"

#include <string.h>

struct cursor {
	const uint8_t *at, *end;
	int bad;
};

static uint64_t number(struct cursor *cursor, size_t width)
{
	uint64_t value = 0;

	if (cursor->bad || (size_t)(cursor->end - cursor->at) < width) {
		cursor->bad = 1;
		return 0;
	}
	for (size_t i = 0; i < width; i++)
		value |= (uint64_t)cursor->at[i] << (8 * i);
	cursor->at += width;
	return value;
}

static void read_strings(struct cursor *cursor, struct strings *strings)
{
	uint32_t count = (uint32_t)number(cursor, 4), size = (uint32_t)number(cursor, 4), ends = 0;

	if (cursor->bad || count > STRINGS_MAX || size > (size_t)(cursor->end - cursor->at)) {
		cursor->bad = 1;
		return;
	}
	for (uint32_t i = 0; i < size; i++)
		ends += cursor->at[i] == 0;
	if (ends != count || (size > 0 && cursor->at[size - 1] != 0)) {
		cursor->bad = 1;
		return;
	}
	strings->count = count;
	strings->bytes = (const char *)cursor->at;
	strings->size = size;
	cursor->at += size;
}

static void read_one_string(struct cursor *cursor, struct strings *strings)
{
	read_strings(cursor, strings);
	if (!cursor->bad && strings->count != 1)
		cursor->bad = 1;
}

static const char *read_hello(struct cursor *cursor, struct message *message)
{
	message->hello.version = (uint16_t)number(cursor, 2);
	if (!cursor->bad && message->hello.version != PROTOCOL_VERSION)
		return "another version of the protocol";
	message->hello.jail = (uint8_t)number(cursor, 1);
	if (number(cursor, 1) != 0 || message->hello.jail > 1)
		return "an unknown mode";
	for (int i = 0; i < LIMIT_COUNT; i++)
		message->hello.limits[i] = number(cursor, 8);
	read_strings(cursor, &message->hello.roots);
	return NULL;
}

static const char *read_start(struct cursor *cursor, struct message *message)
{
	message->start.kind = (uint8_t)number(cursor, 1);
	message->start.flags = (uint8_t)number(cursor, 1);
	if (message->start.kind > KIND_LINE || message->start.flags > (WITH_INPUT | OWN_ENVIRONMENT | WITH_PIPES))
		return "an unknown kind of command";
	if ((message->start.flags & WITH_INPUT) && (message->start.flags & WITH_PIPES))
		return "two inputs for one command";
	read_one_string(cursor, &message->start.cwd);
	read_strings(cursor, &message->start.argv);
	read_strings(cursor, &message->start.env);
	if (cursor->bad)
		return NULL;
	if (message->start.argv.count == 0)
		return "a command without arguments";
	if (message->start.kind == KIND_LINE && message->start.argv.count != 1)
		return "a line that is not one string";
	return NULL;
}

static const char *read_file(struct cursor *cursor, struct message *message)
{
	message->file.op = (uint8_t)number(cursor, 1);
	message->file.start = number(cursor, 8);
	message->file.length = number(cursor, 8);
	message->file.mode = (uint32_t)number(cursor, 4);
	read_one_string(cursor, &message->file.path);
	if (cursor->bad)
		return NULL;
	if (message->file.op < OP_READ || message->file.op > OP_REMOVE)
		return "an unknown file operation";
	if (message->file.path.bytes[0] != '/')
		return "a path that is not absolute";
	return NULL;
}

static const char *read_input(struct cursor *cursor, struct message *message)
{
	message->input.bytes = cursor->at;
	message->input.size = (size_t)(cursor->end - cursor->at);
	cursor->at = cursor->end;
	return message->input.size == 0 || message->input.size > INPUT_MAX ? "input of a wrong size" : NULL;
}

static const char *read_body(struct cursor *cursor, struct message *message)
{
	switch (message->type) {
	case IN_HELLO:
		return read_hello(cursor, message);
	case IN_START:
		return read_start(cursor, message);
	case IN_INPUT:
		return read_input(cursor, message);
	case IN_CLOSE:
		return NULL;
	case IN_CREDIT:
		message->credit = (uint32_t)number(cursor, 4);
		return message->credit > (1u << 30) ? "too much credit" : NULL;
	case IN_SIGNAL:
		message->signal = (uint8_t)number(cursor, 1);
		return !cursor->bad && message->signal != 9 && message->signal != 15 ? "an unknown signal" : NULL;
	case IN_FILE:
		return read_file(cursor, message);
	default:
		return "a frame of an unknown type";
	}
}

long frame_size(const uint8_t *bytes, size_t size)
{
	struct cursor cursor = {bytes, bytes + size, 0};
	uint64_t rest = number(&cursor, FRAME_PREFIX);

	if (cursor.bad)
		return 0;
	if (rest < FRAME_HEAD - FRAME_PREFIX || rest > FRAME_MAX)
		return -1;
	return (long)rest + FRAME_PREFIX;
}

const char *frame_read(const uint8_t *bytes, size_t size, struct message *message)
{
	struct cursor cursor = {bytes, bytes + size, 0};
	const char *wrong;

	memset(message, 0, sizeof *message);
	if (number(&cursor, FRAME_PREFIX) + FRAME_PREFIX != size)
		return "a frame of a wrong size";
	message->type = (uint8_t)number(&cursor, 1);
	message->id = (uint32_t)number(&cursor, 4);
	if (cursor.bad)
		return "a frame that ends too early";
	wrong = read_body(&cursor, message);
	if (wrong)
		return wrong;
	if (cursor.bad)
		return "a frame that ends too early, or has bad strings";
	return cursor.at == cursor.end ? NULL : "a frame with bytes left over";
}

void strings_list(const struct strings *strings, char **list)
{
	const char *at = strings->bytes;

	for (uint32_t i = 0; i < strings->count; i++) {
		list[i] = (char *)(uintptr_t)at;
		at += strlen(at) + 1;
	}
	list[strings->count] = NULL;
}
