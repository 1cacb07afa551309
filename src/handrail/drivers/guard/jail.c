/* Completes the jail that bubblewrap began, and closes the ways out of it, before anything runs in it.

   Bubblewrap could do all of this. But for each of its mounts it reads the list of all mounts, and an ordinary user's
   devices cost it another user namespace: that would take most of the time of starting a jail. */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define OUTER_DEVICES "/run/handrail/dev"
#define TERMINALS "newinstance,ptmxmode=0666,mode=620,max=256"

#define KEPT (ST_NOSUID | ST_NODEV | ST_NOEXEC | ST_NOATIME | ST_NODIRATIME)

enum { PAGE = 4096, FEWEST_FILES = 16 };

struct device {
	const char *name;
	unsigned major, minor;
};

static bool forbid_user_namespaces(void)
{
	int fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, "0", 1) == 1;

	if (fd >= 0)
		close(fd);
	return done;
}

/* Change this mount alone, not those below it; its other restrictions stay. */
static bool make_read_only(const char *path, unsigned long more)
{
	unsigned long kept = KEPT;
	struct statvfs found;

	if (statvfs(path, &found) < 0)
		return false;
	kept &= found.f_flag;
	return mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | more | kept, NULL) == 0;
}

/* What exists already was asked for by the client, and stays. A device is the machine's own file: read-only protects
   its mode and times, and writing to the device still works. */
static bool show_device(const struct device *device)
{
	char from[64], to[64];
	struct stat found;
	int fd;

	snprintf(from, sizeof from, OUTER_DEVICES "/%s", device->name);
	snprintf(to, sizeof to, "/dev/%s", device->name);
	if (stat(from, &found) < 0 || !S_ISCHR(found.st_mode) || found.st_rdev != makedev(device->major, device->minor))
		return false;
	fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return errno == EEXIST;
	close(fd);
	return mount(from, to, NULL, MS_BIND, NULL) == 0 && make_read_only(to, MS_NOSUID);
}

/* Unmount all mounts at this path, until it is an empty directory of the jail's own. */
static bool hide_devices(void)
{
	struct stat outer, around;
	bool hidden = false;

	while (umount2(OUTER_DEVICES, MNT_DETACH) == 0)
		hidden = true;
	return hidden && lstat(OUTER_DEVICES, &outer) == 0 && stat("/run", &around) == 0 && outer.st_dev == around.st_dev;
}

/* An empty file takes no page, but kernel memory: so there may be as many files as pages. Only mounts of the jail's own
   are changed: a link is skipped, and for a mount of the client's the kernel refuses. */
static bool bound_files(const char *path)
{
	struct stat itself;
	struct statfs system;
	struct statvfs space;
	char options[64];
	unsigned long long most;

	if (lstat(path, &itself) < 0 || S_ISLNK(itself.st_mode))
		return true;
	if (statfs(path, &system) < 0 || statvfs(path, &space) < 0 || system.f_type != TMPFS_MAGIC)
		return true;
	most = (unsigned long long)space.f_blocks * space.f_frsize / PAGE;
	snprintf(options, sizeof options, "nr_inodes=%llu", most > FEWEST_FILES ? most : FEWEST_FILES);
	return mount(NULL, path, NULL, MS_REMOUNT | (space.f_flag & KEPT), options) == 0 || errno == EPERM || errno == EINVAL;
}

/* A path as the kernel writes it in its list of mounts: blanks and backslashes are octal. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; to++)
		if (from[0] == '\\' && from[1] && from[2] && from[3]) {
			*to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
			from += 4;
		} else {
			*to = *from++;
		}
	*to = 0;
}

/* Every writable tmpfs, wherever the client let bubblewrap make one: temporary files, HOME, a workspace. */
static bool bound_all_files(void)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	char path[PAGE], options[3], *line = NULL;
	size_t room = 0;
	bool done = mounts != NULL;

	while (done && getline(&line, &room, mounts) > 0)
		if (strstr(line, " - tmpfs ") && sscanf(line, "%*s %*s %*s %*s %4095s %2s", path, options) == 2
		    && strcmp(options, "rw") == 0) {
			unescape(path);
			done = bound_files(path);
		}
	free(line);
	if (mounts)
		fclose(mounts);
	return done;
}

/* Segments and queues of System V belong to no process, and outlive their makers: so there are few of them. The
   kernel refuses this to most ordinary users: then the filter keeps segments small and refuses queues. */
static bool bound_system_v(void)
{
	bool done = true;
	static const char *const settings_of[] = {"/proc/sys/kernel/shmmni", "/proc/sys/kernel/msgmni"};

	for (size_t i = 0; i < 2; i++) {
		int fd = open(settings_of[i], O_WRONLY | O_CLOEXEC);

		done = fd >= 0 && write(fd, "32", 2) == 2 && done;
		if (fd >= 0)
			close(fd);
	}
	return done;
}

/* Show only these of the machine's devices, then hide the rest. */
static bool make_devices(void)
{
	static const struct device devices[] = {
		{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
	};

	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
		if (!show_device(&devices[i]))
			return false;
	/* An old kernel refuses this to ordinary users: then there are no terminals, and opening one fails. */
	mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, TERMINALS);
	return hide_devices();
}

static bool keep_capabilities(uint32_t kept)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2] = {{kept, kept, 0}, {0, 0, 0}};

	return syscall(SYS_capset, &header, data) == 0;
}

const char *prepare_jail(void)
{
	size_t length;

	if (getpid() != 1)
		return "no jail: the guard is not the first process of a process namespace";
	if (settings.not_forgotten)
		return "no jail: privileges cannot be given up";
	/* bubblewrap leaves mounts slaves of the machine's: a later mount outside would appear here, writable. */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return "no jail: its mounts cannot be made private";
	if (!forbid_user_namespaces())
		return "no jail: user namespaces cannot be forbidden";
	if (!make_devices())
		return "no jail: the devices cannot be shown, or the others not hidden";
	if (!make_read_only("/", 0) || !make_read_only("/dev", 0))
		return "no jail: the guard may not make its file system read-only";
	settings.few_segments = bound_system_v();
	if (!bound_all_files())
		return "no jail: the number of temporary files cannot be limited";
	make_filter(&length);
	if (!keep_capabilities((1u << CAP_SYS_ADMIN) | (1u << CAP_SETPCAP)))
		return "no jail: privileges cannot be given up";
	return NULL;
}
