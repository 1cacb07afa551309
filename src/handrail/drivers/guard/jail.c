/* Makes sure that this is a jail before anything runs in it, and closes the ways out that need no command to be there. */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Written through a fresh proc, in namespaces like a command's: this shows too that they can be had. It answers through
   a pipe, because the end of a namespace takes longer than all the rest. */
_Noreturn static void forbid_user_namespaces(int answer)
{
	int fd = -1;

	if (mount("proc", "/proc", "proc", 0, NULL) == 0)
		fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "0", 1) == 1 && write(answer, "y", 1) == 1)
		_exit(0);
	_exit(1);
}

static void keep_capabilities(uint32_t kept)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2] = {{kept, kept, 0}, {0, 0, 0}};

	syscall(SYS_capset, &header, data);
}

const char *prepare_jail(void)
{
	int ends[2];
	char answer = 0;
	pid_t pid;

	if (getpid() != 1)
		return "no jail: the guard is not the first process of a process namespace";
	if (pipe2(ends, O_CLOEXEC) < 0)
		return "no jail: the guard may not open a pipe";
	pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		forbid_user_namespaces(ends[1]);
	close(ends[1]);
	if (pid < 0)
		return "no jail: the guard may not make namespaces";
	if (read(ends[0], &answer, 1) != 1 || answer != 'y')
		return "no jail: /proc cannot be mounted, or user namespaces cannot be forbidden";
	close(ends[0]);
	keep_capabilities((1u << CAP_SYS_ADMIN) | (1u << CAP_SETPCAP));
	return NULL;
}
