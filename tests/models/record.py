"""Record one conversation of each provider's shape with the fake provider: `python -m tests.models.record PORT`."""

import sys
from pathlib import Path

import anyio

from handrail import Agent, Outcome, tool
from handrail.contract.model import Model
from handrail.models import Recording
from tests.models.asking import PROVIDERS, model_at
from tests.models.wire import proxying, serving

RECORDINGS = Path(__file__).with_name("recordings")


@tool
def look(path: str) -> str:
    """Look at a file."""
    return f"This is {path}."


async def converse(model: Model) -> Outcome:
    """The conversation that is recorded, and played back."""
    return await Agent(model, tools=[look], system="Be brief.").run("Look at two files.")


def main(port: int) -> None:
    RECORDINGS.mkdir(exist_ok=True)
    for provider in PROVIDERS:
        path = RECORDINGS / f"{provider}.jsonl"
        path.unlink(missing_ok=True)
        with serving(proxying(port)) as wire:
            anyio.run(converse, Recording(model_at(wire, provider, by_name=False), path, secrets=[wire.url]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
