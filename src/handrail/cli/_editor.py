"""Let the person change a text in their own editor."""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from handrail.threads import Work

FALLBACKS: Final = ("editor", "nano", "vim", "vi")


async def edit_text(text: str) -> str | None:
    """The text as the person left it; None where no editor can be started.

    An editor that fails, as `:cq` does in vi, changes nothing. A cancelled caller ends the editor.
    """
    editing = _Editing(text)
    try:
        edited: str | None = await Work(editing.run).wait()
        return edited
    finally:
        editing.stop()


class _Editing:
    """One editor on one file, in a directory that only this user may enter."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> str | None:
        with tempfile.TemporaryDirectory(prefix="handrail-") as directory:
            path = Path(directory, "arguments.json")
            path.write_text(self._text, encoding="utf-8", errors="surrogatepass")
            for argv in _editors():
                try:
                    self._process = subprocess.Popen([*argv, str(path)])
                except OSError:
                    continue
                changed = self._process.wait() == 0
                return path.read_text(encoding="utf-8", errors="replace") if changed else self._text
        return None

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()


def _editors() -> Iterator[list[str]]:
    """The commands to try: the person's own, then what most systems have."""
    for name in ("VISUAL", "EDITOR"):
        try:
            argv = shlex.split(os.environ.get(name, ""))
        except ValueError:
            continue
        if argv:
            yield argv
    for name in FALLBACKS:
        if found := shutil.which(name):
            yield [found]
