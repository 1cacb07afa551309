"""The program that an interpreter in the sandbox is given: the `_inside_` files, compiled and as text."""

from functools import cache
from importlib.util import MAGIC_NUMBER
from marshal import dumps
from pathlib import Path
from typing import Final

from handrail.script import _inside_channel, _inside_main, _inside_syntax, _inside_tools

PARTS: Final = (_inside_syntax, _inside_channel, _inside_tools, _inside_main)
# Read once, so that a command that changes these files later changes nothing for the scripts of this process.
SOURCES: Final = tuple(Path(str(part.__file__)).read_text(encoding="utf-8") for part in PARTS)
OWN: Final = [part.__name__ for part in PARTS]
# All parts run in the module __main__. It stands for each of them while they load, so that what they import of each
# other is found, and for none of them afterwards, so that a script finds no module of that name.
LOADER: Final = f"""
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
sys.modules.update(dict.fromkeys({OWN}, sys.modules["__main__"]))
for part in parts_given():
    exec(part)
for part in {OWN}:
    del sys.modules[part]
main()
"""
ARGV: Final = ("python3", "-I", "-u", "-c", LOADER)


@cache
def program() -> bytes:
    """The first frame for an interpreter: the program compiled, and as text for another version of Python.

    Compiling it in the sandbox would cost each interpreter memory, and time before it can take a script.
    """
    compiled = dumps([compile(source, "<string>", "exec", dont_inherit=True, optimize=2) for source in SOURCES])
    return MAGIC_NUMBER + (8 + len(compiled)).to_bytes(4, "big") + compiled + "\0".join(SOURCES).encode()
