"""Give a command's two streams as text, and keep the whole of one that was cut where the model can read it."""

from functools import partial
from typing import Any

from handrail.artifacts.keep import keep_stream
from handrail.contract.driver import StreamName
from handrail.sandbox.completed import Completed
from handrail.toolkit.context import Context

MARK = " characters left out]"


async def streams(context: Context, completed: Completed) -> dict[str, Any]:
    """`stdout` and `stderr`; where one lacks its middle, the mark in it names the artifact that has everything."""
    texts = {"stdout": completed.stdout, "stderr": completed.stderr}
    if completed.truncated:
        for name in ("stdout", "stderr"):
            texts[name] = await _named(context, completed, name, texts[name])
    return texts


async def _named(context: Context, completed: Completed, stream: StreamName, text: str) -> str:
    before, mark, after = text.partition(MARK)
    if not mark:
        return text
    kept = await keep_stream(context.artifacts, partial(completed.spool.read, stream=stream), stream)
    return f"{before}{mark[:-1]}; full output: {kept.ref}]{after}"
