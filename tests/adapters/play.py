"""Play the scenarios with one framework, and print how each ended: `python -m tests.adapters.play langchain`."""

import json
import sys
import traceback
from importlib import import_module

import anyio

from tests.adapters.scenarios import SCENARIOS, STREAMING, Framework, Scenario


def play(scenario: Scenario, framework: Framework) -> str:
    try:
        anyio.run(scenario, framework)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what is reported
        return "".join(traceback.format_exception(error))
    return ""


def main() -> None:
    framework: Framework = import_module(f"tests.adapters.drive_{sys.argv[1]}").FRAMEWORK
    wanted = sys.argv[2:]
    for scenario in (*SCENARIOS, *(STREAMING if framework.streams else ())):
        if not wanted or scenario.__name__ in wanted:
            print(json.dumps([scenario.__name__, play(scenario, framework)]), flush=True)


if __name__ == "__main__":
    main()
