/* Makes sure that this is a jail before anything runs in it, and closes the ways out that need no command to be there. */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool forbid_user_namespaces(void)
{
	int fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, "0", 1) == 1;

	if (fd >= 0)
		close(fd);
	return done;
}

/* This mount alone, not what is mounted below it; what else is forbidden there stays forbidden. */
static bool make_read_only(const char *path)
{
	unsigned long kept = ST_NOSUID | ST_NODEV | ST_NOEXEC | ST_NOATIME | ST_NODIRATIME;
	struct statvfs found;

	if (statvfs(path, &found) < 0)
		return false;
	kept &= found.f_flag;
	return mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | kept, NULL) == 0;
}

/* An ordinary user's jail was mounted by a namespace outside this one: only a copy of the mounts is ours to change. */
static bool make_view_read_only(void)
{
	if (!make_read_only("/") && (errno != EPERM || unshare(CLONE_NEWNS) < 0 || !make_read_only("/")))
		return false;
	return make_read_only("/dev");
}

static void keep_capabilities(uint32_t kept)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2] = {{kept, kept, 0}, {0, 0, 0}};

	syscall(SYS_capset, &header, data);
}

const char *prepare_jail(void)
{
	if (getpid() != 1)
		return "no jail: the guard is not the first process of a process namespace";
	if (!forbid_user_namespaces())
		return "no jail: user namespaces cannot be forbidden";
	if (!make_view_read_only())
		return "no jail: the guard may not make its own file system read-only";
	keep_capabilities((1u << CAP_SYS_ADMIN) | (1u << CAP_SETPCAP));
	return NULL;
}
