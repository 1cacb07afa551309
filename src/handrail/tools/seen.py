"""Remember which version of a file this session has seen, so that nobody's change is overwritten unseen."""

from handrail.contract.driver import FileStat
from handrail.toolkit.context import Context

Version = tuple[float, int]
_TOOL = "files"


def remember(context: Context, stat: FileStat) -> None:
    """This session has seen this version."""
    context.memory(_TOOL)[stat.real_path] = (stat.mtime, stat.size)


def changed_since_seen(context: Context, stat: FileStat) -> bool:
    """Whether the file is another than the one this session last saw; False for one it never saw."""
    seen: Version | None = context.memory(_TOOL).get(stat.real_path)
    return seen is not None and seen != (stat.mtime, stat.size)
