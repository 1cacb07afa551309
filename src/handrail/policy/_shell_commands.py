"""Commands that run other commands: find those in their words, and in the texts that they give to a shell."""

import re
from collections.abc import Iterator
from itertools import dropwhile
from typing import Final

from handrail.policy._shell_line import UNKNOWN, Command

_SHELLS: Final = "bash sh dash ash zsh ksh mksh oksh lksh yash posh rbash bash-static csh tcsh fish busybox toybox"
SHELLS: Final = frozenset(_SHELLS.split())
"""Programs that read a text as commands: the word after `-c`, or their input."""
_EVALUATE: Final = "eval trap"
_WRAPPERS: Final = f"""
    {_SHELLS} {_EVALUATE} . source exec builtin command coproc enable fc bind complete compgen mapfile readarray alias
    env nice nohup setsid stdbuf timeout time xargs parallel sem watch entr script expect unbuffer
    sudo doas su sg newgrp runuser setpriv pkexec gosu su-exec capsh chroot unshare nsenter bwrap firejail fakeroot
    systemd-run start-stop-daemon tini dumb-init dbus-run-session dbus-launch xvfb-run cgexec catchsegv logsave
    flock ionice chrt taskset numactl prlimit setarch linux32 linux64 i386 i686 x86_64 run-parts strace ltrace perf
    gdb valgrind ssh dpkg-architecture uv npx
"""
WRAPPERS: Final = frozenset(_WRAPPERS.split())
"""Commands that run another command: their name does not tell what they do."""
_EVALUATING: Final = (
    "test [ printf read unset declare typeset local export readonly wait getopts let mapfile compgen set"
)
EVALUATING: Final = frozenset(_EVALUATING.split())
"""Shell commands that expand `$(…)` in their words themselves, whatever the quotes."""
_PLAIN: Final = """
    : true false echo cd pwd pushd popd dirs exit return break continue shift type umask ulimit kill sleep
    cat tac head tail less more nl wc cut paste tr uniq comm join fold fmt column expand rev seq factor
    ls dir stat file du df realpath readlink basename dirname which whereis mkdir rmdir touch cp mv ln rm unlink chmod
    chown chgrp truncate shred mktemp tee dd sync cmp diff diff3 patch md5sum sha1sum sha256sum b2sum cksum
    base64 od xxd hexdump strings date cal whoami id groups uname hostname uptime free ps pgrep pkill top
    grep egrep fgrep rg ag jq yq git hg svn docker podman kubectl helm npm pnpm yarn pip pip3 conda brew apt-cache
    gh cargo rustup go man info apropos pytest ruff mypy black isort tsc eslint prettier curl wget ping dig nslookup
"""
PLAIN: Final = frozenset(_PLAIN.split())
"""Common commands whose words are no commands of the shell, such as `git rm FILE`, `docker rm NAME`, `grep rm FILE`."""
_APPENDS: Final = frozenset({"xargs", "parallel", "sem", "find"})
"""Wrappers that give the command words of their own."""
RUNS_OTHERS: Final = {
    "find": frozenset({"-exec", "-execdir", "-ok", "-okdir"}),
    **dict.fromkeys(("npm", "pnpm", "yarn"), frozenset({"exec", "x", "dlx"})),
    "conda": frozenset({"run"}),
}
"""Commands that run another one only with these words."""
_START_SHELLS: Final = {
    **dict.fromkeys(("unshare", "nsenter", "fakeroot", "capsh", "parallel"), 0),
    **dict.fromkeys(("linux32", "linux64", "i386", "i686", "x86_64"), 0),
    **dict.fromkeys(("su", "runuser", "newgrp", "sg", "chroot", "setarch", "script", "ssh"), 1),
}
"""Wrappers that read commands from their input when they have no more words than these, options not counted."""
_ASKS_FOR_SHELL: Final = re.compile(r"-[A-Za-z]*[si][A-Za-z]*|--shell|--login")
"""The options with which `sudo` and `doas` start a shell."""
_LOADER: Final = re.compile(r"ld(-linux.*|-musl.*)?\.so.*")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[.*\])?\+?=.*", re.DOTALL)
_INPUT: Final = frozenset({"-", "-s", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
"""Words with which a shell, or `source`, reads its input."""
MAX_INNER_COUNT: Final = 50
"""Number of commands that are looked for in the words of one."""
_NUMBER: Final = re.compile(r"[0-9][0-9.,a-fx]*[smhd%]?")


def file_name(word: str) -> str:
    """The last part of a path: `/bin/rm` is `rm`."""
    return word.rpartition("/")[2]


def runs_others(command: Command) -> bool:
    """Whether a command runs others that stand in its words."""
    name = file_name(command.words[0]) if command.words else ""
    wanted = RUNS_OTHERS.get(name)
    if wanted is not None:
        return not wanted.isdisjoint(command.words)
    return name in WRAPPERS or _LOADER.fullmatch(name) is not None


def inner_commands(command: Command) -> Iterator[tuple[str, ...]]:
    """The words of each command that a wrapper may run: those after its options, and those that begin with a shell.

    An option's value may be taken for the command, as in `env -u X sh -c …`, so every shell and wrapper counts.
    """
    name, words = file_name(command.words[0]), command.words[1:]
    found = RUNS_OTHERS.get(name)
    starts = [0] if found is None else [at + 1 for at, word in enumerate(words) if word in found]
    starts += [at for at, word in enumerate(words) if file_name(word) in WRAPPERS or file_name(word) in RUNS_OTHERS]
    for start in dict.fromkeys(starts[:MAX_INNER_COUNT]):
        if inner := tuple(dropwhile(_is_option, words[start:])):
            yield (*inner, UNKNOWN) if name in _APPENDS else inner


def _is_option(word: str) -> bool:
    return word.startswith(("-", "+")) or bool(_ASSIGNMENT.fullmatch(word) or _NUMBER.fullmatch(word))


def shell_texts(command: Command) -> Iterator[str]:
    """The texts that a command gives to a shell; UNKNOWN where one is not known."""
    name = file_name(command.words[0]) if command.words else ""
    words = command.words[1:]
    if name == "eval":
        yield UNKNOWN if any(UNKNOWN in word for word in words) else " ".join(words)
    elif name == "trap":
        yield from [word for word in words if not word.startswith("-")][:1]
    elif name in (".", "source"):
        yield from (word for word in words[:1] if UNKNOWN in word)
        if not _INPUT.isdisjoint(words):
            yield UNKNOWN if command.fed is None else command.fed
    elif name in SHELLS:
        yield from _given_to_shell(command, words)
    elif (command.piped or command.fed is not None) and _starts_shell(name, words):
        yield UNKNOWN if command.fed is None else command.fed


def _starts_shell(name: str, words: tuple[str, ...]) -> bool:
    """Whether a wrapper without a command to run starts a shell, which reads what the wrapper is given."""
    if name in ("sudo", "doas"):
        return any(_ASKS_FOR_SHELL.fullmatch(word) for word in words)
    return name in _START_SHELLS and sum(not _is_option(word) for word in words) <= _START_SHELLS[name]


def _given_to_shell(command: Command, words: tuple[str, ...]) -> Iterator[str]:
    """The texts after `-c`, which may stand behind the values of other options; and what the shell reads."""
    at = next((at for at, word in enumerate(words) if re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", word)), None)
    given = [word for word in words[0 if at is None else at + 1 :] if not word.startswith(("-", "+"))]
    if at is not None:
        yield from given
    elif given and UNKNOWN in given[0]:
        yield UNKNOWN
    if command.fed is not None:
        yield command.fed
    elif command.piped and at is None and (not given or not _INPUT.isdisjoint(words)):
        yield UNKNOWN


def possible_texts(command: Command) -> Iterator[str]:
    """Words of a command that is not known which may be a line for a shell: `--filter='rm x'`, `-TT 'rm x'`."""
    if not command.words or file_name(command.words[0]) in PLAIN:
        return
    for word in command.words[1:]:
        for text in {word, *_after_equals(word), *_after_letters(word)}:
            if " " in text:
                yield text.lstrip("!( ")


def _after_equals(word: str) -> Iterator[str]:
    rest = word
    while "=" in rest:
        rest = rest.partition("=")[2]
        yield rest


def _after_letters(word: str) -> Iterator[str]:
    """Possible values of an option that stand directly behind its letter: `-S'rm x'`, `-qc'rm x'`."""
    letters = re.match(r"-[A-Za-z]{1,8}", word)
    for at in range(2, letters.end() + 1 if letters else 0):
        yield word[at:]


def evaluates_texts(command: Command) -> bool:
    """Whether the shell expands a quoted word of the command itself, and so may run commands that no parser sees."""
    name = command.words[0] if command.words else ""
    return name in EVALUATING and any("$(" in word or "`" in word or "${" in word for word in command.words)
