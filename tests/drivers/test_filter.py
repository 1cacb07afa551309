"""The filter of a jail answers for every system call and every argument as this list says, and nothing else."""

import errno
import stat
import struct
import subprocess
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.drivers.guard.build import HERE, compiler

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
X32 = 0x40000000
NAMESPACES = 0x7E020000
SPECIAL = stat.S_ISUID | stat.S_ISGID
CREATES = 0o100 | 0o20000000
REFUSED = [
    "iopl", "ioperm", "modify_ldt", "uselib", "_sysctl", "setns", "ptrace", "process_vm_readv", "process_vm_writev",
    "kcmp", "pidfd_getfd", "add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd",
    "fanotify_init", "open_by_handle_at", "mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree",
    "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "open_tree_attr", "init_module", "finit_module",
    "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct", "quotactl",
    "quotactl_fd", "syslog", "vhangup", "lookup_dcookie", "nfsservctl", "settimeofday", "clock_settime",
    "sethostname", "setdomainname",
]  # fmt: skip
UNKNOWN = ["clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register"]
MODES = {"creat": 1, "mkdir": 1, "chmod": 1, "mkdirat": 2, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
CREATIONS = {"open": 1, "openat": 2}
NODES = {"mknod": 1, "mknodat": 2}
SOCKETS = ["socket", "socketpair"]
OTHERS = ["clone", "unshare", "ioctl", "prlimit64", "shmget", *SOCKETS]
UNCOUNTED = ["memfd_create", "memfd_secret", "msgget"]
"""Refused while the guard watches memory: the watch does not see it."""
NAMES = [*REFUSED, *UNKNOWN, *UNCOUNTED, *MODES, *CREATIONS, *NODES, *OTHERS]
NEWER = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "clone3": 435, "openat2": 437,
    "pidfd_getfd": 438, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447, "fchmodat2": 452,
    "open_tree_attr": 467,
}  # fmt: skip
HARNESS = """
#include "guard.h"
#include <linux/filter.h>
#include <stdio.h>
#include <sys/syscall.h>
struct settings settings = {.limits = {[LIMIT_MEMORY] = MEMORY}};
int main(void)
{
	size_t length;
	const struct sock_filter *made = make_filter(&length);

	made = make_filter(&length); /* twice is as good as once */
	for (size_t i = 0; i < length; i++)
		printf("%u %u %u %u\\n", made[i].code, made[i].jt, made[i].jf, made[i].k);
	NUMBERS
}
"""

Instruction = tuple[int, int, int, int]


class Made:
    """The filter, and the numbers of the calls on this machine."""

    def __init__(self, program: list[Instruction], numbers: Mapping[str, int], watched: bool) -> None:
        self.program, self.numbers, self.watched = program, numbers, watched
        self.names = {number: name for name, number in numbers.items()}

    def answer(self, number: int, arguments: tuple[int, ...], arch: int) -> int:
        """As the kernel would run it."""
        data = struct.pack("<iIQ6Q", number, arch, 0, *arguments)
        at, value = 0, 0
        while True:
            code, yes, no, k = self.program[at]
            at += 1
            if code == 0x20:
                (value,) = struct.unpack_from("<I", data, k)
            elif code == 0x54:
                value &= k
            elif code == 0x05:
                at += k
            elif code == 0x06:
                return k
            else:
                tests = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}
                at += yes if tests[code] else no


@pytest.fixture(scope="module", params=[False, True], ids=["unwatched", "watched"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    place = tmp_path_factory.mktemp("filter")
    memory = "1 << 30" if request.param else "NO_LIMIT"
    lines = [f'#ifdef __NR_{name}\n\tprintf("{name} %d\\n", __NR_{name});\n#endif' for name in NAMES]
    (place / "harness.c").write_text(HARNESS.replace("NUMBERS", "\n".join(lines)).replace("= MEMORY", f"= {memory}"))
    program = place / "harness"
    words = [*compiler(), f"-I{HERE}", str(place / "harness.c"), str(HERE / "filter.c"), "-o", str(program)]
    subprocess.run(words, check=True)
    ran = subprocess.run([program], capture_output=True, text=True, check=True)
    said = [line.split() for line in ran.stdout.splitlines()]
    numbers = NEWER | {words[0]: int(words[1]) for words in said if len(words) == 2}
    program_lines = [(int(a), int(b), int(c), int(d)) for a, b, c, d in (x for x in said if len(x) == 4)]
    return Made(program_lines, numbers, request.param)


def expected(name: str | None, arguments: tuple[int, ...], watched: bool) -> int:
    """What should be answered, said without any filter."""
    low = [argument & 0xFFFFFFFF for argument in arguments]
    if name in REFUSED:
        return ERRNO | errno.EPERM
    if name in UNKNOWN or (watched and name in UNCOUNTED):
        return ERRNO | errno.ENOSYS
    if name in SOCKETS:
        return ALLOW if low[0] in (1, 2, 10) or (low[0], low[2]) == (16, 0) else ERRNO | errno.EAFNOSUPPORT
    if name == "shmget":
        return ERRNO | errno.EINVAL if arguments[1] > (4096 if watched else 65536) else ALLOW
    mode = low[MODES[name]] if name in MODES else 0
    if name in CREATIONS and low[CREATIONS[name]] & CREATES:
        mode = low[CREATIONS[name] + 1]
    if name in NODES:
        mode = low[NODES[name]]
        if stat.S_IFMT(mode) in (stat.S_IFCHR, stat.S_IFBLK):
            return ERRNO | errno.EPERM
    bad = bool(mode & SPECIAL)
    bad |= name == "clone" and bool(low[0] & NAMESPACES)
    bad |= name == "unshare" and bool(low[0] & (NAMESPACES | 0x80))
    bad |= name == "ioctl" and low[1] in (0x5412, 0x541C)
    bad |= name == "prlimit64" and low[0] != 0
    return ERRNO | errno.EPERM if bad else ALLOW


TELLING = [0, 1, 2, 3, 10, 16, 17, 40, 0o100, 0o2000, 0o4000, 0o644, 0o4755, 0o20000, 0o60000, 0o100000, 0x80, 0x5412,
           0x541C, 0x541B, 0x10000000, 0x40000000, 0o20000000, 65536, 65537, (1 << 32) | 0o4000,
           1 << 32, (1 << 64) - 1]  # fmt: skip
ARGUMENT = st.sampled_from(TELLING) | st.integers(0, (1 << 64) - 1)


def arch_of(made: Made) -> int:
    """The second instruction compares it."""
    return made.program[1][3]


def test_each_call_is_answered_as_the_list_says_whatever_its_arguments(made: Made) -> None:
    assert len(made.program) > 100, "the control: there is a filter"
    assert len(made.numbers) >= len(NAMES) - 12, "the control: the numbers are known"

    @settings(max_examples=30, deadline=None)
    @given(st.tuples(*[ARGUMENT] * 6))
    def law(arguments: tuple[int, ...]) -> None:
        for number in range(1024):
            found = made.answer(number, arguments, arch_of(made))
            assert found == expected(made.names.get(number), arguments, made.watched), (
                number,
                made.names.get(number),
                arguments,
            )

    law()


@pytest.mark.parametrize("name", [*MODES, *CREATIONS, *NODES, *OTHERS])
def test_a_call_that_may_be_made_in_part_is_answered_both_ways(made: Made, name: str) -> None:
    if name not in made.numbers:
        pytest.skip(f"this machine has no {name}")
    answers = set()
    for one in TELLING:
        for two in TELLING:
            for arguments in ((one, one, one, two, two, two), (one, two, two, one, one, one)):
                found = made.answer(made.numbers[name], arguments, arch_of(made))
                assert found == expected(name, arguments, made.watched)
                answers.add(found)
    assert len(answers) == 2, "the control: some are refused, and some are not"


@pytest.mark.parametrize("name", SOCKETS)
def test_of_netlink_only_what_tells_of_the_own_network_is_there(made: Made, name: str) -> None:
    answers = [made.answer(made.numbers[name], (16, 3, protocol, 0, 0, 0), arch_of(made)) for protocol in range(32)]
    assert answers == [ALLOW, *[ERRNO | errno.EAFNOSUPPORT] * 31], "the first is the control"


def test_calls_of_another_architecture_end_the_process_and_calls_of_x32_do_not_exist(made: Made) -> None:
    assert made.answer(0, (0,) * 6, arch_of(made) ^ 1) == KILL
    if arch_of(made) == 0xC000003E:
        assert {made.answer(X32 + number, (0,) * 6, arch_of(made)) for number in range(600)} == {ERRNO | errno.ENOSYS}


def test_no_call_takes_many_steps(made: Made) -> None:
    """The kernel tries every number when a command starts: with a list of them that was a tenth of the time."""

    def steps(number: int) -> int:
        at = count = 0
        while True:
            code, yes, no, k = made.program[at]
            at, count = at + 1, count + 1
            if code == 0x06 or (code == 0x20 and at > 4):
                return count
            if code == 0x05:
                at += k
            elif code in (0x15, 0x35):
                value = number if at > 4 else arch_of(made)
                at += yes if (value == k if code == 0x15 else value >= k) else no

    assert max(map(steps, range(600))) <= 30
