"""A Result: the one honest answer to a call."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, get_args

from handrail.contract.wire import WireForm, check_envelope, envelope_in, to_wire
from handrail.misuse import BadEnvelope, refuse, shown

FailureKind = Literal[
    "invalid_args", "tool_not_found", "rejected", "user_denied", "approval_timeout", "budget_exhausted",
    "timeout", "cancelled", "execution_error", "not_found", "unavailable", "unknown_outcome",
]  # fmt: skip
FAILURE_KINDS: Final[frozenset[str]] = frozenset(get_args(FailureKind))
RETRY_MAY_HELP: Final[frozenset[str]] = frozenset({"invalid_args", "timeout", "execution_error", "unavailable"})
REFUSALS: Final[frozenset[str]] = frozenset(
    {"invalid_args", "tool_not_found", "rejected", "user_denied", "approval_timeout"}
)
"""Failure kinds after which the body did not run. They do not spend the call budget."""
IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Media types of pictures that providers accept; a request with another type would be refused. Google takes no GIF."""
LEGACY_PREFIXES: Final[dict[str, FailureKind]] = {"[REJECTED]": "rejected", "[TIMEOUT]": "timeout"}


@dataclass(frozen=True, slots=True)
class Image(WireForm):
    """A picture for the model. It travels beside the text, in each provider's own form.

    Example:
        ```python
        @tool
        def snapshot() -> Image:
            "Take a picture."
            return Image(b"GIF89a", "image/gif")

        async with Session([snapshot]) as session:
            picture = (await session.call("snapshot")).value
            print(picture.media_type, picture.base64())
        #> image/gif R0lGODlh
        ```
    """

    data: bytes = field(repr=False)
    media_type: str = "image/png"
    ref: str | None = field(default=None, repr=False, compare=False)
    """The artifact that holds the picture, after a result has; the model can pass it on."""

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes):
            refuse("Image.data", self.data, "the bytes of the picture: Image(Path('plot.png').read_bytes())")

    def to_wire(self) -> dict[str, Any]:
        """The picture as the text envelope describes it: never the bytes."""
        wire: dict[str, Any] = {"kind": "image", "media_type": self.media_type, "size": len(self.data)}
        return wire if self.ref is None else {**wire, "$artifact": self.ref}

    def base64(self) -> str:
        """The bytes as providers want them."""
        return b64encode(self.data).decode("ascii")


@dataclass(frozen=True, slots=True)
class ArtifactRef(WireForm):
    """A handle to stored bytes. Passing `{"$artifact": ref}` in place of any argument fills the content in.

    Example:
        ```python
        @tool
        async def report(context: Context) -> ArtifactRef:
            "Write a report."
            return await context.artifacts.put("three pages", name="report.txt")

        async with Session([report]) as session:
            kept = (await session.call("report")).value
            print(kept.name, kept.size, await session.artifacts.read(kept.ref, 6, 5))
        #> report.txt 11 b'pages'
        ```
    """

    ref: str
    size: int = 0
    media_type: str = "application/octet-stream"
    name: str | None = None
    incomplete: bool = False
    """Whether a part of the content was discarded before it was stored. It cannot be passed on as an argument."""

    def to_wire(self) -> dict[str, Any]:
        """The handle as the model sees it and may pass it on."""
        wire: dict[str, Any] = {"$artifact": self.ref, "size": self.size, "media_type": self.media_type}
        if self.name is not None:
            wire["name"] = self.name
        return {**wire, "incomplete": True} if self.incomplete else wire


@dataclass(frozen=True, slots=True)
class Success:
    """The tool ran and answered. `value` is plain JSON data, with Images, ArtifactRefs and Truncated texts in it.

    It has a Failure's fields too, all of them empty, so that a Result can be read without asking which one it is.

    Example:
        ```python
        result = Success({"sum": 42})
        print(result.ok, result.value["sum"], result.kind)
        print(result.to_envelope("add"))
        #> True 42 None
        #> {'ok': True, 'tool': 'add', 'result': {'sum': 42}}
        ```
    """

    value: Any
    warnings: tuple[str, ...] = ()
    ok: ClassVar[Literal[True]] = True
    kind: ClassVar[None] = None
    message: ClassVar[str] = ""
    field: ClassVar[None] = None
    expected: ClassVar[None] = None
    data: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    retryable: ClassVar[Literal[False]] = False

    def to_envelope(self, tool: str) -> dict[str, Any]:
        """`{"ok": true, "tool", "result", "warnings"?}`; text becomes `{"text": …}`."""
        value = self.value
        result = {"text": to_wire(value)} if isinstance(value, str) else to_wire(value)
        envelope: dict[str, Any] = {"ok": True, "tool": tool, "result": result}
        if self.warnings:
            envelope["warnings"] = list(self.warnings)
        return envelope


@dataclass(frozen=True, slots=True, init=False)
class Failure:
    """A call without an answer. The message says what happened, to which field, and what to do next.

    Example:
        ```python
        failure = Failure("not_found", "There is no file a.txt. Files here: b.txt.", field="path")
        print(failure.ok, failure.kind, failure.retryable)
        #> False not_found False
        ```
    """

    kind: FailureKind
    message: str
    field: str | None
    expected: str | None
    data: Mapping[str, Any]
    """Details, such as the output of a command that was ended; empty if there are none."""
    warnings: tuple[str, ...]
    retryable: bool
    """Whether the same call may work later; decided by the kind unless given."""
    ok: ClassVar[Literal[False]] = False
    value: ClassVar[Any] = None

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        field: str | None = None,
        expected: str | None = None,
        data: Mapping[str, Any] | None = None,
        warnings: tuple[str, ...] = (),
        retryable: bool | None = None,
    ) -> None:
        if kind not in FAILURE_KINDS:
            raise ValueError(f"{kind!r} is not a failure kind; the kinds are {', '.join(sorted(FAILURE_KINDS))}")
        put = object.__setattr__
        put(self, "kind", kind)
        put(self, "message", message)
        put(self, "field", field)
        put(self, "expected", expected)
        if data is not None and not isinstance(data, Mapping):
            refuse("Failure.data", data, "a dict, or leave it out")
        put(self, "data", {} if data is None else data)
        put(self, "warnings", (warnings,) if isinstance(warnings, str) else tuple(warnings))
        put(self, "retryable", kind in RETRY_MAY_HELP if retryable is None else retryable)

    def to_envelope(self, tool: str) -> dict[str, Any]:
        """`{"ok": false, "kind", "message", "field"?, "expected"?, "tool", "retryable", "data"?, "warnings"?}`."""
        envelope: dict[str, Any] = {"ok": False, "kind": self.kind, "message": self.message}
        if self.field is not None:
            envelope["field"] = self.field
        if self.expected is not None:
            envelope["expected"] = self.expected
        envelope |= {"tool": tool, "retryable": self.retryable}
        if self.data:
            envelope["data"] = to_wire(self.data)
        if self.warnings:
            envelope["warnings"] = list(self.warnings)
        return envelope


Result = Success | Failure
"""The one honest answer to a call: a Success or a Failure. Both have the same fields.

Example:
    ```python
    def add(a: int, b: int = 1) -> int:
        "Add two numbers."
        return a + b

    async with Session([add]) as session:
        result: Result = await session.call("add", {"a": 41})
        print(result.value if result.ok else result.message)
    #> 42
    ```
"""


def images_in(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[list[str | int], Image]]:
    """Every picture in a result's value, with its path."""
    if isinstance(value, Image):
        return [(list(path), value)]
    if isinstance(value, Mapping):
        return [found for key, item in value.items() for found in images_in(item, (*path, key))]
    if isinstance(value, list | tuple):
        return [found for number, item in enumerate(value) for found in images_in(item, (*path, number))]
    return []


def with_image(value: Any, path: Sequence[str | int], image: Image) -> Any:
    """`value` with the picture at this path; the containers on the way are copied."""
    if not path:
        return image
    key, *rest = path
    copy: Any = dict(value) if isinstance(value, Mapping) else list(value)
    copy[key] = with_image(copy[key], rest, image)
    return copy


def read_envelope(text: str, *, strict: bool = True) -> Result:
    """Parse what `to_envelope` wrote. It never searches inside the text.

    A text that begins with one of the legacy prefixes is the Failure it stands for; any other text that is not an
    envelope raises BadEnvelope, or is `Success({"text": text})` unless `strict`.

    Example:
        ```python
        text = '{"ok": false, "kind": "timeout", "message": "It took too long.", "tool": "bash", "retryable": true}'
        print(read_envelope(text).kind)
        print(read_envelope("plain text", strict=False).value)
        #> timeout
        #> {'text': 'plain text'}
        ```
    """
    if not isinstance(text, str):
        write = (
            "it is a Result already" if isinstance(text, Success | Failure) else "write read_envelope(json.dumps(…))"
        )
        raise BadEnvelope(f"not a result envelope: it is {shown(text)}, not text; {write}")
    for prefix, kind in LEGACY_PREFIXES.items():
        if text.startswith(prefix):
            return Failure(kind, text[len(prefix) :].strip())
    try:
        return result_from(envelope_in(text))
    except BadEnvelope:
        if strict:
            raise
        return Success({"text": text})


def result_from(envelope: Any) -> Result:
    """The Result of an envelope that was parsed already. Raises BadEnvelope."""
    check_envelope(envelope, FAILURE_KINDS)
    warnings = tuple(str(warning) for warning in envelope.get("warnings") or ())
    if not envelope["ok"]:
        given = {name: envelope.get(name) for name in ("field", "expected", "data")}
        retryable = envelope.get("retryable")
        known = retryable if isinstance(retryable, bool) else None
        return Failure(envelope["kind"], envelope["message"], **given, warnings=warnings, retryable=known)
    value = envelope["result"]
    if isinstance(value, dict) and value.keys() == {"text"} and isinstance(value["text"], str):
        return Success(value["text"], warnings)
    return Success(value, warnings)
