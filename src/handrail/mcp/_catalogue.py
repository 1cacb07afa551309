"""The tools of one server as a Session offers them, and whether a person has agreed to each as it is now."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

from anyio.lowlevel import checkpoint

from handrail.contract.errors import BadSchema
from handrail.contract.limits import MCP_DEFER_ABOVE, MCP_MOST_PAGES, MCP_MOST_TOOLS
from handrail.contract.result import Failure, Result
from handrail.mcp._listing import RAW, Offer, make_offer, safe_names
from handrail.misuse import shown
from handrail.policy.approval import visible
from handrail.schema.validate import Validator
from handrail.toolkit.context import Context
from handrail.toolkit.tool import Behaviour, Change, Tool
from mcp import Client, types

Run: TypeAlias = Callable[[Offer, Context, Mapping[str, Any]], Awaitable[Result]]
"""Function that calls the tool which an Offer describes."""
MAX_QUOTED_CHARS: Final = 600
"""Length of a changed description that a person is shown, in characters."""
MAX_WARNINGS_COUNT: Final = 100


class Catalogue:
    """A server's tools, pinned by hash: all at first sight of the server, a later one when a person agrees to it."""

    def __init__(
        self, server: str, run: Run, *, trust: bool, pins: MutableMapping[str, str], timeout: float,
        deferred: bool | None,
    ) -> None:  # fmt: skip
        self.tools: list[Tool] = []
        self.warnings: list[str] = []
        self._server, self._run, self._trust, self._pins = server, run, trust, pins
        self._timeout, self._deferred = timeout, deferred
        self._offers: dict[str, Offer] = {}
        self._outputs: dict[str, Validator] = {}
        self._first_time = not any(key.startswith(f"{server}__") for key in pins)

    async def read(self, client: Client) -> None:
        """Ask for the server's tools, all pages of them, and offer them."""
        raws, warnings = await _pages(client)
        names, changes = safe_names(self._server, list(raws))
        warnings += changes
        offers: dict[str, Offer] = {}
        for original, raw in raws.items():
            await checkpoint()  # a schema just below its limits takes a while
            try:
                offer, more = make_offer(names[original], raw, trust=self._trust)
            except BadSchema as error:
                warnings.append(f"{names[original]} is left out: {error}")
                continue
            offers[offer.name] = offer
            warnings += more
        await self._offer(offers, warnings)

    async def _offer(self, offers: dict[str, Offer], warnings: list[str]) -> None:
        deferred = len(offers) > MCP_DEFER_ABOVE if self._deferred is None else self._deferred
        known = {tool.name: tool for tool in self.tools}
        tools: list[Tool] = []
        for name in sorted(offers):
            await checkpoint()
            old = self._offers.get(name)
            same = old is not None and old.hash == offers[name].hash and known[name].deferred == deferred
            tools.append(known[name] if same else self._tool(offers[name], deferred))
        if self._first_time:
            self._pins.update({name: offer.hash for name, offer in offers.items()})
            self._first_time = False
        self._offers, self.tools, self.warnings = offers, tools, warnings[-MAX_WARNINGS_COUNT:]
        self._outputs.clear()

    def _tool(self, offer: Offer, deferred: bool) -> Tool:
        async def body(context: Context, arguments: Mapping[str, Any]) -> Result:
            return await self._run(offer, context, arguments)

        return Tool(
            offer.name, offer.checks.schema, body, description=offer.description, output=offer.output,
            risk=offer.risk, effects=offer.effects, timeout=self._timeout, deferred=deferred,
            behaviour=Behaviour(changed=partial(self._change, offer)),
        )  # fmt: skip

    def _change(self, made: Offer) -> Change | None:
        """The change that a person must agree to before the tool made from this offer may be called."""
        current, pinned = self._offers.get(made.name), self._pins.get(made.name)
        if current is None or pinned == current.hash:
            return None
        accept = partial(self._pins.__setitem__, made.name, current.hash)
        now, before = (visible(offer.description)[:MAX_QUOTED_CHARS] for offer in (current, made))
        if pinned is None:
            return Change(f"the server {self._server} added this tool after it was accepted: {now!r}", accept)
        was = f"; it was {before!r}" if made.hash == pinned and before != now else ""
        what = "description or schema"
        return Change(
            f"the server {self._server} has changed the {what} of this tool: its description is {now!r}{was}", accept
        )

    def refusal(self, made: Offer, arguments: Mapping[str, Any]) -> Failure | None:
        """Why a call must not be sent to the server as it is now."""
        current = self._offers.get(made.name)
        if current is None:
            message = f"The MCP server {self._server} no longer offers {made.original}. Go on without it."
            return Failure("unavailable", message, retryable=False)
        if self._pins.get(made.name) != current.hash:
            message = f"{made.name} was not run: the server has just changed it. Call it again to have the user asked."
            return Failure("rejected", message)
        if current.hash != made.hash and (problems := current.checks.problems(arguments)):
            words = "; ".join(problem.message for problem in problems[:3])
            message = f"{made.name} was not run: the server has changed what it takes, and {words}."
            return Failure("invalid_args", message, field=problems[0].path, data={"schema": current.checks.schema})
        return None

    def output_checks(self, made: Offer) -> Validator | None:
        """The output schema that the server declares now."""
        offer = self._offers.get(made.name, made)
        if offer.output is None:
            return None
        if offer.name not in self._outputs:
            self._outputs[offer.name] = Validator(offer.output, of="result")
        return self._outputs[offer.name]


async def _pages(client: Client) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """Tools by name, as the server wrote them."""
    raws: dict[str, Mapping[str, Any]] = {}
    warnings: list[str] = []
    cursor: str | None = None
    seen: set[str] = set()
    why = "its list has no end in sight"
    for _ in range(MCP_MOST_PAGES):
        page = await client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        for tool in page.tools:
            if tool.name in raws and len(warnings) < MAX_WARNINGS_COUNT:
                warnings.append(f"{shown(tool.name)} is listed twice; the first is offered")
            raws.setdefault(tool.name, (tool.meta or {}).get(RAW, {}))
        cursor = page.next_cursor
        if len(raws) > MCP_MOST_TOOLS:
            raws = dict(islice(raws.items(), MCP_MOST_TOOLS))
            why = "there are more than a session could use"
            break
        if not cursor:
            return raws, warnings
        if cursor in seen:
            why = "it repeats a page of its list"
            break
        seen.add(cursor)
    return raws, [*warnings[:MAX_WARNINGS_COUNT], f"only {len(raws):,} tools are offered: {why}"]
