/* The system calls a payload may not make: what gives privileges, reaches other processes, or opens up the kernel. */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#else
#error "the filter knows x86_64 and aarch64 only"
#endif

#define X32_BIT 0x40000000
#define ANY_NAMESPACE (0x7e020000u | 0x80u)
#define SPECIAL_MODE (S_ISUID | S_ISGID)
#define CREATES (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))
#define ANSWER(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define LOAD_NUMBER LOAD(nr)
#define SAME(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define ANY_BIT(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, value, yes, no)

/* A call refused outright. */
#define REFUSE(number, error) SAME(number, 0, 1), ANSWER(error)
/* A call refused when an argument has one of these bits. */
#define REFUSE_BITS(number, which, bits) \
	SAME(number, 0, 4), LOAD(args[which]), ANY_BIT(bits, 0, 1), ANSWER(EPERM), LOAD_NUMBER
/* A call refused when an argument is this. */
#define REFUSE_VALUE(number, which, value) \
	SAME(number, 0, 4), LOAD(args[which]), SAME(value, 0, 1), ANSWER(EPERM), LOAD_NUMBER
/* A call that creates a file, refused when the mode is special. */
#define REFUSE_CREATION(number, flags, mode) \
	SAME(number, 0, 6), LOAD(args[flags]), ANY_BIT(CREATES, 0, 3), LOAD(args[mode]), ANY_BIT(SPECIAL_MODE, 0, 1), \
	ANSWER(EPERM), LOAD_NUMBER
/* A call that makes a node: no devices, no special modes. */
#define REFUSE_NODE(number, mode) \
	SAME(number, 0, 8), LOAD(args[mode]), ANY_BIT(SPECIAL_MODE, 4, 0), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, S_IFMT), \
	SAME(S_IFCHR, 2, 0), SAME(S_IFBLK, 1, 0), BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0), ANSWER(EPERM), LOAD_NUMBER

/* Sockets of other kinds are in no network namespace, or open up the kernel. */
#define ONLY_FAMILIES(number) \
	SAME(number, 0, 7), LOAD(args[0]), SAME(AF_UNIX, 4, 0), SAME(AF_INET, 3, 0), SAME(AF_INET6, 2, 0), \
	SAME(AF_NETLINK, 1, 0), ANSWER(EAFNOSUPPORT), LOAD_NUMBER

/* Numbers newer than some headers. */
enum { CALL_IO_URING_SETUP = 425, CALL_CLONE3 = 435, CALL_OPENAT2 = 437, CALL_PIDFD_GETFD = 438 };
enum { CALL_MOUNT_SETATTR = 442, CALL_QUOTACTL_FD = 443, CALL_FCHMODAT2 = 452, CALL_OPEN_TREE_ATTR = 467 };

static const struct sock_filter filter[] = {
	LOAD(arch),
	SAME(OUR_ARCH, 1, 0),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	LOAD_NUMBER,
#if defined(__x86_64__)
	BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1),
	ANSWER(ENOSYS),
	REFUSE_CREATION(__NR_open, 1, 2),
	REFUSE_BITS(__NR_creat, 1, SPECIAL_MODE),
	REFUSE_BITS(__NR_mkdir, 1, SPECIAL_MODE),
	REFUSE_BITS(__NR_chmod, 1, SPECIAL_MODE),
	REFUSE_NODE(__NR_mknod, 1),
	REFUSE(__NR_iopl, EPERM),
	REFUSE(__NR_ioperm, EPERM),
	REFUSE(__NR_modify_ldt, EPERM),
	REFUSE(__NR_uselib, EPERM),
	REFUSE(__NR__sysctl, EPERM),
#endif
	REFUSE(CALL_CLONE3, ENOSYS),            /* its arguments are in memory, where a filter cannot see them */
	REFUSE(CALL_OPENAT2, ENOSYS),
	REFUSE(CALL_IO_URING_SETUP, ENOSYS),
	REFUSE(CALL_IO_URING_SETUP + 1, ENOSYS),
	REFUSE(CALL_IO_URING_SETUP + 2, ENOSYS),
	REFUSE_CREATION(__NR_openat, 2, 3),
	REFUSE_BITS(__NR_mkdirat, 2, SPECIAL_MODE),
	REFUSE_BITS(__NR_fchmod, 1, SPECIAL_MODE),
	REFUSE_BITS(__NR_fchmodat, 2, SPECIAL_MODE),
	REFUSE_BITS(CALL_FCHMODAT2, 2, SPECIAL_MODE),
	REFUSE_NODE(__NR_mknodat, 2),
	REFUSE_BITS(__NR_clone, 0, ANY_NAMESPACE & ~0xffu),
	REFUSE_BITS(__NR_unshare, 0, ANY_NAMESPACE),
	REFUSE(__NR_setns, EPERM),
	ONLY_FAMILIES(__NR_socket),
	REFUSE_VALUE(__NR_ioctl, 1, TIOCSTI),
	REFUSE_VALUE(__NR_ioctl, 1, TIOCLINUX),
	REFUSE(__NR_ptrace, EPERM),
	REFUSE(__NR_process_vm_readv, EPERM),
	REFUSE(__NR_process_vm_writev, EPERM),
	REFUSE(__NR_kcmp, EPERM),
	REFUSE(CALL_PIDFD_GETFD, EPERM),
	REFUSE(__NR_add_key, EPERM),
	REFUSE(__NR_request_key, EPERM),
	REFUSE(__NR_keyctl, EPERM),
	REFUSE(__NR_bpf, EPERM),
	REFUSE(__NR_perf_event_open, EPERM),
	REFUSE(__NR_userfaultfd, EPERM),
	REFUSE(__NR_fanotify_init, EPERM),
	REFUSE(__NR_open_by_handle_at, EPERM),
	REFUSE(__NR_mount, EPERM),
	REFUSE(__NR_umount2, EPERM),
	REFUSE(__NR_pivot_root, EPERM),
	REFUSE(__NR_chroot, EPERM),
	REFUSE(__NR_move_mount, EPERM),
	REFUSE(__NR_open_tree, EPERM),
	REFUSE(__NR_fsopen, EPERM),
	REFUSE(__NR_fsconfig, EPERM),
	REFUSE(__NR_fsmount, EPERM),
	REFUSE(__NR_fspick, EPERM),
	REFUSE(CALL_MOUNT_SETATTR, EPERM),
	REFUSE(CALL_OPEN_TREE_ATTR, EPERM),
	REFUSE(__NR_init_module, EPERM),
	REFUSE(__NR_finit_module, EPERM),
	REFUSE(__NR_delete_module, EPERM),
	REFUSE(__NR_kexec_load, EPERM),
	REFUSE(__NR_kexec_file_load, EPERM),
	REFUSE(__NR_reboot, EPERM),
	REFUSE(__NR_swapon, EPERM),
	REFUSE(__NR_swapoff, EPERM),
	REFUSE(__NR_acct, EPERM),
	REFUSE(__NR_quotactl, EPERM),
	REFUSE(CALL_QUOTACTL_FD, EPERM),
	REFUSE(__NR_syslog, EPERM),
	REFUSE(__NR_vhangup, EPERM),
	REFUSE(__NR_lookup_dcookie, EPERM),
	REFUSE(__NR_nfsservctl, EPERM),
	REFUSE(__NR_settimeofday, EPERM),
	REFUSE(__NR_clock_settime, EPERM),
	REFUSE(__NR_sethostname, EPERM),
	REFUSE(__NR_setdomainname, EPERM),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

int install_filter(void)
{
	struct sock_fprog program = {sizeof filter / sizeof *filter, (struct sock_filter *)(uintptr_t)filter};

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}
