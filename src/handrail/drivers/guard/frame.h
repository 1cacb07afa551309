/* Frames: parses what a client sent as untrusted input, without side effects. */
#ifndef FRAME_H
#define FRAME_H

#include <stddef.h>
#include <stdint.h>

enum {
	PROTOCOL_VERSION = 4,
	FRAME_PREFIX = 4,       /* the size */
	FRAME_HEAD = 9,         /* size, type, id */
	FRAME_MAX = 4 << 20,
	STRINGS_MAX = 1 << 16,
	INPUT_MAX = 64 << 10,
	INPUT_WINDOW = 256 << 10,
	FIRST_CREDIT = 1 << 20,
	OVERDRAFT = 1 << 20,    /* what the pipes of a command hold, unless it enlarged them */
};

enum { IN_HELLO = 1, IN_START, IN_INPUT, IN_CLOSE, IN_CREDIT, IN_SIGNAL, IN_FILE };
enum { OUT_HELLO = 65, OUT_STARTED, OUT_FAILED, OUT_OUTPUT, OUT_TAKEN, OUT_DEAF, OUT_EXITED, OUT_BROKEN };
enum { KIND_ARGV = 0, KIND_LINE = 1 };
enum { WITH_INPUT = 1, OWN_ENVIRONMENT = 2, WITH_PIPES = 4 };
enum { OP_READ = 1, OP_WRITE, OP_STAT, OP_LIST, OP_MAKE_DIR, OP_REMOVE };
enum { LIMIT_PROCESSES, LIMIT_OPEN_FILES, LIMIT_FILE_SIZE, LIMIT_CPU, LIMIT_MEMORY, LIMIT_COUNT };

#define NO_LIMIT UINT64_MAX
#define NO_MODE UINT32_MAX

/* `count` NUL-terminated strings in `size` bytes; they live in the frame's own buffer. */
struct strings {
	uint32_t count;
	const char *bytes;
	size_t size;
};

struct message {
	uint8_t type;
	uint32_t id;
	union {
		struct {
			uint16_t version;
			uint8_t jail;
			uint64_t limits[LIMIT_COUNT];
			struct strings roots;
		} hello;
		struct {
			uint8_t kind, flags;
			struct strings cwd, argv, env;
		} start;
		struct {
			const uint8_t *bytes;
			size_t size;
		} input;
		uint32_t credit;
		uint8_t signal;
		struct {
			uint8_t op;
			uint64_t start, length;
			uint32_t mode;
			struct strings path;
		} file;
	};
};

/* The size of the first frame in bytes: 0 when it is incomplete, -1 when it can never be valid. */
long frame_size(const uint8_t *bytes, size_t size);

/* Parse one whole frame of `size` bytes. Returns NULL when it is valid, else what is wrong with it. */
const char *frame_read(const uint8_t *bytes, size_t size, struct message *message);

/* Fill `list` with pointers to the strings and a final NULL; it has room for count + 1. */
void strings_list(const struct strings *strings, char **list);

#endif
