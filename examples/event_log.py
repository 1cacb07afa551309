"""An event log: a reader writes every event of a session to a file, one JSON object a line, and a query reads it."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from handrail import Event, Session, builtin_tools, open_sandbox, run_sync


class Log:
    """A reader gets each event. No call waits for it; if it fails, it is dropped with a warning."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, event: Event) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(event), default=str) + "\n")


async def main(path: Path) -> None:
    async with (
        open_sandbox() as sandbox,
        Session(builtin_tools(), sandbox=sandbox, readers=[Log(path)]) as session,
    ):
        await session.call("bash", {"command": "echo building; exit 3"})
        await session.call("bash", {"comand": "echo misspelt"})
        await session.call("read", '{"path": "nothing.txt"}')
    # leaving the block has shown every event to the readers


with tempfile.TemporaryDirectory() as directory:
    log = Path(directory, "events.jsonl")
    run_sync(main(log))
    for line in log.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        data = event["data"]
        print(event["seq"], event["type"], event["call_id"], data.get("kind") or data.get("text", "").strip() or "")
# > 0 session_started None
# > 1 call_started call_1
# > 2 call_running call_1
# > 3 call_output call_1 building
# > 4 call_ended call_1
# > 5 call_started call_2
# > 6 call_ended call_2 invalid_args
# > 7 call_started call_3
# > 8 call_running call_3
# > 9 call_ended call_3 not_found
