/* File operations that change something: write, make a directory, remove. They run in a worker without capabilities. */
#define _GNU_SOURCE
#include "guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 64 << 10, DEPTH_MAX = 64 };

/* Make a unique name. */
static void fresh_name(char *name, size_t size)
{
	static unsigned count;
	struct timespec time;

	clock_gettime(CLOCK_REALTIME, &time);
	snprintf(name, size, ".handrail-%d-%lx%09lx-%u", (int)getpid(), (long)time.tv_sec, time.tv_nsec, count++);
}

static int take_bytes(int fd, uint64_t length)
{
	static char piece[PIECE];

	while (length > 0) {
		ssize_t size = read(0, piece, length < PIECE ? length : PIECE);

		if (size < 0)
			return errno;
		if (size == 0)
			return ECANCELED;
		length -= (uint64_t)size;
		for (ssize_t at = 0; at < size;) {
			ssize_t done = write(fd, piece + at, (size_t)(size - at));

			if (done < 0)
				return errno;
			at += done;
		}
	}
	return 0;
}

/* An existing file keeps its mode; a new file gets the usual one. */
static mode_t wanted_mode(const struct location *location, uint32_t mode)
{
	if (mode != NO_MODE)
		return mode & 0777;
	return location->exists ? location->mode & 0777 : 0644;
}

/* Write to a file without a name (O_TMPFILE) if possible: then nothing is left if this process is killed. */
static int write_beside(const struct location *location, uint64_t length, mode_t mode, char *name, size_t size)
{
	char self[64];
	bool nameless = true;
	int fd = openat(location->dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600), error;

	fresh_name(name, size);
	if (fd < 0) {
		nameless = false;
		fd = openat(location->dir, name, O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, 0600);
	}
	if (fd < 0)
		return errno;
	error = take_bytes(fd, length);
	if (!error && fchmod(fd, mode) < 0)
		error = errno;
	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	if (!error && nameless && linkat(AT_FDCWD, self, location->dir, name, AT_SYMLINK_FOLLOW) < 0)
		error = errno;
	if (error && !nameless)
		unlinkat(location->dir, name, 0);
	close(fd);
	return error;
}

int file_write(const char *path, uint64_t length, uint32_t mode)
{
	static struct location location;
	char name[64];
	int error;

	if (mode != NO_MODE && mode & (S_ISUID | S_ISGID))
		return EPERM;
	error = resolve(path, true, true, &location);
	if (error)
		return error;
	if (location.exists && !S_ISREG(location.mode))
		return S_ISDIR(location.mode) ? EISDIR : EPERM;
	if (path[strlen(path) - 1] == '/')
		return ENOTDIR;
	if (forbidden_system(location.dir))
		return EPERM;
	/* The rename below needs the directory alone: a command that writes into the file is asked about the file. */
	if (location.exists && faccessat(location.dir, location.name, W_OK, 0) < 0)
		return errno;
	error = write_beside(&location, length, wanted_mode(&location, mode), name, sizeof name);
	if (!error && renameat(location.dir, name, location.dir, location.name) < 0) {
		error = errno;
		unlinkat(location.dir, name, 0);
	}
	return error;
}

int file_make_dir(const char *path)
{
	static struct location location;
	int error = resolve(path, true, true, &location);

	if (error)
		return error;
	if (location.exists)
		return S_ISDIR(location.mode) ? 0 : EEXIST;
	if (forbidden_system(location.dir))
		return EPERM;
	return mkdirat(location.dir, location.name, 0777) < 0 && errno != EEXIST ? errno : 0;
}

static int empty(int top, int parent, const char *name, int depth);

static int remove_one(int top, int dir, const char *name, int depth)
{
	char aside[64];
	int error;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return errno;
	if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return errno == ENOTDIR ? EPERM : errno;
	if (depth == DEPTH_MAX) {       /* too deep for descriptors: moved up, to be removed later */
		fresh_name(aside, sizeof aside);
		return renameat(dir, name, top, aside) < 0 ? errno : 0;
	}
	error = empty(top, dir, name, depth + 1);
	return error || unlinkat(dir, name, AT_REMOVEDIR) == 0 ? error : errno;
}

/* Remove the entries of a directory until none is left. */
static int empty(int top, int parent, const char *name, int depth)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), error = 0;
	struct dirent *entry;
	DIR *entries;
	bool again = true;

	if (fd < 0 && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0)
		fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno;
	if (forbidden_system(fd)) {
		close(fd);
		return EPERM;
	}
	fchmod(fd, 0700);
	entries = fdopendir(fd);
	if (!entries)
		return errno;
	while (!error && again) {
		again = false;
		rewinddir(entries);
		while (!error && (entry = readdir(entries)))
			if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
				again = true;
				error = remove_one(depth == 0 ? fd : top, fd, entry->d_name, depth);
			}
	}
	closedir(entries);
	return error;
}

int file_remove(const char *path)
{
	static struct location location;
	int error = resolve(path, false, false, &location);

	if (error)
		return error;
	if (!location.exists)
		return ENOENT;
	if (!location.name[0])
		return EBUSY;           /* a root, or a path that ends in dots */
	if (forbidden_system(location.dir))
		return EPERM;
	if (!S_ISDIR(location.mode))
		return unlinkat(location.dir, location.name, 0) < 0 ? errno : 0;
	error = empty(-1, location.dir, location.name, 0);
	return error || unlinkat(location.dir, location.name, AT_REMOVEDIR) == 0 ? error : errno;
}
