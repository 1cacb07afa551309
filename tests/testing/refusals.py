"""Watch a broken driver from above and from below: whether it raises what the driver that it is made of does not."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from handrail.contract.driver import Chunk, Command, Driver, Process
from handrail.testing.conformance import Opener
from tests.broken import Altered, AlteredProcess, Broken

Again = Callable[[], Awaitable[object]]
"""Asks the driver at the bottom the same."""
Told = Callable[[object, Exception, Again], Awaitable[None]]
"""Is told of a call that raised."""


class Refusals:
    """What a broken driver raised though the driver below does not: a line for each in `found`."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._below: dict[int, tuple[Exception, object]] = {}
        """By its identity: what the driver below raised, and for which call."""

    def over(self, broken: Broken, base: Opener) -> Opener:
        """Opens the broken driver, watched from both sides."""

        async def below(**options: Any) -> Driver:
            return _Watched(await base(**options), options, self._note)

        opener = broken.over(below)

        async def above(**options: Any) -> Driver:
            return _Watched(await opener(**options), options, self._judge)

        return above

    async def _note(self, call: object, error: Exception, again: Again) -> None:
        self._below[id(error)] = error, call

    async def _judge(self, call: object, error: Exception, again: Again) -> None:
        """It is the driver below that raised it, for the same call, or would have: it is asked."""
        if self._below.get(id(error), (None, None))[1] == call:
            return
        try:
            answer = await again()
        except Exception as found:  # noqa: BLE001 - whatever it raises is compared
            if type(found) is type(error):
                return
            answer = found
        if hasattr(answer, "signal"):
            await answer.signal("KILL")
        self.found.append(f"{call!r:.200} raised {error!r:.200}, and the driver below gives {answer!r:.200}")


class _Watched(Altered):
    """Passes everything on, and tells what was raised."""

    def __init__(self, driver: Driver, options: dict[str, Any], told: Told) -> None:
        super().__init__(driver, options)
        self.told = told

    async def start(self, command: Command) -> Process:
        return _WatchedProcess(await self._asked("start", command), command, self.told)

    async def _asked(self, method: str, *words: object, **options: object) -> Any:
        try:
            return await getattr(self.driver, method)(*words, **options)
        except Exception as error:
            given = {name: value for name, value in options.items() if value not in (None, 0)}
            await self.told((method, words, given), error, lambda: getattr(_bottom(self), method)(*words, **options))
            raise


def _method(name: str) -> Any:
    async def method(self: Any, *words: object, **options: object) -> Any:
        return await self._asked(name, *words, **options)

    return method


for _name in ("read", "write", "stat", "list", "make_dir", "remove"):
    setattr(_Watched, _name, _method(_name))


def _bottom(driver: Any) -> Any:
    while isinstance(driver, Altered):
        driver = driver.driver
    return driver


class _WatchedProcess(AlteredProcess):
    def __init__(self, process: Process, command: Command, told: Told) -> None:
        super().__init__(process, command)
        self.told = told

    async def output(self) -> AsyncIterator[Chunk]:
        try:
            async for chunk in self.process.output():
                yield chunk
        except Exception as error:
            await self.told("output", error, self.process.wait)
            raise

    async def _asked(self, method: str, *words: object) -> Any:
        below: Any = self
        while isinstance(below, AlteredProcess):
            below = below.process
        try:
            return await getattr(self.process, method)(*words)
        except Exception as error:
            await self.told((method, words), error, lambda: getattr(below, method)(*words))
            raise


for _name in ("send", "wait", "signal"):
    setattr(_WatchedProcess, _name, _method(_name))
