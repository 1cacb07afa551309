"""What 200 tools cost where they are defined, against pydantic's own schemas of the same functions."""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

from bench.measure import Effort, Row, Stopwatch, interleave, row
from handrail import Context, Toolbox, tool
from handrail.schema.derive import derive

COUNT: Final = 200
Function = Callable[..., Any]


class Place(BaseModel):
    """A place on a map."""

    name: str
    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]


class Change(TypedDict):
    """One replacement."""

    old: str
    new: str
    replace_all: bool


def functions(count: int) -> list[Function]:
    """That many functions of four kinds: two plain parameters, bounds, a list of objects, a nested model."""
    makers = (_plain, _bounded, _nested, _model)
    made = [makers[number % len(makers)]() for number in range(count)]
    for number, function in enumerate(made):
        function.__name__ = f"{function.__name__}_{number}"
    return made


def rows(effort: Effort) -> list[Row]:
    count = effort.count(COUNT)
    made = functions(count)
    tools = [tool(function) for function in made]
    times = interleave(
        {
            "pydantic": lambda: _each(lambda: [_by_pydantic(function) for function in made]),
            "derive": lambda: _each(lambda: [derive(function, injected=Context) for function in made]),
            "tool": lambda: _each(lambda: [tool(function) for function in made]),
            "toolbox": lambda: _each(lambda: Toolbox(tools)),
            "export": lambda: _each(lambda: Toolbox(tools).schemas("openai")),
        },
        effort.rounds,
    )
    floor = times["pydantic"]
    return [
        row(f"{count} schemas by pydantic alone", floor, "ms", floor=floor),
        row(f"{count} derived: docstring, arguments, answer", times["derive"], "ms", floor=floor),
        row(f"{count} tools by @tool: derived and compiled", times["tool"], "ms", floor=floor),
        row(f"a Toolbox of {count}", times["toolbox"], "ms", floor=floor),
        row("the same, exported for a provider", times["export"], "ms", floor=floor),
    ]


def _by_pydantic(function: Any) -> dict[str, Any]:
    return TypeAdapter(function).json_schema()


def _each(work: Callable[[], object]) -> float:
    with Stopwatch() as watch:
        work()
    return watch.cpu


def _plain() -> Function:
    async def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    return add


def _bounded() -> Function:
    def search(
        pattern: str,
        path: str | None = None,
        limit: Annotated[int, Field(ge=1, le=1000)] = 100,
        order: Literal["name", "size", "time"] = "name",
        hidden: bool = False,
    ) -> list[str]:
        """Search files.

        Args:
            pattern: What to look for.
            path: Where to look; everywhere when left out.
            limit: How many at most.
            order: What to sort by.
            hidden: Whether to look at hidden files too.
        """
        return []

    return search


def _nested() -> Function:
    async def edit(path: str, edits: list[Change], modes: dict[str, int]) -> dict[str, int]:
        """Change a file.

        Args:
            path: The file.
            edits: What to replace, in order.
            modes: Permissions by name.
        """
        return {}

    return edit


def _model() -> Function:
    def measure(start: Place, end: Place, unit: Literal["km", "mi"] = "km") -> float:
        """Measure a distance."""
        return 0.0

    return measure
