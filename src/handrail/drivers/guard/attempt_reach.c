/* Attempts to reach files, processes, sockets and networks outside. No packet leaves the machine. */
#define _GNU_SOURCE
#include "attempt.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

enum { MEMORY = 1, CONSOLES = 5, TERMINALS = 136, DEPTH = 4 };
enum { MANY_FILES = 1 << 16 };
enum { ECHO_WAIT = 20, CONNECT_WAIT = 1000, WEB = 80 };

static int read_file(const char *path)
{
	static const char *const tops[] = {"", "/proc/self/root", "/proc/1/root", "/proc/1/cwd/../../.."};
	char whole[4096], byte;
	int fd = -1, first = 0;

	for (size_t i = 0; i < sizeof tops / sizeof *tops && fd < 0; i++) {
		snprintf(whole, sizeof whole, "%s%s", tops[i], path);
		fd = open(whole, O_RDONLY | O_CLOEXEC);
		first = first ? first : errno;
	}
	if (fd < 0)
		return first;
	return read(fd, &byte, 1) == 1 ? 0 : EIO;
}

static int make_file(const char *path)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

	if (fd < 0)
		return errno;
	unlink(path);
	return 0;
}

/* Null, zero, full, random and urandom; tty and ptmx; terminals. */
static bool is_harmless(dev_t device)
{
	unsigned number = minor(device);

	if (major(device) == MEMORY)
		return number == 3 || number == 5 || (number >= 7 && number <= 9);
	return major(device) == TERMINALS || (major(device) == CONSOLES && (number == 0 || number == 2));
}

/* Look for devices without opening them, because opening alone can do harm. Devices on a nodev mount do not count. */
static bool finds_device(const char *path, int depth)
{
	char whole[4096];
	struct statvfs mount;
	struct stat found;
	struct dirent *entry;
	DIR *dir = depth ? opendir(path) : NULL;
	bool yes = false;

	while (dir && !yes && (entry = readdir(dir))) {
		snprintf(whole, sizeof whole, "%s/%s", path, entry->d_name);
		if (entry->d_name[0] == '.' || lstat(whole, &found) < 0)
			continue;
		if (S_ISDIR(found.st_mode))
			yes = finds_device(whole, depth - 1);
		else if (S_ISBLK(found.st_mode) || (S_ISCHR(found.st_mode) && !is_harmless(found.st_rdev)))
			yes = statvfs(whole, &mount) == 0 && !(mount.f_flag & ST_NODEV);
	}
	if (dir)
		closedir(dir);
	return yes;
}

static int find_device(const char *argument)
{
	(void)argument;
	return finds_device("/dev", DEPTH) || finds_device("/run", DEPTH) ? 0 : ENODEV;
}

/* Does any mount receive from one outside? Then a later mount outside would appear inside. */
static int find_linked_mount(const char *argument)
{
	static const char *const links[] = {" shared:", " master:", " propagate_from:"};
	char line[8192], *end;
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	bool yes = false;

	(void)argument;
	while (mounts && !yes && fgets(line, sizeof line, mounts)) {
		end = strstr(line, " - ");
		if (end)
			*end = 0;
		for (size_t i = 0; i < sizeof links / sizeof *links; i++)
			yes = yes || strstr(line, links[i]);
	}
	if (mounts)
		fclose(mounts);
	return !mounts || yes ? 0 : ENOLINK;
}

static int holds(const char *pid, const char *text)
{
	char path[64], line[8192];
	ssize_t size;
	int fd;

	snprintf(path, sizeof path, "/proc/%.20s/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	size = read(fd, line, sizeof line);
	close(fd);
	return size > 0 && memmem(line, (size_t)size, text, strlen(text)) != NULL;
}

/* Is there a process with this text in its arguments? The text is given backwards, else this process would match. */
static int see_process(const char *backwards)
{
	char text[TEXT_MAX] = "";
	size_t size = strlen(backwards);
	struct dirent *entry;
	DIR *dir = opendir("/proc");

	if (!dir)
		return errno;
	for (size_t i = 0; i < size && i < sizeof text - 1; i++)
		text[i] = backwards[size - 1 - i];
	while ((entry = readdir(dir)))
		if (isdigit((unsigned char)entry->d_name[0]) && holds(entry->d_name, text))
			return 0;
	return ESRCH;
}

/* Is anything open but the three streams, and the directory being read? With a small limit that cannot be opened. */
static int find_descriptor(const char *argument)
{
	struct dirent *entry;
	DIR *dir = opendir("/proc/self/fd");
	bool yes = false;

	(void)argument;
	while (dir && !yes && (entry = readdir(dir))) {
		int fd = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : -1;

		yes = fd > STDERR_FILENO && fd != dirfd(dir);
	}
	for (int fd = STDERR_FILENO + 1; !dir && !yes && fd < MANY_FILES; fd++)
		yes = fcntl(fd, F_GETFD) >= 0;
	return yes ? 0 : EBADF;
}

static int connect_within(int fd, const void *address, socklen_t size)
{
	struct pollfd ready = {fd, POLLOUT, 0};
	int error = 0;
	socklen_t width = sizeof error;

	if (connect(fd, address, size) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return errno;
	if (poll(&ready, 1, CONNECT_WAIT) != 1)
		return ETIMEDOUT;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &width) < 0 ? errno : error;
}

static int connect_inet(int type, const char *host, int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error;

	inet_pton(AF_INET, host, &address.sin_addr);
	error = fd < 0 ? errno : connect_within(fd, &address, sizeof address);
	errno = error;
	return error ? -1 : fd;
}

static int tcp(const char *port)
{
	return attempt_errno(connect_inet(SOCK_STREAM, "127.0.0.1", atoi(port)));
}

/* Send to a port without a listener: the machine answers with an error, which the socket reports. */
static int udp(const char *port)
{
	int fd = connect_inet(SOCK_DGRAM, "127.0.0.1", atoi(port)), error = 0;
	socklen_t width = sizeof error;
	struct pollfd ready = {fd, POLLIN, 0};

	if (fd < 0 || send(fd, "x", 1, 0) < 0)
		return errno;
	poll(&ready, 1, ECHO_WAIT);
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &width) < 0 ? errno : error;
}

/* Is there a route to this address? Connecting a datagram socket looks it up, and sends nothing. */
static int route(const char *host)
{
	return attempt_errno(connect_inet(SOCK_DGRAM, host, WEB));
}

static int connect_unix(const char *name, size_t first)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t size = strlen(name);

	if (fd < 0 || size + first > sizeof address.sun_path)
		return fd < 0 ? errno : ENAMETOOLONG;
	memcpy(address.sun_path + first, name, size);
	return connect_within(fd, &address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + first + size));
}

static int unix_path(const char *path)
{
	return connect_unix(path, 0);
}

static int abstract(const char *name)
{
	return connect_unix(name, 1);
}

/* Sockets to the machine that runs this virtual one: no network namespace contains them. */
static int vsock(const char *argument)
{
	(void)argument;
	return attempt_errno(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

const struct attempt reaching[] = {
	{"read", read_file}, {"make", make_file}, {"see", see_process}, {"tcp", tcp}, {"udp", udp}, {"route", route},
	{"unix", unix_path}, {"abstract", abstract}, {"vsock", vsock}, {"devices", find_device},
	{"descriptors", find_descriptor}, {"linked-mounts", find_linked_mount}, {NULL, NULL},
};
