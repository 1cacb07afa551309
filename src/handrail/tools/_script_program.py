"""The program that an interpreter in the sandbox is given. To compile it there would take memory and time."""

from functools import cache
from importlib.util import MAGIC_NUMBER
from marshal import dumps
from pathlib import Path
from typing import Final

from handrail.tools import _script_channel, _script_child, _script_syntax

PARTS: Final = (_script_syntax, _script_channel, _script_child)
SOURCES: Final = tuple(Path(str(part.__file__)).read_text(encoding="utf-8") for part in PARTS)
"""As they were when this process first needed them: a command that changes the files changes nothing here."""
OWN: Final = [part.__name__ for part in PARTS]
RUN: Final = f"""
import marshal, os, sys
def some_bytes(size):
    data = b""
    while len(data) < size:
        data += os.read(0, size - len(data)) or sys.exit()
    return data
def parts_given():
    data = some_bytes(int.from_bytes(some_bytes(4), "big"))
    end = int.from_bytes(data[4:8], "big")
    here = sys.modules.get("_frozen_importlib_external")
    is_same = data[:4] == getattr(here, "MAGIC_NUMBER", None)
    return marshal.loads(data[8:end]) if is_same else data[end:].decode().split(chr(0))
sys.modules.update(dict.fromkeys({OWN}, sys.modules["__main__"]))  # where they find what they import of each other
for part in parts_given():
    exec(part)
for part in {OWN}:
    del sys.modules[part]
main()
"""
ARGV: Final = ("python3", "-I", "-u", "-c", RUN)


@cache
def program() -> bytes:
    """The first frame that such an interpreter gets: compiled, and as text for another version of Python."""
    compiled = dumps([compile(source, "<string>", "exec", dont_inherit=True, optimize=2) for source in SOURCES])
    return MAGIC_NUMBER + (8 + len(compiled)).to_bytes(4, "big") + compiled + "\0".join(SOURCES).encode()
