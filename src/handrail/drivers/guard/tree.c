/* Signals everything below this process by walking its children; each process number is checked again before use. */
#define _GNU_SOURCE
#include "guard.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TREE_MAX = 1 << 18, TEXT = 4096 };

struct member {
	pid_t pid, parent;
};
struct tree {
	struct member *members;
	size_t count, room;
};

static void add(struct tree *tree, pid_t pid, pid_t parent)
{
	if (tree->count == TREE_MAX)
		return;
	if (tree->count == tree->room) {
		size_t room = tree->room ? tree->room * 2 : 64;
		struct member *members = realloc(tree->members, room * sizeof *members);

		if (!members)
			return;
		tree->members = members;
		tree->room = room;
	}
	tree->members[tree->count++] = (struct member){pid, parent};
}

static void add_numbers(struct tree *tree, int fd, pid_t parent)
{
	char text[TEXT];
	long number = 0;
	bool inside = false;
	ssize_t size;

	while ((size = read(fd, text, sizeof text)) > 0)
		for (ssize_t i = 0; i < size; i++) {
			if (text[i] >= '0' && text[i] <= '9') {
				number = number * 10 + (text[i] - '0');
				inside = true;
			} else if (inside) {
				add(tree, (pid_t)number, parent);
				number = 0;
				inside = false;
			}
		}
}

static void add_children(struct tree *tree, pid_t pid)
{
	char path[64];
	struct dirent *entry;
	DIR *tasks;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	if (!tasks)
		return;
	while ((entry = readdir(tasks))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%.20s/children", entry->d_name);
		fd = openat(dirfd(tasks), path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		add_numbers(tree, fd, pid);
		close(fd);
	}
	closedir(tasks);
}

static pid_t parent_of(pid_t pid)
{
	char text[512], *at;
	ssize_t size;
	int fd;

	snprintf(text, sizeof text, "/proc/%d/stat", (int)pid);
	fd = open(text, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	size = read(fd, text, sizeof text - 1);
	close(fd);
	if (size <= 0)
		return -1;
	text[size] = 0;
	at = strrchr(text, ')');
	return at && strlen(at) > 4 ? (pid_t)atoi(at + 4) : -1;
}

/* Signal through a pidfd. A process whose parent is neither the one seen before nor this process is another process
 * with the same pid, and is left alone. */
static int signal_member(const struct member *member, int number, pid_t self)
{
	int fd = (int)syscall(SYS_pidfd_open, member->pid, 0), sent = 0;
	pid_t parent;

	if (fd < 0)
		return 0;
	parent = parent_of(member->pid);
	if (parent == member->parent || parent == self)
		sent = syscall(SYS_pidfd_send_signal, fd, number, NULL, 0) == 0;
	close(fd);
	return sent;
}

void tree_each(pid_t root, void (*visit)(pid_t pid, void *context), void *context)
{
	struct tree tree = {NULL, 0, 0};

	add_children(&tree, root);
	for (size_t i = 0; i < tree.count; i++) {
		visit(tree.members[i].pid, context);
		add_children(&tree, tree.members[i].pid);
	}
	free(tree.members);
}

int tree_signal(int number, bool (*skip)(pid_t pid))
{
	struct tree tree = {NULL, 0, 0};
	pid_t self = getpid();
	int sent = 0;

	add_children(&tree, self);
	for (size_t i = 0; i < tree.count; i++) {
		if (skip && skip(tree.members[i].pid))
			tree.members[i].pid = 0;
		else
			add_children(&tree, tree.members[i].pid);
	}
	for (size_t i = 0; i < tree.count; i++)
		if (tree.members[i].pid)
			sent += signal_member(&tree.members[i], number, self);
	free(tree.members);
	return sent;
}
