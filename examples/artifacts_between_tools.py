"""Artifacts between tools: a large value is passed by reference; the model sees a handle, and each tool the content."""

import csv
import io

from handrail import ArtifactRef, Context, Session, run_sync, tool


@tool(effects=["reads"])
async def sales(context: Context, year: int) -> ArtifactRef:
    """All sales of a year, as CSV."""
    rows = "".join(f"{year}-{day:03},{day * 7 % 50}\n" for day in range(1, 366))
    return await context.artifacts.put(f"day,amount\n{rows}".encode(), media_type="text/csv", name=f"{year}.csv")


@tool
def total(table: str) -> int:
    """Add up the amounts of a CSV table."""
    return sum(int(row["amount"]) for row in csv.DictReader(io.StringIO(table)))


async def main() -> None:
    async with Session([sales, total]) as session:
        handle = (await session.call("sales", {"year": 2026})).to_envelope("sales")["result"]
        print("the model sees:", {name: handle[name] for name in ("size", "media_type", "name")})
        answer = await session.call("total", {"table": {"$artifact": handle["$artifact"]}})
        print("total:", answer.value)
        wrong = await session.call("total", {"table": {"$artifact": "a_nowhere"}})
        print(wrong.kind)


run_sync(main)
# > the model sees: {'size': 4318, 'media_type': 'text/csv', 'name': '2026.csv'}
# > total: 8965
# > invalid_args
