"""The three families of errors, and who each is for.

1. ToolFailed(Failure)       raised below the gates, for the model; gates/invoke.py turns it into a Result
   Unavailable               raised by drivers: the sandbox is gone or busy; becomes Failure("unavailable")
   `-- Locked                another process is writing the store; a moment later it may be free
2. HandrailError             a mistake in the program; raised where it is made, never shown to a model
   |-- NameConflict          two tools with one name, or a reserved name
   |-- BadSchema             a schema that does not compile, or a parameter that has none
   |-- BadEnvelope           a text that is not a result envelope
   |-- BrokenDriver          a driver that breaks its contract
   |-- MissingExtra          a package of one of Handrail's extras is not installed
   `-- WeakerThanAsked       isolation weaker than asked for, without allow_weaker
3. Cancellation              the event loop's own exception; recorded and raised again, never swallowed
"""

from handrail.contract.result import Failure
from handrail.misuse import BadEnvelope as BadEnvelope
from handrail.misuse import HandrailError as HandrailError


class NameConflict(HandrailError):
    """Two tools have one name, or a tool has a name reserved for Handrail's own tools.

    Example:
        ```python
        def read(path: str) -> str:
            "Read something else."
            return path

        try:
            Toolbox([*builtin_tools(), read])
        except NameConflict as error:
            print(str(error).partition(":")[0])
        #> two tools are called 'read'
        ```
    """


class BadSchema(HandrailError):
    """A JSON Schema that does not compile, or a type that has none.

    Example:
        ```python
        def paint(colour: complex | slice) -> None:
            "Paint."

        try:
            tool(paint)
        except BadSchema as error:
            print(str(error).partition(";")[0])
        #> tool paint: parameter 'colour' has no schema: <class 'slice'> is not a type that JSON can hold
        ```
    """


class BrokenDriver(HandrailError):
    """A driver that breaks the contract in contract/driver.py.

    Example:
        ```python
        class Half:
            features = frozenset({"files"})

        try:
            async with open_sandbox(Half(), allow_weaker=True):
                pass
        except BrokenDriver as error:
            print(error)
        #> Half is not a Driver: missing start, …
        ```
    """


class WeakerThanAsked(HandrailError):
    """The machine offers weaker isolation than asked for, and allow_weaker was not given.

    Example:
        ```python
        try:
            async with open_sandbox("host"):
                pass
        except WeakerThanAsked as error:
            print(str(error).partition(";")[0])
        #> the host driver isolates nothing
        ```

    A message in two parts names the option that accepts it between them, in the caller's words: `told("--weaker")`.
    """

    def __init__(self, message: str, rest: str | None = None) -> None:
        self._parts = message, rest
        super().__init__(self.told("allow_weaker=True"))

    def told(self, option: str) -> str:
        """The message, with the option written as the caller writes it."""
        message, rest = self._parts
        return message if rest is None else f"{message}{option}{rest}"


class MissingExtra(HandrailError):
    """A package is missing that an extra of Handrail installs; `extra` is empty if it is not known."""

    def __init__(self, problem: str, extra: str = "") -> None:
        super().__init__(f"{problem}: pip install 'handrail[{extra}]'" if extra else problem)
        self.problem, self.extra = problem, extra


class ToolFailed(Exception):
    """An answer for the model: raise it in a tool's body to answer with exactly this Failure.

    Example:
        ```python
        def find(name: str) -> str:
            "Find a person."
            raise ToolFailed(Failure("not_found", f"Nobody is called {name}. Try the family name."))

        async with Session([find]) as session:
            result = await session.call("find", {"name": "Ada"})
            print(result.kind, "-", result.message)
        #> not_found - Nobody is called Ada. Try the family name.
        ```
    """

    def __init__(self, failure: Failure) -> None:
        if isinstance(failure, str):
            raise HandrailError(f"ToolFailed takes a Failure; write ToolFailed(Failure('not_found', {failure!r}))")
        super().__init__(failure.message)
        self.failure = failure


class Unavailable(Exception):
    """Something that the call needs is gone, busy or not ready yet. `retryable=False` if a retry cannot help.

    `remedy` is the part of the message that says what to install or set, for programs.

    Example:
        ```python
        def ask(question: str) -> str:
            "Ask the archive."
            raise Unavailable("The archive is closed until 9.")

        async with Session([ask]) as session:
            result = await session.call("ask", {"question": "why?"})
            print(result.kind, result.retryable)
        #> unavailable True
        ```
    """

    def __init__(self, message: str, *, retryable: bool = True, remedy: str = "") -> None:
        super().__init__(message)
        self.retryable = retryable
        self.remedy = remedy


class Locked(Unavailable):
    """Another process is writing the store. A moment later it may be free."""


def describe_error(error: BaseException) -> str:
    """The type and message of any exception, even of one whose own `str` raises."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - `__str__` may raise anything
        text = "its message cannot be shown"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
