/* File operations that change nothing: read, stat and list. They run in a worker without capabilities. */
#define _GNU_SOURCE
#include "guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define WHOLE_MAX (512ull << 20)        /* larger files are read by range */
#define LIST_MAX (256ull << 20)         /* memory that the answer may take: a path and some more for each entry */

enum { PIECE = 64 << 10, RECORD = 33, ENTRY_COST = 256, TYPE_FILE = 0, TYPE_DIRECTORY, TYPE_DANGLING, TYPE_OTHER };

static int put_all(const void *bytes, size_t size)
{
	const char *at = bytes;

	while (size > 0) {
		ssize_t done = write(1, at, size);

		if (done < 0)
			return errno;
		at += done;
		size -= (size_t)done;
	}
	return 0;
}

/* File systems in which reading or writing a "file" does something else. */
bool forbidden_system(int fd)
{
	static const unsigned long kinds[] = {
		PROC_SUPER_MAGIC, SYSFS_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC, SECURITYFS_MAGIC, CGROUP_SUPER_MAGIC,
		CGROUP2_SUPER_MAGIC, BPF_FS_MAGIC, SELINUX_MAGIC, EFIVARFS_MAGIC,
	};
	struct statfs system;

	if (fstatfs(fd, &system) < 0)
		return true;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if ((unsigned long)system.f_type == kinds[i])
			return true;
	return false;
}

static int refusal(mode_t mode)
{
	return S_ISDIR(mode) ? EISDIR : S_ISLNK(mode) ? ELOOP : S_ISREG(mode) ? 0 : EPERM;
}

static int open_regular(const struct location *location, struct stat *status)
{
	int error = location->exists ? refusal(location->mode) : ENOENT, fd;

	if (!error && forbidden_system(location->dir))
		error = EPERM;
	if (error) {
		errno = error;
		return -1;
	}
	fd = openat(location->dir, location->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	error = fstat(fd, status) < 0 ? errno : refusal(status->st_mode);
	if (!error && forbidden_system(fd))
		error = EPERM;
	if (!error)
		return fd;
	close(fd);
	errno = error;
	return -1;
}

static int read_range(const char *path, uint64_t start, uint64_t length)
{
	static struct location location;
	static char piece[PIECE];
	struct stat status;
	bool whole = length == NO_LIMIT;
	int error = resolve(path, true, false, &location), fd;

	if (error)
		return error;
	fd = open_regular(&location, &status);
	if (fd < 0)
		return errno;
	if (start >= (uint64_t)status.st_size)
		return 0;
	if (whole && (uint64_t)status.st_size - start > WHOLE_MAX)
		return EFBIG;
	if (whole)
		length = WHOLE_MAX + 1;         /* it may grow while it is read */
	while (length > 0 && !error) {
		ssize_t done = pread(fd, piece, length < PIECE ? length : PIECE, (off_t)start);

		if (done <= 0)
			return done < 0 ? errno : 0;
		start += (uint64_t)done;
		length -= (uint64_t)done;
		error = put_all(piece, (size_t)done);
	}
	return !error && whole ? EFBIG : error;
}

static uint8_t type_of(mode_t mode)
{
	return S_ISREG(mode) ? TYPE_FILE : S_ISDIR(mode) ? TYPE_DIRECTORY : S_ISLNK(mode) ? TYPE_DANGLING : TYPE_OTHER;
}

static size_t record(uint8_t *at, const struct stat *status, const char *name, const char *real)
{
	size_t name_size = strlen(name), real_size = strlen(real);

	at[0] = type_of(status->st_mode);
	put_number(at + 1, status->st_mode & 07777, 4);
	put_number(at + 5, (uint64_t)status->st_size, 8);
	put_number(at + 13, (uint64_t)status->st_mtim.tv_sec, 8);
	put_number(at + 21, (uint64_t)status->st_mtim.tv_nsec, 4);
	put_number(at + 25, name_size, 4);
	put_number(at + 29, real_size, 4);
	memcpy(at + RECORD, name, name_size);
	memcpy(at + RECORD + name_size, real, real_size);
	return RECORD + name_size + real_size;
}

static int status_of(const struct location *location, struct stat *status)
{
	if (!location->exists)
		return ENOENT;
	return fstatat(location->dir, location->name, status, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0 ? errno : 0;
}

/* A link that leads nowhere, or out of the roots, is described as itself. */
static int describe(const char *path, struct location *location, struct stat *status)
{
	int error = resolve(path, true, false, location);

	if (!error)
		error = status_of(location, status);
	if (error == ENOENT || error == EXDEV || error == ELOOP || error == EACCES) {
		int itself = resolve(path, false, false, location);

		if (itself || (itself = status_of(location, status)))
			return itself == ENOENT ? error : itself;
		if (!S_ISLNK(status->st_mode))
			return error;
		return 0;
	}
	return error;
}

static int stat_path(const char *path)
{
	static struct location location;
	static uint8_t bytes[RECORD + sizeof location.real];
	struct stat status;
	int error = describe(path, &location, &status);

	return error ? error : put_all(bytes, record(bytes, &status, "", location.real));
}

struct listing {
	size_t used;            /* bytes not yet sent */
	uint64_t cost;
};

static int list_entry(int dir, const char *base, const char *name, struct listing *listing)
{
	static struct location location;
	static uint8_t bytes[PIECE + RECORD + 256 + sizeof location.real];
	static char path[sizeof location.real + 256];
	struct stat status;
	const char *real = "";
	int error = 0;

	if (!name)
		return put_all(bytes, listing->used);
	if (fstatat(dir, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : errno;
	if (S_ISLNK(status.st_mode)) {
		strcpy(path, base);
		strcat(path, "/");
		strcat(path, name);
		if (describe(path, &location, &status))
			return 0;
		real = location.real;
	}
	listing->cost += ENTRY_COST + strlen(name) + strlen(*real ? real : base);
	if (listing->cost > LIST_MAX)
		return EFBIG;
	listing->used += record(bytes + listing->used, &status, name, real);
	if (listing->used >= PIECE) {
		error = put_all(bytes, listing->used);
		listing->used = 0;
	}
	return error;
}

static int list_path(const char *path)
{
	static struct location location;
	struct dirent *entry;
	struct listing listing = {0, 0};
	DIR *entries;
	int error = resolve(path, true, false, &location), fd;

	if (!error && !location.exists)
		error = ENOENT;
	if (!error && !S_ISDIR(location.mode))
		error = ENOTDIR;
	if (error)
		return error;
	fd = openat(location.dir, location.name[0] ? location.name : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || forbidden_system(fd))
		return fd < 0 ? errno : EPERM;
	entries = fdopendir(fd);
	while (!error && entries && (entry = readdir(entries)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			error = list_entry(fd, location.real, entry->d_name, &listing);
	return error ? error : list_entry(fd, "", NULL, &listing);
}

static int operate(const struct message *message)
{
	const char *path = message->file.path.bytes;

	switch (message->file.op) {
	case OP_READ:
		return read_range(path, message->file.start, message->file.length);
	case OP_WRITE:
		return file_write(path, message->file.length, message->file.mode);
	case OP_STAT:
		return stat_path(path);
	case OP_LIST:
		return list_path(path);
	case OP_MAKE_DIR:
		return file_make_dir(path);
	default:
		return file_remove(path);
	}
}

_Noreturn void file_operation(const struct message *message, int *answer)
{
	size_t count = settings.root_count + 2;
	int *kept = calloc(count, sizeof *kept), error;

	if (!kept)
		_exit(1);
	kept[0] = 0;
	kept[1] = 1;
	memcpy(kept + 2, settings.root_fds, settings.root_count * sizeof *kept);
	keep_only(kept, count);
	free(kept);
	error = drop_capabilities();
	if (!error)
		error = set_limit(RLIMIT_FSIZE, settings.limits[LIMIT_FILE_SIZE]);
	*answer = 1 + (error ? error : operate(message));
	_exit(0);
}
