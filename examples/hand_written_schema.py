"""A tool with a schema of one's own, a body that reports while it works, and a reader that watches."""

from collections.abc import Mapping
from typing import Any

from handrail import Context, Event, Failure, Session, Tool, ToolFailed, run_sync

NOTES = {"shopping": "milk, bread", "ideas": "a handrail"}


async def read_note(context: Context, arguments: Mapping[str, Any]) -> str:
    title = arguments["title"]
    context.show(f"looking for {title}")
    if title not in NOTES:
        raise ToolFailed(Failure("not_found", f"There is no note {title!r}; there are {', '.join(sorted(NOTES))}."))
    return NOTES[title]


note = Tool(
    "read_note",
    {"type": "object", "properties": {"title": {"type": "string", "minLength": 1}}, "required": ["title"]},
    read_note,
    description="Read a note.",
    effects=["reads"],
    timeout=5,
)


def watch(event: Event) -> None:
    print(event.seq, event.type, event.data.get("text") or event.data.get("kind") or "")


async def main() -> None:
    async with Session([note], readers=[watch]) as session:
        results = [await session.call("read_note", {"title": title}) for title in ("ideas", "secrets")]
    print([result.value if result.ok else result.message for result in results])


run_sync(main)
# > 0 session_started
# > 1 call_started
# > 2 call_running
# > 3 call_output looking for ideas
# > 4 call_ended
# > 5 call_started
# > 6 call_running
# > 7 call_output looking for secrets
# > 8 call_ended not_found
# > ['a handrail', "There is no note 'secrets'; there are ideas, shopping."]
