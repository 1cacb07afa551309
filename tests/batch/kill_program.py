"""A batch that notes each task it begins, made to be killed: OUT, a file of begun tasks, how many tasks."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from handrail.batch import Here, Task, Totals, run_batch
from tests.batch.models import PromptedModel, prompt


async def main(out: str, begun: str, count: str) -> None:
    tasks = [Task(f"t{n}", prompt(f"echo {n} > made"), check=f"grep -q {n} made") for n in range(int(count))]

    def show(event: Mapping[str, Any], totals: Totals) -> None:
        if event["event"] == "begun":
            with Path(begun).open("a") as file:
                file.write(f"{event['id']}\n")

    await run_batch(tasks, Here(PromptedModel()), out, jobs=3, show=show)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
