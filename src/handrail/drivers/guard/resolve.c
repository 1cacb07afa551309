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
	char rest[65536];               /* what is still to be walked */
	size_t at;
	int dirs[DEPTH_MAX];            /* from the root downwards */
	size_t ends[DEPTH_MAX];         /* where each one's real path ends */
	size_t depth, root;
	int links;
	struct place *place;
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

/* Begin at the root that holds `walk->rest`, the deepest one. */
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
	memcpy(walk->place->real, walk->rest, best);
	walk->place->real[best] = 0;
	walk->ends[0] = best;
	walk->depth = 1;
	walk->at = best;
	return 0;
}

/* The next name into `place->name`; false when there is none. */
static bool next_name(struct walk *walk, int *error)
{
	const char *from;
	size_t size;

	while (walk->rest[walk->at] == '/')
		walk->at++;
	from = walk->rest + walk->at;
	size = strcspn(from, "/");
	if (size >= sizeof walk->place->name) {
		*error = ENAMETOOLONG;
		return false;
	}
	memcpy(walk->place->name, from, size);
	walk->place->name[size] = 0;
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
	walk->place->real[walk->ends[walk->depth - 1]] = 0;
	return 0;
}

static int follow_link(struct walk *walk, int dir)
{
	static char text[2 * sizeof walk->rest];
	ssize_t size = readlinkat(dir, walk->place->name, text, PATH_MAX);
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
	size_t end = walk->ends[walk->depth - 1], size = strlen(walk->place->name);

	if (end + size + 2 > sizeof walk->place->real)
		return ENAMETOOLONG;
	walk->place->real[end] = '/';
	memcpy(walk->place->real + end + 1, walk->place->name, size + 1);
	return 0;
}

static int enter_dir(struct walk *walk, int dir)
{
	int fd = openat(dir, walk->place->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), error;

	if (fd < 0)
		return errno == ELOOP ? ENOTDIR : errno;
	error = walk->depth == DEPTH_MAX ? ENAMETOOLONG : append_real(walk);
	if (error) {
		close(fd);
		return error;
	}
	walk->dirs[walk->depth] = fd;
	walk->ends[walk->depth++] = strlen(walk->place->real);
	return 0;
}

/* One step; -1 when the place is found. */
static int step(struct walk *walk, bool follow, bool make_parents)
{
	int dir = walk->dirs[walk->depth - 1];
	bool last = is_last(walk);
	struct stat status;

	if (fstatat(dir, walk->place->name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT || (!last && !make_parents))
			return errno;
		if (!last)
			return mkdirat(dir, walk->place->name, 0777) < 0 && errno != EEXIST ? errno : enter_dir(walk, dir);
		walk->place->exists = false;
		walk->place->dir = dir;
		return append_real(walk) ? ENAMETOOLONG : -1;
	}
	if (S_ISLNK(status.st_mode) && (!last || follow))
		return follow_link(walk, dir);
	if (!last)
		return enter_dir(walk, dir);
	walk->place->exists = true;
	walk->place->mode = status.st_mode;
	walk->place->dir = dir;
	return append_real(walk) ? ENAMETOOLONG : -1;
}

int resolve(const char *path, bool follow, bool make_parents, struct place *place)
{
	static struct walk walk;
	int error = 0;

	leave_dirs(&walk, 0);
	walk.place = place;
	walk.links = 0;
	if (strlen(path) >= sizeof walk.rest)
		return ENAMETOOLONG;
	strcpy(walk.rest, path);
	error = enter_root(&walk);
	while (!error && next_name(&walk, &error)) {
		if (strcmp(place->name, "..") == 0)
			error = climb(&walk);
		else if (strcmp(place->name, ".") != 0)
			error = step(&walk, follow, make_parents);
	}
	if (error)
		return error < 0 ? 0 : error;
	place->name[0] = 0;             /* it ended at a directory that was entered */
	place->dir = walk.dirs[walk.depth - 1];
	place->exists = true;
	place->mode = S_IFDIR;
	if (place->real[0] == 0)
		strcpy(place->real, "/");
	return 0;
}
