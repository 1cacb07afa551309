"""Show a command's output while it comes, in whole characters."""

from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import get_args

from handrail.contract.driver import Chunk, StreamName
from handrail.toolkit.context import Context


def watcher(context: Context) -> Callable[[Chunk], None]:
    """A callback for `on_output` that shows each chunk to the readers of the call."""
    # A chunk may end inside a character: each stream keeps the bytes of it for its next chunk.
    decoders = {name: getincrementaldecoder("utf-8")("replace") for name in get_args(StreamName)}

    def show(chunk: Chunk) -> None:
        if text := decoders[chunk.stream].decode(chunk.data):
            context.show(text, stream=chunk.stream)

    return show
