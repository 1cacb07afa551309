"""Inspect's own checks of a sandbox, and evals with its test model: prints how each ended."""

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from inspect import getmembers, iscoroutinefunction
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageTool, ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, ToolCall, bash, tool
from inspect_ai.util import sandbox
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv

from tests.adapters.scenarios import Child

CHECKS = {name: check for name, check in getmembers(self_check, iscoroutinefunction) if name.startswith("test_")}


async def checked(check: Callable[[Any], Awaitable[None]]) -> None:
    """One of Inspect's checks, with the provider that it finds by its name."""
    kind = registry_find_sandboxenv("handrail")
    environments = await kind.sample_init("check", None, {})
    try:
        await check(environments["default"])
    finally:
        await kind.sample_cleanup("check", None, environments, False)


async def played(rounds: list[list[tuple[str, dict[str, Any]]]], *tools: Tool) -> list[str]:
    """An eval whose model calls tools; what it was told of each call."""
    said = [
        ModelOutput.for_tool_call("mockllm/model", *asked[0]) if len(asked) == 1 else _at_once(asked)
        for asked in rounds
    ]
    said.append(ModelOutput.from_content("mockllm/model", "done"))
    for each in said:
        each.usage = ModelUsage(
            input_tokens=1, output_tokens=1, total_tokens=2
        )  # or else it is counted, with a download
    model = get_model("mockllm/model", custom_outputs=said)
    task = Task(dataset=[Sample("go")], solver=[use_tools(*tools), generate()], sandbox="handrail")
    with TemporaryDirectory() as logs:  # samples are read from there when they are looked at
        [log] = await eval_async(task, model=model, log_dir=logs)
        assert log.status == "success", log.error
        [sample] = log.samples or []
        told = [each for each in sample.messages if isinstance(each, ChatMessageTool)]
    return [f"{each.error.type}: {each.error.message}" if each.error else each.text for each in told]


def _at_once(asked: list[tuple[str, dict[str, Any]]]) -> ModelOutput:
    output = ModelOutput.for_tool_call("mockllm/model", *asked[0])
    output.choices[0].message.tool_calls = [
        ToolCall(id=f"at-once-{number}", function=name, arguments=arguments)
        for number, (name, arguments) in enumerate(asked)
    ]
    return output


async def an_agent_runs_commands_in_its_sandbox() -> None:
    told = await played([[("bash", {"command": "echo kept > note"})], [("bash", {"command": "cat note"})]], bash())
    assert told == ["", "kept\n"], told


async def calls_of_one_answer_are_all_answered() -> None:
    """Inspect runs the calls of an answer one after the other."""
    told = await played([[("bash", {"command": f"echo {number}"}) for number in range(3)]], bash())
    assert told == ["0\n", "1\n", "2\n"], told


async def a_timeout_kills_a_child_that_left_its_process_group() -> None:
    child = Child()
    async with anyio.create_task_group() as group:
        group.start_soon(child.becomes, 2)
        told = await played([[("bash", {"command": child.line})]], bash(timeout=5))
    assert told[0].startswith("timeout: ")
    await child.becomes(0)


async def a_megabyte_of_output_reaches_the_eval() -> None:
    @tool
    def count() -> Tool:
        async def execute() -> str:
            """Count what a command prints."""
            done = await sandbox().exec(["sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x"])
            return str(len(done.stdout))

        return execute

    told = await played([[("count", {})]], count())
    assert told == ["1000000"]


async def a_cancelled_eval_ends_its_command() -> None:
    child = Child()
    run = asyncio.ensure_future(played([[("bash", {"command": child.line})]], bash()))
    await child.becomes(2)
    run.cancel()
    await asyncio.wait([run])
    await child.becomes(0)


async def six_hundred_commands_fit_into_a_sample() -> None:
    @tool
    def many() -> Tool:
        async def execute() -> str:
            """Run many commands."""
            done = [(await sandbox().exec(["echo", str(number)])).stdout for number in range(600)]
            return str(sum(int(each) for each in done))

        return execute

    told = await played([[("many", {})]], many())
    assert told == [str(sum(range(600)))]


EVALS = (
    an_agent_runs_commands_in_its_sandbox,
    calls_of_one_answer_are_all_answered,
    a_timeout_kills_a_child_that_left_its_process_group,
    a_megabyte_of_output_reaches_the_eval,
    a_cancelled_eval_ends_its_command,
    six_hundred_commands_fit_into_a_sample,
)


def ended(play: Callable[[], Awaitable[None]]) -> str:
    try:
        anyio.run(play)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what is reported
        return "".join(traceback.format_exception(error))
    return ""


def main() -> None:
    wanted = sys.argv[1:]
    for name, check in CHECKS.items() if not wanted else ():
        print(json.dumps([name, ended(lambda check=check: checked(check))]), flush=True)  # type: ignore[misc]
    for play in EVALS:
        if not wanted or play.__name__ in wanted:
            print(json.dumps([play.__name__, ended(play)]), flush=True)


if __name__ == "__main__":
    main()
