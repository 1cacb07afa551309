"""Give a command's two streams as text, and keep the whole of one that was cut where the model can read it."""

import re
from functools import partial
from typing import Any, Final

from handrail.artifacts.keep import keep_stream
from handrail.contract.driver import StreamName
from handrail.sandbox.completed import Completed
from handrail.toolkit.context import Context

MARK: Final = re.compile(r"\n\[… ([\d,]+) of ([\d,]+) characters left out(?=\]\n)")


async def streams(context: Context, completed: Completed) -> dict[str, Any]:
    """`stdout` and `stderr`; where one lacks its middle, the mark in it names the artifact that has everything."""
    texts = {"stdout": completed.stdout, "stderr": completed.stderr}
    if completed.truncated:
        for name in ("stdout", "stderr"):
            texts[name] = await _named(context, completed, name, texts[name])
    return texts


async def _named(context: Context, completed: Completed, stream: StreamName, text: str) -> str:
    at = _mark(text)
    if at is None:
        return text
    kept = await keep_stream(context.artifacts, partial(completed.spool.read, stream=stream), stream)
    return f"{text[:at]}; full output: {kept.ref}{text[at:]}"


def _mark(text: str) -> int | None:
    """Where the mark's words end: of several, for a command may print such a line, the one whose numbers are right."""
    found = list(MARK.finditer(text))
    for mark in found:
        left_out, total = (int(number.replace(",", "")) for number in mark.groups())
        if total - left_out == len(text) - len(mark[0]) - len("]\n"):
            return mark.end()
    return found[0].end() if found else None
