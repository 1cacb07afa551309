"""The page about the peers, made of what was found."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.peers.peers import BACKENDS, OURS, PEERS

Row = Sequence[str]
"""A check, what became of it (kept, broken, lacks, untried), and why."""
HEAD: Final = """# Other local backends in the kit

Frameworks for agents have local backends of their own. They were put through the same checks as our drivers by

```
python3 dev.py peers
```

which installs each in an environment of its own, wraps it as a [driver](drivers.md), and writes this page. The wrappers
are in `tests/peers/`. Most of these backends run a command to its end and then give its output; `run_to_end.py` makes a
driver of such a one. Most of them say themselves that they isolate nothing: the table shows what that means, and what
holds nevertheless.

A cell is *checks kept / checks tried*, as root on Linux. What the API of a backend cannot express, such as input for a
running command or the mode of a file, is not tried and not counted as broken: **–** stands where nothing could be
tried, and the lists below the table name the reasons. A command is ended in the way that the backend has for it: by its
time limit, or by cancelling the call that runs it.

Two checks look for calls that overlap: *a reader sees the old content or the new* and *of two writers one wins whole*.
A backend that writes in place fails them in nearly every run and may pass by luck: its cell of atomic_write may differ.
"""


def render(found: Mapping[str, Any]) -> str:
    """The whole page."""
    lines = [HEAD, *_table(found), ""]
    for name in PEERS:
        lines += _section(name, found[name])
    return "\n".join(lines)


def _table(found: Mapping[str, Any]) -> list[str]:
    names = [f"Handrail's {name}" if name in OURS else name for name in found]
    features = list(next(iter(found.values()))["promises"])
    lines = [f"| promise | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for feature in features:
        cells = [cell(each["promises"].get(feature, ())) for each in found.values()]
        lines.append(f"| {feature} | {' | '.join(cells)} |")
    versions = [f"{name} {found[name]['version']}" for name in PEERS]
    return [*lines, "", f"Versions: Handrail {found[OURS[0]]['version']}, {', '.join(versions)}."]


def cell(rows: Sequence[Row]) -> str:
    """How many of the checks that could be tried are kept."""
    tried = [end for _, end, _ in rows if end in ("kept", "broken")]
    return f"{tried.count('kept')} / {len(tried)}" if tried else "–"


def _section(name: str, found: Mapping[str, Any]) -> list[str]:
    rows = [(feature, *row) for feature, each in found["promises"].items() for row in each]
    reasons = Counter(why for _, _, end, why in rows if end == "lacks")
    lacks = "; ".join(f"{why} ({count})" for why, count in sorted(reasons.items(), key=lambda it: (-it[1], it[0])))
    lines = [f"## {name}: {BACKENDS[name]}", "", f"Not expressible (checks): {lacks}.", ""]
    for feature, each in found["promises"].items():
        ends = Counter(end for _, end, _ in each)
        if ends["broken"] and not ends["kept"]:
            lines.append(f"- {feature}: none of {ends['broken']} tried")
        elif ends["broken"]:
            lines.append(f"- {feature}, not kept: {'; '.join(check for check, end, _ in each if end == 'broken')}")
    return [*lines, ""]
