/* The system calls a command may not make: those that give privileges, reach other processes, or attack the kernel.

   For each process with a filter the kernel computes the answer for every system call there is. So the filter is a
   search tree over the numbers of the calls: a list would cost as much as all the rest of starting a command. */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdlib.h>
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
#define SHARED_MAX (64 << 10)           /* bytes of one segment: its memory is not counted, and outlives its maker */
#define SCARCE_MAX (4 << 10)            /* the same where there may be 4,096 of them, and memory is watched */
#define CREATES (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))

/* When a call is refused: always; when an argument has one of these bits, equals a value, differs from it, or is at
   least as large; when it creates a file with a special mode (flags, then mode); when it makes a device, or a node
   with a special mode; when a socket is of another family than the usual ones: others are outside network
   namespaces, or rarely used parts of the kernel; when it makes memory that belongs to no process, which the watch over
   memory does not see, and there is such a watch. */
enum kind { ALWAYS, BITS, VALUE, OTHERS, FROM, CREATION, NODE, FAMILIES, UNCOUNTED };
struct rule {
	int number;
	enum kind kind;
	unsigned argument;
	uint32_t value;         /* the errno, for ALWAYS; 1 for UNCOUNTED if it may be made while there are few */
};
#define REFUSE(number, error) {number, ALWAYS, 0, error}
#define REFUSE_BITS(number, which, bits) {number, BITS, which, bits}
#define REFUSE_VALUE(number, which, value) {number, VALUE, which, value}
#define REFUSE_OTHERS(number, which, value) {number, OTHERS, which, value}
#define REFUSE_FROM(number, which, value) {number, FROM, which, value}
#define REFUSE_CREATION(number, flags) {number, CREATION, flags, 0}
#define REFUSE_NODE(number, mode) {number, NODE, mode, 0}
#define REFUSE_UNCOUNTED(number) {number, UNCOUNTED, 0, 0}
#define REFUSE_QUEUES(number) {number, UNCOUNTED, 0, 1}
#define ONLY_FAMILIES(number) {number, FAMILIES, 0, 0}

/* Numbers of system calls that are missing in old headers. */
enum { CALL_IO_URING_SETUP = 425, CALL_CLONE3 = 435, CALL_OPENAT2 = 437, CALL_PIDFD_GETFD = 438 };
enum { CALL_MOUNT_SETATTR = 442, CALL_QUOTACTL_FD = 443, CALL_MEMFD_SECRET = 447, CALL_FCHMODAT2 = 452, CALL_OPEN_TREE_ATTR = 467 };

static struct rule rules[] = {
#if defined(__x86_64__)
	REFUSE_CREATION(__NR_open, 1),
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
	REFUSE_CREATION(__NR_openat, 2),
	REFUSE_BITS(__NR_mkdirat, 2, SPECIAL_MODE),
	REFUSE_BITS(__NR_fchmod, 1, SPECIAL_MODE),
	REFUSE_BITS(__NR_fchmodat, 2, SPECIAL_MODE),
	REFUSE_BITS(CALL_FCHMODAT2, 2, SPECIAL_MODE),
	REFUSE_NODE(__NR_mknodat, 2),
	REFUSE_BITS(__NR_clone, 0, ANY_NAMESPACE & ~0xffu),
	REFUSE_BITS(__NR_unshare, 0, ANY_NAMESPACE),
	REFUSE(__NR_setns, EPERM),
	ONLY_FAMILIES(__NR_socket),
	ONLY_FAMILIES(__NR_socketpair),
	REFUSE_OTHERS(__NR_prlimit64, 0, 0),    /* of itself only: its supervisor runs as the same user */
	REFUSE_VALUE(__NR_ioctl, 1, TIOCSTI),
	REFUSE_VALUE(__NR_ioctl, 1, TIOCLINUX),
	REFUSE_FROM(__NR_shmget, 1, SHARED_MAX + 1),
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
	REFUSE_UNCOUNTED(__NR_memfd_create),
	REFUSE_UNCOUNTED(CALL_MEMFD_SECRET),
	REFUSE_QUEUES(__NR_msgget),
	REFUSE(__NR_sethostname, EPERM),
	REFUSE(__NR_setdomainname, EPERM),
};

enum { RULES = sizeof rules / sizeof *rules, LEAF = 5, ROOM = RULES * 16 };
static struct sock_filter program[ROOM];
static unsigned short size;

static void put(uint16_t code, uint32_t value, uint8_t yes, uint8_t no)
{
	program[size++] = (struct sock_filter){code, yes, no, value};
}

static void load(size_t at)
{
	put(BPF_LD | BPF_W | BPF_ABS, (uint32_t)at, 0, 0);
}

static void load_argument(unsigned which)
{
	load(offsetof(struct seccomp_data, args) + which * sizeof(uint64_t));
}

/* Jump over the next `skipped` instructions if the condition holds. */
static void when(uint16_t test, uint32_t value, uint8_t skipped)
{
	put(BPF_JMP | BPF_K | test, value, skipped, 0);
}

static void answer(uint32_t what)
{
	put(BPF_RET | BPF_K, what, 0, 0);
}

/* Allow only the first protocol of AF_NETLINK, about the own network: the others reveal the machine's processes. */
static void put_families(void)
{
	static const uint32_t families[] = {AF_UNIX, AF_INET, AF_INET6};

	load_argument(0);
	for (unsigned i = 0; i < 3; i++)
		when(BPF_JEQ, families[i], (uint8_t)(6 - i));
	put(BPF_JMP | BPF_K | BPF_JEQ, AF_NETLINK, 0, 2);
	load_argument(2);
	when(BPF_JEQ, NETLINK_ROUTE, 1);
}

static bool watched(void)
{
	return settings.limits[LIMIT_MEMORY] != NO_LIMIT;
}

static bool scarce(void)
{
	return watched() && !settings.few_segments;
}

static void put_rule(const struct rule *rule)
{
	uint32_t refused = SECCOMP_RET_ERRNO | (rule->kind == ALWAYS ? rule->value : EPERM);
	uint16_t test = rule->kind == VALUE ? BPF_JEQ : BPF_JSET;

	if (rule->kind == UNCOUNTED) {          /* as on a kernel without it: programs then use a file */
		refused = !watched() || (rule->value && settings.few_segments) ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | ENOSYS;
	} else if (rule->kind == FAMILIES) {
		put_families();
		refused = SECCOMP_RET_ERRNO | EAFNOSUPPORT;
	} else if (rule->kind == CREATION) {
		load_argument(rule->argument);
		put(BPF_JMP | BPF_K | BPF_JSET, CREATES, 0, 3);
		load_argument(rule->argument + 1);
		put(BPF_JMP | BPF_K | BPF_JSET, SPECIAL_MODE, 0, 1);
	} else if (rule->kind == NODE) {
		load_argument(rule->argument);
		when(BPF_JSET, SPECIAL_MODE, 3);
		put(BPF_ALU | BPF_AND | BPF_K, S_IFMT, 0, 0);
		when(BPF_JEQ, S_IFCHR, 1);
		put(BPF_JMP | BPF_K | BPF_JEQ, S_IFBLK, 0, 1);
	} else if (rule->kind == FROM) {        /* the upper half of the argument, then the lower */
		refused = SECCOMP_RET_ERRNO | EINVAL;
		load(offsetof(struct seccomp_data, args) + rule->argument * sizeof(uint64_t) + sizeof(uint32_t));
		put(BPF_JMP | BPF_K | BPF_JEQ, 0, 0, 2);
		load_argument(rule->argument);
		put(BPF_JMP | BPF_K | BPF_JGE, scarce() ? SCARCE_MAX + 1 : rule->value, 0, 1);
	} else if (rule->kind == OTHERS) {
		load_argument(rule->argument);
		when(BPF_JEQ, rule->value, 1);
	} else if (rule->kind != ALWAYS) {
		load_argument(rule->argument);
		put(BPF_JMP | BPF_K | test, rule->value, 0, 1);
	}
	answer(refused);
}

/* Find the rules for the loaded number among the sorted rules from `first` to `end`. */
static void put_rules(size_t first, size_t end)
{
	size_t middle = first + (end - first) / 2, jump;

	while (middle > first && rules[middle].number == rules[middle - 1].number)
		middle--;
	if (end - first > LEAF && middle > first) {
		put(BPF_JMP | BPF_K | BPF_JGE, (uint32_t)rules[middle].number, 0, 1);
		jump = size;
		put(BPF_JMP | BPF_JA, 0, 0, 0);
		put_rules(first, middle);
		program[jump].k = (uint32_t)(size - jump - 1);
		put_rules(middle, end);
		return;
	}
	while (first < end) {
		int number = rules[first].number;

		jump = size;
		put(BPF_JMP | BPF_K | BPF_JEQ, (uint32_t)number, 0, 0);
		for (; first < end && rules[first].number == number; first++)
			put_rule(&rules[first]);
		if (rules[first - 1].kind != ALWAYS && rules[first - 1].kind != UNCOUNTED)
			answer(SECCOMP_RET_ALLOW);
		program[jump].jf = (uint8_t)(size - jump - 1);
	}
	answer(SECCOMP_RET_ALLOW);
}

static int by_number(const void *a, const void *b)
{
	return ((const struct rule *)a)->number - ((const struct rule *)b)->number;
}

const struct sock_filter *make_filter(size_t *length)
{
	size = 0;
	qsort(rules, RULES, sizeof *rules, by_number);
	load(offsetof(struct seccomp_data, arch));
	when(BPF_JEQ, OUR_ARCH, 1);
	answer(SECCOMP_RET_KILL_PROCESS);
	load(offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
	put(BPF_JMP | BPF_K | BPF_JGE, X32_BIT, 0, 1);
	answer(SECCOMP_RET_ERRNO | ENOSYS);
#endif
	put_rules(0, RULES);
	*length = size;
	return program;
}

int install_filter(void)
{
	struct sock_fprog made = {size, program};

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &made, 0, 0);
}
