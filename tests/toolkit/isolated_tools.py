"""Tools that run in a process of their own, at the top of a module, where another process can import them."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handrail import Failure, ToolFailed, tool


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this")


@tool(isolate=True)
def where() -> dict[str, int]:
    """Tell which process this is."""
    return {"pid": os.getpid(), "group": os.getpgrp()}


@tool(isolate=True)
def surroundings() -> dict[str, Any]:
    """Tell what this process was given."""
    mask = os.umask(0)
    os.umask(mask)
    return {"environment": dict(os.environ), "directory": os.getcwd(), "path": sys.path, "umask": mask}


@tool(isolate=True)
def moved(point: Point, by: int = 1) -> Point:
    return Point(point.x + by, point.y)


@tool(isolate=True)
async def asked(n: int) -> int:
    return n + 1


@tool(isolate=True)
def chatty(lines: int) -> str:
    for line in range(lines):
        print("to stdout", line)
        print("to stderr", line, file=sys.stderr)
    return "quiet"


@tool(isolate=True, timeout=8)
def hangs(note: str) -> str:
    """Start a child, write both numbers down, and wait for ever."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    Path(note).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(60)
    return "never"


@tool(isolate=True)
def leaves_a_child(note: str) -> str:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    Path(note).write_text(f"{os.getpid()} {child.pid}")
    return "left"


@tool(isolate=True, timeout=30)
def flees(note: str, stays: bool) -> str:
    """Start a child that leaves the session and the group, and is nobody's child, and write its number down."""
    code = "import os, sys, time; os.setsid(); os.fork() and os._exit(0); "
    code += "open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", code, f"{note}.part"]).wait()
    while not os.path.exists(f"{note}.part") or not Path(f"{note}.part").read_text():
        time.sleep(0.01)
    Path(f"{note}.part").rename(note)
    time.sleep(600 if stays else 0)
    return "fled"


@tool(isolate=True)
def dies(code: int) -> str:
    print("last words", file=sys.stderr, flush=True)
    os._exit(code)


@tool(isolate=True, output_cap=200_000)
def ends(how: str) -> Any:
    """End in one of many ways."""
    if how == "raises":
        raise ValueError("inside")
    if how == "fails":
        raise ToolFailed(Failure("not_found", "not here", field="how", data={"n": 1}))
    if how == "exits":
        sys.exit(4)
    if how == "unpicklable":
        return lambda: None
    if how == "missing":
        return Path("/no/such/file").read_text()
    if how == "hostile":
        raise Hostile
    if how == "odd":
        raise OSError(5, lambda: None)
    return "x" * int(how)
