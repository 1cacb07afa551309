"""The loop of `handrail shell`: read a line, do what it says, show it; a line that cannot be read ends nothing."""

import os
import sys
import textwrap
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus
from rich.text import Text

from handrail.cli._app import INTERRUPTED, NOT_RUN, Options
from handrail.cli._argument_syntax import described, fields_of, lone_text, read_line
from handrail.cli._call_session import CallSession, open_call_session
from handrail.cli._prompt import BUILT_IN, typed_lines
from handrail.cli._result_view import job_line
from handrail.cli._signals import interrupts
from handrail.contract.errors import HandrailError
from handrail.policy.approval import visible
from handrail.sandbox.job import Job
from handrail.threads import Work
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import Toolbox
from handrail.tools.plugins import every_tool

READ_AT_ONCE: Final = 1 << 16
TAIL_LINES: Final = 20
TAIL_INTERVAL: Final = 0.1
"""Seconds between two looks at a job that is followed."""
SYNTAX: Final = (
    "A line is one call: the tool, then its fields (name=value, name=@file), JSON, or the one text that it requires.",
    "  bash echo hi      read path=x limit=20      grep {\"pattern\": \"def \"}",
    "jobs lists background jobs, tail JOB follows one, help TOOL tells its fields, exit or Ctrl-D leaves.",
)  # fmt: skip


async def run_shell(options: Options) -> int:
    """Serve lines until they end. Returns 0 to a person, and the code of the last line to a program."""
    notes: list[str] = []
    tools = Toolbox(every_tool(notes.append))
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    async with open_call_session(options, tools, lasting=True) as session:
        shell = _Shell(session, tools)
        for note in notes:
            session.say(note)
        if asks:
            shell.greet()
        lines = typed_lines(tools, session.running_jobs, shell.before_prompt) if asks else _piped_lines()
        code = 0
        async for line in lines:
            said = await shell.serve(line)
            code = code if said is None else said
            if shell.left or (code == INTERRUPTED and not asks):
                break
        shell.leave()
        return 0 if asks else code


async def _piped_lines() -> AsyncIterator[str]:
    """The lines of standard input.

    It reads the descriptor, because a thread blocked in `sys.stdin` holds a lock that the interpreter needs to exit.
    """
    rest = b""
    while data := await Work(lambda: os.read(sys.stdin.fileno(), READ_AT_ONCE)).wait():
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    yield rest.decode("utf-8", "replace")


class _Shell:
    """One session: does what the person's lines say."""

    def __init__(self, session: CallSession, tools: Toolbox) -> None:
        self._session = session
        self._tools = tools
        self.left = False

    def greet(self) -> None:
        report = self._session.sandbox.report
        where = visible(self._session.sandbox.workspace, lines=False)
        heading = f"Handrail shell · {report.driver} · network {report.network} · {where}"
        self._session.console.print(Text(heading, style="bold"))
        self._session.show_notes()
        self._session.console.print(Text("Type help for help; Ctrl-D leaves.", style="dim"))

    def before_prompt(self) -> None:
        """Tell which jobs have ended since the last line."""
        for text in self._session.live.take_job_news():
            self._session.console.print(Text(visible(text, lines=False), style="dim"))

    def leave(self) -> None:
        if jobs := self._session.running_jobs():
            self._session.say(f"{', '.join(jobs)} ends now, with this shell.")

    async def serve(self, line: str) -> int | None:
        """Do what a line says. Returns the code to exit with if it is the last; None for a line that says nothing."""
        words = line.split()
        if not words or words[0].startswith("#"):
            return None
        if words[0] in BUILT_IN and (len(words) == 1 or words[0] in ("help", "tail")):
            return await self._own(words)
        try:
            name, arguments = read_line(line, self._tools)
            if self._tools.get(name) is None:
                raise HandrailError(f"there is no tool {name!r}; for a command, type: bash {line.strip()}")
        except HandrailError as error:
            self._session.say(str(error))
            return NOT_RUN
        self._session.session.begin_run()
        return await self._session.call(name, arguments)

    async def _own(self, words: list[str]) -> int | None:
        """A word of the shell itself."""
        if words[0] in ("exit", "quit"):
            self.left = True
            return None
        if words[0] == "jobs":
            return await self._jobs()
        return self._help(words[1:]) if words[0] == "help" else await self._tail(words[1:])

    async def _jobs(self) -> int:
        if not self._session.to_person:
            return await self._session.call("process", {"action": "list"})
        for job in self._session.sandbox.jobs():
            print(visible(job_line(_state(job)), lines=False))
        if not self._session.sandbox.jobs():
            print("no jobs")
        return 0

    def _help(self, names: list[str]) -> int:
        if not names:
            self._print([*SYNTAX, "", *(_summary(tool) for tool in self._tools)])
            return 0
        tool = self._tools.get(names[0])
        if tool is None:
            self._session.say(f"there is no tool {names[0]!r}; help lists them")
            return NOT_RUN
        self._print([tool.description, "", *(_field(tool, name) for name in fields_of(tool))])
        return 0

    def _print(self, paragraphs: list[str]) -> None:
        width = max(20, self._session.console.width - 1)
        for paragraph in paragraphs:
            for line in paragraph.splitlines() or [""]:
                print(textwrap.fill(line, width, subsequent_indent="    ") if line.strip() else "")

    async def _tail(self, names: list[str]) -> int:
        job = self._session.sandbox.job(names[0]) if names else None
        if job is None:
            known = ", ".join(each.id for each in self._session.sandbox.jobs()) or "none"
            self._session.say(f"tail needs the id of a job; the jobs are: {known}")
            return NOT_RUN
        async with anyio.create_task_group() as group:
            await group.start(_cancel_on_interrupt, group)
            await self._follow(job)
            group.cancel_scope.cancel()
        self._session.live.start_line()
        self._session.console.print(Text(visible(job_line(_state(job)), lines=False), style="dim"))
        return 0

    async def _follow(self, job: Job) -> None:
        """Show the job's last lines, then what it prints, until it ends or Ctrl-C is pressed; it goes on."""
        decoder = getincrementaldecoder("utf-8")("replace")
        seen, (data, _) = job.size, job.last(TAIL_LINES)
        while True:
            running = job.running
            self._session.live.show_text(decoder.decode(data))
            if not running and seen >= job.size:
                return
            await anyio.sleep(TAIL_INTERVAL)
            try:
                data, seen = job.read(seen, job.size), job.size
            except ValueError:  # no longer kept
                return


async def _cancel_on_interrupt(group: TaskGroup, *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(*interrupts()) as signals:
        task_status.started()
        async for _ in signals:
            group.cancel_scope.cancel()
            return


def _state(job: Job) -> dict[str, Any]:
    return {"job": job.id, "running": job.running, "exit_code": job.exit_code, "command": job.command}


def _summary(tool: Tool) -> str:
    return f"{tool.name}: {tool.description.splitlines()[0]}"


def _field(tool: Tool, name: str) -> str:
    about, main = described(tool, name).get("description", ""), lone_text(tool)
    needed = " (required)" if name in tool.parameters.get("required", ()) else ""
    alone = ", may stand without its name" if name == main else ""
    return f"{name}={needed}{alone}: {about}"
