"""The guard compiled with changes, and bubblewraps that do something else than they are told."""

import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from handrail.drivers.guard.build import FLAGS, HERE, compiler, sources
from handrail.drivers.jail import find_bubblewrap
from handrail.drivers.scratch import make_lasting_scratch

Edit = tuple[str, str, str]
"""A change of the guard: a file, a text in it, and its replacement."""
QUICK: Final = [flag for flag in FLAGS if not flag.startswith(("-W", "-O", "-D", "-U"))]
OTHER_GUARD: Final = """
at = words.index("--")
words[at:at] = ["--ro-bind", {other!r}, words[at+1]]
"""
READ_WORDS: Final = r"""import os, sys
words = sys.argv[1:]
if words[:1] == ["--args"]:
    with open(int(words[1]), "rb") as told:
        words[:2] = [os.fsdecode(word) for word in told.read().split(b"\0")[:-1]]
"""


@lru_cache(maxsize=1)
def careless_directory() -> Path:
    """Return a directory for files of broken drivers, which is removed when this process ends."""
    directory = Path(make_lasting_scratch())
    directory.chmod(0o755)
    for header in HERE.glob("*.h"):
        (directory / header.name).write_bytes(header.read_bytes())
    return directory


@lru_cache(maxsize=100)
def _object(file: str, text: str) -> str:
    """Compile a file of the guard."""
    name = careless_directory() / f"{Path(file).stem}-{abs(hash(text))}.c"
    name.write_text(text, encoding="utf-8")
    made = name.with_suffix(".o")
    subprocess.run([*compiler(), *QUICK, "-c", str(name), "-o", str(made)], check=True, cwd=careless_directory())
    return str(made)


@lru_cache(maxsize=100)
def careless_guard(*edits: Edit) -> str:
    """Compile the guard with changes; return the program's path."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources()}
    for file, old, new in edits:
        if texts[file].count(old) != 1:
            raise ValueError(f"{old!r} is not once in {file}")
        texts[file] = texts[file].replace(old, new)
    made = careless_directory() / f"guard-{abs(hash(edits))}"
    objects = [_object(file, text) for file, text in texts.items()]
    subprocess.run([*compiler(), *QUICK, *objects, "-o", str(made)], check=True)
    return str(made)


@lru_cache(maxsize=100)
def lying_bubblewrap(edit: str, **values: str) -> str:
    """Make a bubblewrap that changes its arguments first: those on its command line, and those read afterwards."""
    lines = "".join(f"    {line}\n" for line in edit.format(**values).strip().splitlines())
    text = f"#!{sys.executable} -IS\n{READ_WORDS}if len(words) > 1:\n{lines}"
    path = careless_directory() / f"bwrap-{abs(hash(text))}"
    path.write_text(text + f"os.execv({find_bubblewrap()!r}, ['bwrap', *words])\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def with_bubblewrap(edit: str, **values: str) -> Any:
    """Open the jail with such a bubblewrap."""
    return lambda options: {**options, "bubblewrap": lying_bubblewrap(edit, **values)}


def with_guard(*edits: Edit) -> Any:
    """Open the jail with a guard that was compiled with these changes."""
    return lambda options: {**options, "bubblewrap": lying_bubblewrap(OTHER_GUARD, other=careless_guard(*edits))}
