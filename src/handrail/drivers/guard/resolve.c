/* Finds where a path leads, step by step from one of the roots, so that no link and no `..` ever leads out of them. */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MAX = 40, DEPTH_MAX = 512 };

struct walk {
	char rest[65536];               /* the rest of the path */
	size_t at;
	int dirs[DEPTH_MAX];            /* from the root downwards */
	size_t ends[DEPTH_MAX];         /* where each one's real path ends */
	size_t depth, root;
	int links;
	struct location *location;
};

static bool below(const char *path, const char *root, size_t *rest)
{
	size_t size = strlen(root);

	while (size > 0 && root[size - 1] == '/')
		size--;
	if (strncmp(path, root, size) != 0 || (path[size] != '/' && path[size] != 0))
		return false;
	*rest = size;
	return true;
}

static void leave_dirs(struct walk *walk, size_t depth)
{
	while (walk->depth > depth) {
		walk->depth--;
		if (walk->depth > 0)
			close(walk->dirs[walk->depth]);
	}
}

/* Start at the deepest root that contains `walk->rest`. */
static int enter_root(struct walk *walk)
{
	size_t rest, best = 0;
	bool found = false;

	for (size_t i = 0; i < settings.root_count; i++)
		if (below(walk->rest, settings.roots[i], &rest) && (!found || rest >= best)) {
			found = true;
			best = rest;
			walk->root = i;
		}
	if (!found)
		return EXDEV;
	leave_dirs(walk, 0);
	walk->dirs[0] = settings.root_fds[walk->root];
	memcpy(walk->location->real, walk->rest, best);
	walk->location->real[best] = 0;
	walk->ends[0] = best;
	walk->depth = 1;
	walk->at = best;
	return 0;
}

/* The next name into `location->name`; false when there is none. */
static bool next_name(struct walk *walk, int *error)
{
	const char *from;
	size_t size;

	while (walk->rest[walk->at] == '/')
		walk->at++;
	from = walk->rest + walk->at;
	size = strcspn(from, "/");
	if (size >= sizeof walk->location->name) {
		*error = ENAMETOOLONG;
		return false;
	}
	memcpy(walk->location->name, from, size);
	walk->location->name[size] = 0;
	walk->at += size;
	return size > 0;
}

static bool is_last(const struct walk *walk)
{
	return walk->rest[walk->at + strspn(walk->rest + walk->at, "/")] == 0;
}

static int climb(struct walk *walk)
{
	if (walk->depth == 1)
		return walk->ends[0] == 0 ? 0 : EXDEV;
	leave_dirs(walk, walk->depth - 1);
	walk->location->real[walk->ends[walk->depth - 1]] = 0;
	return 0;
}

static int follow_link(struct walk *walk, int dir)
{
	static char text[2 * sizeof walk->rest];
	ssize_t size = readlinkat(dir, walk->location->name, text, PATH_MAX);
	size_t rest = strlen(walk->rest + walk->at);

	if (size < 0)
		return errno == EINVAL ? 0 : errno;
	if (++walk->links > LINKS_MAX)
		return ELOOP;
	if ((size_t)size + rest + 1 > sizeof walk->rest)
		return ENAMETOOLONG;
	memcpy(text + size, walk->rest + walk->at, rest + 1);
	memcpy(walk->rest, text, (size_t)size + rest + 1);
	walk->at = 0;
	return walk->rest[0] == '/' ? enter_root(walk) : 0;
}

static int append_real(struct walk *walk)
{
	size_t end = walk->ends[walk->depth - 1], size = strlen(walk->location->name);

	if (end + size + 2 > sizeof walk->location->real)
		return ENAMETOOLONG;
	walk->location->real[end] = '/';
	memcpy(walk->location->real + end + 1, walk->location->name, size + 1);
	return 0;
}

static int enter_dir(struct walk *walk, int dir)
{
	int fd = openat(dir, walk->location->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), error;

	if (fd < 0)
		return errno == ELOOP ? ENOTDIR : errno;
	error = walk->depth == DEPTH_MAX ? ENAMETOOLONG : append_real(walk);
	if (error) {
		close(fd);
		return error;
	}
	walk->dirs[walk->depth] = fd;
	walk->ends[walk->depth++] = strlen(walk->location->real);
	return 0;
}

/* One step; -1 when the path is resolved. */
static int step(struct walk *walk, bool follow, bool make_parents)
{
	int dir = walk->dirs[walk->depth - 1];
	bool last = is_last(walk);
	struct stat status;

	if (fstatat(dir, walk->location->name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT || (!last && !make_parents))
			return errno;
		if (!last)
			return mkdirat(dir, walk->location->name, 0777) < 0 && errno != EEXIST ? errno : enter_dir(walk, dir);
		walk->location->exists = false;
		walk->location->dir = dir;
		return append_real(walk) ? ENAMETOOLONG : -1;
	}
	if (S_ISLNK(status.st_mode) && (!last || follow))
		return follow_link(walk, dir);
	if (!last)
		return enter_dir(walk, dir);
	walk->location->exists = true;
	walk->location->mode = status.st_mode;
	walk->location->dir = dir;
	return append_real(walk) ? ENAMETOOLONG : -1;
}

int resolve(const char *path, bool follow, bool make_parents, struct location *location)
{
	static struct walk walk;
	int error = 0;

	leave_dirs(&walk, 0);
	walk.location = location;
	walk.links = 0;
	if (strlen(path) >= sizeof walk.rest)
		return ENAMETOOLONG;
	strcpy(walk.rest, path);
	error = enter_root(&walk);
	while (!error && next_name(&walk, &error)) {
		if (strcmp(location->name, "..") == 0)
			error = climb(&walk);
		else if (strcmp(location->name, ".") != 0)
			error = step(&walk, follow, make_parents);
	}
	if (error)
		return error < 0 ? 0 : error;
	location->name[0] = 0;             /* it ended at a directory that was entered */
	location->dir = walk.dirs[walk.depth - 1];
	location->exists = true;
	location->mode = S_IFDIR;
	if (location->real[0] == 0)
		strcpy(location->real, "/");
	return 0;
}
