"""The code in the documents: `python -m tests.documents DIRECTORY` writes it there, where type checkers can read it.

The Python blocks of one page are one program, in their order. What a block prints stands in it as `#> ` lines; `…` in
such a line stands for any text. A comment before a block says why it is not run, or why it is not even code:

    <!-- not run: it needs a key -->
    <!-- not code: a list of signatures -->

A page that needs a framework says so with the name of its extra, and is run in an environment that has it:

    <!-- needs: langchain -->
"""

import re
import shutil
import subprocess
import symtable
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"(?:^[ ]*<!--[ ](?P<mark>not[ ]run|not[ ]code):[ ](?P<reason>.*?)[ ]-->\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w+).*\n(?P<text>(?:.*\n)*?)(?P=indent)```$",
    re.MULTILINE | re.VERBOSE,
)
NEEDS = re.compile(r"^<!-- needs: (\S+) -->$", re.MULTILINE)
BETWEEN = "\x1e"
"""Printed before each block, to tell apart what they print."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page. `line` is the one after its fence, from 1."""

    language: str
    text: str
    line: int
    mark: str = ""
    reason: str = ""

    @property
    def promised(self) -> list[str]:
        return [found.rstrip() for found in re.findall(r"^ *#>(?: (.*))?$", self.text, re.MULTILINE)]


def pages(root: Path = ROOT) -> list[Path]:
    """What users read: the README and everything in docs/."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def needs(page: Path) -> str:
    """The extra without which the page cannot be run; "" for most."""
    found = NEEDS.search(page.read_text(encoding="utf-8"))
    return found[1] if found else ""


def blocks(page: Path, *languages: str) -> list[Block]:
    return blocks_of(page.read_text(encoding="utf-8"), *languages)


def blocks_of(text: str, *languages: str) -> list[Block]:
    """The fenced blocks of a text, of a page or of a docstring."""
    found = []
    for match in BLOCK.finditer(text):
        if not languages or match["language"] in languages:
            indent = len(match["indent"])
            code = "".join(line[indent:] or "\n" for line in match["text"].splitlines(keepends=True))
            line = text.count("\n", 0, match.start("text")) + 1
            found.append(Block(match["language"], code, line, match["mark"] or "", match["reason"] or ""))
    return found


# Running


def program(page: Path) -> str:
    """The blocks of a page that are run, each at its own line, so that an error names the line of the page."""
    made = ""
    for block in _run(page):
        made += "\n" * (block.line - 2 - made.count("\n")) + f"print({BETWEEN!r})\n{block.text}"
    return made


def complaints(page: Path, directory: Path, python: Path | None = None) -> list[str]:
    """Run a page in a directory; tell what went wrong, and which block printed something else than it promises.

    Warnings are errors, except with another `python`, where they may be a framework's.
    """
    (directory / "page.py").write_text(program(page), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "page.py"] if python is None else [str(python), "page.py"],
        cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    if done.returncode:
        return [f"{page.name} ended with {done.returncode}: {done.stderr}"]
    printed = [part.splitlines()[1:] for part in done.stdout.split(BETWEEN)[1:]]
    return [
        f"{page.name}, line {block.line}: promised {block.promised}, printed {lines}"
        for block, lines in zip(_run(page), printed, strict=True)
        if not keeps(block.promised, [line.rstrip() for line in lines])
    ]


def _run(page: Path) -> list[Block]:
    return [block for block in blocks(page, "python") if not block.mark]


def keeps(promised: list[str], printed: list[str]) -> bool:
    """Whether the printed lines are the promised ones; `…` in a promise is any text."""
    if len(promised) != len(printed):
        return False
    patterns = (re.escape(line).replace("…", ".*") for line in promised)
    return all(re.fullmatch(pattern, line) for pattern, line in zip(patterns, printed, strict=True))


# For type checkers


def write_modules(directory: Path, root: Path = ROOT) -> list[Path]:
    """Write a module for each block, with the earlier blocks of its page whose names it uses before it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    made = []
    for page in (each for each in pages(root) if not needs(each)):
        code = [block for block in blocks(page, "python") if block.mark != "not code"]
        texts = [block.text for block in code]
        stem = re.sub(r"\W", "_", str(page.relative_to(root).with_suffix("")))
        for number, block in enumerate(code):
            needed = [texts[each] for each in _needed(texts, number)]
            made.append(directory / f"{stem}_line_{block.line}.py")
            made[-1].write_text("\n".join([*needed, block.text]), encoding="utf-8")
    return made


def _needed(texts: list[str], number: int) -> list[int]:
    """The earlier blocks that define what this one uses, and what those use."""
    needed: set[int] = set()
    waiting = [number]
    while waiting:
        each = waiting.pop()
        for name in used(texts[each]) - defined(texts[each]):
            by = next((at for at in range(each - 1, -1, -1) if name in defined(texts[at])), None)
            if by is not None and by not in needed:
                needed.add(by)
                waiting.append(by)
    return sorted(needed)


def used(text: str) -> set[str]:
    """The names that a block takes from outside its functions."""
    names: set[str] = set()
    waiting = [symtable.symtable(text, "block", "exec")]
    while waiting:
        scope = waiting.pop()
        waiting += scope.get_children()
        outer = scope.get_type() == "module"
        names |= {
            each.get_name() for each in scope.get_symbols() if each.is_referenced() and (outer or each.is_global())
        }
    return names


def defined(text: str) -> set[str]:
    """The names that a block binds outside its functions."""
    found = symtable.symtable(text, "block", "exec").get_symbols()
    return {each.get_name() for each in found if each.is_assigned() or each.is_imported()}


if __name__ == "__main__":
    write_modules(Path(sys.argv[1]))
