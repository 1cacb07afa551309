/* Declarations shared by the parts of the guard. */
#ifndef GUARD_H
#define GUARD_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "frame.h"

enum { FAILED_START = 1, FAILED_CWD, FAILED_EXEC };
enum { LEFT_RUNNING = 1, BY_SIGNAL = 2, NO_ANSWER = 4, OUT_OF_MEMORY = 8 };
enum { SHELL_NONE, SHELL_SH, SHELL_BASH };
enum { SCRIPT_FD = 9, LONG_LINE = 100 << 10 };

/* Sent once, in the hello. */
struct settings {
	bool greeted, jail;
	bool keeps_privileges;  /* for programs that this user would start without a guard just the same */
	bool few_segments;      /* segments and queues of System V are few: the kernel took that setting */
	int memory_events;      /* the events of the sandbox's memory cgroup; -1 without one */
	int not_forgotten;      /* the errno with which giving up privileges failed */
	uint64_t limits[LIMIT_COUNT];
	char **roots;
	int *root_fds;
	size_t root_count;
	const char *shell_path;
	uint8_t shell;
	int null_fd;
};
extern struct settings settings;

/* The stream to the client (channel.c). Never blocks. */
struct channel {
	int in, out;
	uint8_t *inbox, *outbox;
	size_t in_used, in_room;
	size_t out_start, out_used, out_room;
};
extern struct channel channel;

enum { OUTBOX_HIGH = 256 << 10, OUTBOX_FULL = 8 << 20 };

size_t channel_waiting(void);
bool channel_flush(void);                                   /* false when the client is gone */
bool channel_fill(void);                                    /* the same */
int channel_passed(void);                                   /* the next descriptor that came with the stream */
const uint8_t *channel_frame(size_t *size);                 /* the next whole frame, or NULL */
void channel_drop(size_t size);
uint8_t *channel_room(size_t size);                         /* where to put the next bytes to send */
void channel_put(size_t size);
void channel_send(uint8_t type, uint32_t id, const void *body, size_t size);
_Noreturn void channel_broken(const char *why);
void put_number(uint8_t *at, uint64_t value, size_t width);

/* One request in progress (work.c): a command under its supervisor, or a file operation. */
struct work {
	uint32_t id;
	bool command;
	pid_t pid;              /* the supervisor, or the worker */
	int link;               /* to the supervisor; -1 for a worker */
	int output[2], input;   /* our ends of the pipes; -1 when closed */
	uint8_t *queue;         /* input not yet in the pipe */
	size_t queued;
	bool closing;           /* the input ends after the queue */
	int64_t credit;
	bool started, failed, ended;
	size_t left[2];         /* once ended: bytes still to be read from each pipe */
	uint32_t code;
	uint8_t flags;
	bool out_of_memory;     /* killed because the sandbox used more than its limit */
	uint64_t memory_kills;  /* by the kernel in its cgroup, when it started */
	int *answer;            /* of a file operation: 1 + its errno, once it has one; shared with the worker */
	int64_t kill_at;        /* when the supervisor itself is killed, in ms; 0 for never */
	struct work *next;
};

void work_start(const struct message *message);
void work_file(const struct message *message);
void work_message(const struct message *message);
size_t work_poll(struct pollfd *fds, struct work **owners, size_t room);
void work_ready(struct work *work, const struct pollfd *fd);
void work_child_ended(pid_t pid, int status);
void work_finish(void);
int work_timeout(void);                                     /* in ms, -1 for none */
bool work_is_ours(pid_t pid);
void work_end_all(void);
void work_kill(struct work *work);
extern size_t work_count;
extern bool orphans_possible;

/* One command, in its supervisor (supervise.c) and in itself (payload.c). */
struct plan {
	char **argv, **env;
	const char *cwd;
	int input, output[2], script, link;
	int error, where;       /* written by the payload, which shares its memory until it runs */
};
struct report {
	uint8_t kind;           /* OUT_STARTED, OUT_FAILED or OUT_EXITED */
	uint8_t flags;
	uint32_t a;
};
_Noreturn void supervise(struct plan *plan);
int payload(void *plan);
void keep_only(int *fds, size_t count);
int drop_capabilities(void);                                /* these three: 0, or an errno */
int forget_privileges(void);                                /* once: what no child needs */
int set_limit(int resource, uint64_t value);
struct sock_filter;
const struct sock_filter *make_filter(size_t *length);      /* once, before it is installed anywhere */
int install_filter(void);
const char *prepare_jail(void);                             /* NULL when it is one */

/* Signal all processes below this one (tree.c), except those for which `skip` is true and what is below them. */
int tree_signal(int signal_number, bool (*skip)(pid_t pid));

/* Visit all processes below one (tree.c). */
void tree_each(pid_t root, void (*visit)(pid_t pid, void *context), void *context);

/* The limit on memory (watch.c). */
void watch_memory(void);                                    /* once in each turn */
int watch_timeout(int timeout);                             /* the sooner of this and the next look, in ms */
uint64_t memory_kills(void);
bool ran_out_of_memory(const struct work *work);

/* Paths (resolve.c) and file operations (files.c, change.c), in a worker. */
struct location {
	int dir;                /* its parent directory, or itself when the name is empty */
	char name[256];
	bool exists;
	mode_t mode;
	char real[65536];
};
int resolve(const char *path, bool follow, bool make_parents, struct location *location);
_Noreturn void file_operation(const struct message *message, int *answer);
bool forbidden_system(int fd);
int file_write(const char *path, uint64_t length, uint32_t mode);
int file_make_dir(const char *path);
int file_remove(const char *path);

int64_t now_ms(void);
extern sigset_t while_waiting;                              /* the signal mask for ppoll */

#endif
