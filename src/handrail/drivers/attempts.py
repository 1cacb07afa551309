"""Attempts of a self-test to break each guarantee, and the targets outside that they try to reach."""

import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Final

from handrail.contract.driver import Feature
from handrail.drivers.guard.sealed import runnable
from handrail.drivers.limit_table import TRIED_TOGETHER
from handrail.drivers.scratch import directory_outside, make_scratch, remove_scratch

METADATA: Final = "169.254.169.254"
"""Address at which clouds serve a machine's credentials. Attempts ask for a route to it, and send nothing."""
SETTING: Final = "/proc/sys/kernel/core_pattern"
SOCKET_DIRECTORY_MAX: Final = 60
"""Bytes of a path that leave room for a scratch directory and a socket below it: a socket's path has at most 107."""
CONTROL_WAIT: Final = 20.0
"""Seconds for the attempts that are made outside."""
VARIABLE: Final = "HANDRAIL_SELF_TEST"


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempted violation: its name in the guard's program, its argument, and the meaning of its success."""

    feature: Feature
    name: str
    argument: str
    meaning: str
    control: bool = True
    """Whether the attempt must succeed outside the sandbox; if it fails there too, it proves nothing."""


ATTEMPTS: Final = (
    Attempt("file_isolation", "read", "{secret}", "read a file outside"),
    Attempt("file_isolation", "unix", "{socket}", "connect to a socket that is a file outside"),
    Attempt("file_isolation", "make", "/usr/{token}", "make a file in /usr", control=False),
    Attempt("file_isolation", "make", "/{token}", "make a file in /", control=False),
    Attempt("file_isolation", "make", "/dev/{token}", "make a file in /dev", control=False),
    Attempt("file_isolation", "devices", "-", "find a device of this machine", control=False),
    Attempt("file_isolation", "linked-mounts", "-", "be given what is mounted outside later", control=False),
    Attempt("process_isolation", "see", "{backwards}", "see a process outside"),
    Attempt("process_isolation", "descriptors", "-", "hold a descriptor that nobody gave it", control=False),
    Attempt("network_isolation", "tcp", "{tcp}", "connect to a server on this machine"),
    Attempt("network_isolation", "udp", "{udp}", "send a datagram to this machine"),
    Attempt("network_isolation", "abstract", "{abstract}", "connect to an abstract socket of this machine"),
    Attempt("network_isolation", "route", METADATA, "find a way to the metadata address", control=False),
    Attempt("network_isolation", "vsock", "-", "make a socket to the machine below", control=False),
    Attempt("no_privileges", "new-privileges", "-", "gain privileges by running a program"),
    Attempt("no_privileges", "ptrace", "-", "have a process traced"),
    Attempt("no_privileges", "keyring", "-", "use the kernel's keyrings"),
    Attempt("no_privileges", "setuid-open", "{inside}/{token}", "make a setuid file"),
    Attempt("no_privileges", "setuid-chmod", "{inside}/{token}", "make a file setuid"),
    Attempt("no_privileges", "capabilities", "-", "hold a capability", control=False),
    Attempt("no_privileges", "user-namespace", "-", "make a user namespace", control=False),
    Attempt("no_privileges", "io-uring", "-", "use io_uring", control=False),
    Attempt("no_privileges", "mount", "{inside}", "mount something", control=False),
    Attempt("no_privileges", "device", "{inside}/{token}", "make a device", control=False),
    Attempt("no_privileges", "terminal", "-", "type into a terminal", control=False),
    Attempt("no_privileges", "bpf", "-", "load something into the kernel", control=False),
    Attempt("no_privileges", "setting", SETTING, "change a setting of the kernel", control=False),
    *(Attempt(row.feature, *attempt, control=False) for row in TRIED_TOGETHER for attempt in row.attempts),
)


@dataclass(frozen=True, slots=True)
class Tried:
    """Results of attempts, in their order: whether each succeeded, and the error that refused it."""

    reached: tuple[bool, ...]
    refusals: tuple[str, ...]
    variables: tuple[str, ...]
    """The names of the variables in the environment of the attempts."""


class NotAttempted(Exception):
    """The attempts did not run, or only some of them."""


def arguments(attempts: Sequence[Attempt], values: Mapping[str, str]) -> list[str]:
    """The arguments with which the guard's program makes these attempts, and prints its environment."""
    pairs = [part for attempt in attempts for part in (attempt.name, attempt.argument.format_map(values))]
    return ["--attempt", *pairs, "environment", "-"]


def read_tried(output: bytes, attempts: Sequence[Attempt]) -> Tried:
    """Parse the program's output. Raises NotAttempted unless each attempt was made."""
    lines = output.decode("utf-8", "replace").splitlines()
    if lines[:1] != ["STARTED"] or lines[-1] != "ENDED":
        raise NotAttempted(f"the attempts did not run: {' '.join(lines[:3])[:200]!r}")
    parts = [line.split("\t") for line in lines[1:-1]]
    tried = [part for part in parts if len(part) == 3 and part[1] in ("reached", "refused")]
    if [part[0] for part in tried[: len(attempts)]] != [attempt.name for attempt in attempts]:
        raise NotAttempted("not every attempt ran")
    variables = tuple(part[2] for part in parts if part[0] == "variable")
    return Tried(tuple(part[1] == "reached" for part in tried), tuple(part[2] for part in tried), variables)


def try_outside(attempts: Sequence[Attempt], values: Mapping[str, str]) -> Tried:
    """The control: the same program, beside this process. Raises NotAttempted when it cannot be run."""
    program, fds = runnable()
    argv = [program, *arguments(attempts, values)]
    env = {VARIABLE: "1"}
    try:
        ran = subprocess.run(argv, capture_output=True, timeout=CONTROL_WAIT, env=env, pass_fds=fds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAttempted(f"the control did not run: {error}") from None
    return read_tried(ran.stdout, attempts)


@contextmanager
def targets_outside(visible: Sequence[str]) -> Iterator[dict[str, str]]:
    """A secret file, listening sockets and a process, none of them below `visible`; gives their names."""
    token, mark = f"handrail-{token_hex(8)}", token_hex(16)
    with ExitStack() as stack:
        directory = make_scratch(directory_outside(visible, longest=SOCKET_DIRECTORY_MAX))
        stack.callback(remove_scratch, directory)
        secret = Path(directory, "secret")
        secret.write_text(token, encoding="utf-8")
        stack.enter_context(_bystander(mark))
        values = {"secret": str(secret), "token": f".{token}", "backwards": mark[::-1], "abstract": token}
        values["socket"] = f"{directory}/s"
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        values |= {"tcp": str(tcp.getsockname()[1]), "udp": str(udp.getsockname()[1])}
        for address in (values["socket"], f"\0{token}"):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen()
        yield values


@contextmanager
def _bystander(mark: str) -> Iterator[None]:
    """A process with this mark among its arguments."""
    program, fds = runnable()
    argv, pipe = [program, "--attempt", "stay", mark], subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, env={}, pass_fds=fds, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
