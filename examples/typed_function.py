"""A typed function is a tool: its signature is the schema, and a model's mistakes come back as advice."""

from typing import Annotated, Literal

from pydantic import Field

from handrail import Session, run_sync, tool


@tool
def convert(amount: Annotated[float, Field(ge=0)], to: Literal["km", "miles"]) -> float:
    """Convert a distance.

    Args:
        amount: the distance, in the other unit
        to: the unit to convert to
    """
    return round(amount * 1.609344 if to == "km" else amount / 1.609344, 2)


async def main() -> None:
    async with Session([convert]) as session:
        good = await session.call("convert", '{"amount": 26.2, "to": "km"}')  # the raw text that a model sent
        print(good.to_envelope("convert"))
        bad = await session.call("convert", '{"amount": -1, "to": "parsecs"}')
        print(bad.kind, bad.field, bad.retryable)
        print(bad.message)


run_sync(main)
# > {'ok': True, 'tool': 'convert', 'result': 42.16}
# > invalid_args amount True
# > convert was not run: its arguments were refused.
# > - `amount` must be a number, at least 0; received -1.
# > - `to` must be one of "km", "miles"; received "parsecs".
# > Send all of the arguments again, for example: {"amount": 1, "to": "km"}
