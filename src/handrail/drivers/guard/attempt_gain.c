/* Attempts to gain a privilege, or to change the kernel. */
#define _GNU_SOURCE
#include "attempt.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { IO_URING_SETUP = 425, RING_PARAMETERS = 512, KEEP_OPEN_MODE = 0600 };

static int capabilities(const char *argument)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};

	(void)argument;
	for (unsigned long number = 0; prctl(PR_CAPBSET_READ, number) >= 0; number++)
		if (prctl(PR_CAPBSET_READ, number) == 1)
			return 0;
	if (syscall(SYS_capget, &header, data) < 0)
		return 0;
	for (int i = 0; i < 2; i++)
		if (data[i].effective | data[i].permitted | data[i].inheritable)
			return 0;
	return EPERM;
}

static int new_privileges(const char *argument)
{
	(void)argument;
	return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? EPERM : 0;
}

static int user_namespace(const char *argument)
{
	(void)argument;
	return attempt_errno(unshare(CLONE_NEWUSER));
}

static int trace(const char *argument)
{
	(void)argument;
	return attempt_errno(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
}

static int keyring(const char *argument)
{
	(void)argument;
	return attempt_errno(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0));
}

static int ring(const char *argument)
{
	static char parameters[RING_PARAMETERS];

	(void)argument;
	return attempt_errno(syscall(IO_URING_SETUP, 1, parameters));
}

static int mount_something(const char *path)
{
	if (mount("none", path, "tmpfs", 0, NULL) < 0)
		return errno;
	umount(path);
	return 0;
}

static int device(const char *path)
{
	if (mknod(path, S_IFCHR | KEEP_OPEN_MODE, makedev(1, 3)) < 0)
		return errno;
	unlink(path);
	return 0;
}

static int set_uid(const char *path, mode_t at_first, mode_t later)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, at_first), error = 0;
	struct stat status = {0};

	if (fd < 0)
		return errno;
	if (later && fchmod(fd, later) < 0)
		error = errno;
	fstat(fd, &status);
	unlink(path);
	return status.st_mode & S_ISUID ? 0 : error ? error : EPERM;
}

static int set_uid_by_open(const char *path)
{
	return set_uid(path, 04755, 0);
}

static int set_uid_by_chmod(const char *path)
{
	return set_uid(path, 0755, 04755);
}

/* Types a letter into a terminal as if a person had typed it. */
static int type_letter(const char *argument)
{
	int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), unlocked = 0, slave;

	(void)argument;
	if (master < 0 || ioctl(master, TIOCSPTLCK, &unlocked) < 0)
		return errno;
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
	setsid();
	if (slave < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
		return errno;
	return attempt_errno(ioctl(slave, TIOCSTI, "x"));
}

static int kernel_program(const char *argument)
{
	union bpf_attr map = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};

	(void)argument;
	return attempt_errno(syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map));
}

/* Opens a setting of the kernel for writing, without writing it. */
static int setting(const char *path)
{
	return attempt_errno(open(path, O_WRONLY | O_CLOEXEC));
}

const struct attempt gaining[] = {
	{"capabilities", capabilities}, {"new-privileges", new_privileges}, {"user-namespace", user_namespace},
	{"ptrace", trace}, {"keyring", keyring}, {"io-uring", ring}, {"mount", mount_something}, {"device", device},
	{"setuid-open", set_uid_by_open}, {"setuid-chmod", set_uid_by_chmod}, {"terminal", type_letter},
	{"bpf", kernel_program}, {"setting", setting}, {NULL, NULL},
};
