"""A function that may hang runs in a process of its own, which is killed at its deadline; a thread cannot be."""

from handrail import Session, run_sync, tool


@tool(isolate=True, timeout=8)
def count_down(start: int) -> str:
    """Count down to zero, slowly: a negative start never gets there."""
    while start != 0:
        start -= 1
    return "lift-off"


async def main() -> None:
    async with Session([count_down]) as session:
        print((await session.call("count_down", {"start": 1_000})).value)
        stuck = await session.call("count_down", {"start": -1})
        print(stuck.kind, "-", stuck.message)


if __name__ == "__main__":  # the other process imports this file to find the function
    run_sync(main)
# > lift-off
# > timeout - count_down ran longer than 8 s. It was ended. Ask for less at once.
