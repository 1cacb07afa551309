"""Describe a call to a person: the request for one call, its text, and the rule that would remember it."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from copy import deepcopy
from os import urandom
from time import time
from typing import TYPE_CHECKING, Any, Final

from handrail.contract.approval import ApprovalRequest
from handrail.contract.wire import to_wire
from handrail.policy._match import PathRoots, first_property, is_path, matches, named_property, text_of
from handrail.policy.rule import Rule, ToolTraits
from handrail.schema.artifact_refs import references
from handrail.schema.globs import escape
from handrail.schema.navigate import escape as pointer_step
from handrail.schema.navigate import kind_of, takes
from handrail.schema.parse import NotJson, arguments_hash, parse

if TYPE_CHECKING:
    from handrail.sandbox.sandbox import Sandbox
    from handrail.schema.repair import Repair

MAX_ARGUMENT_CHARS: Final = 4_000
"""Length of one argument that is shown, in characters; the middle of a longer one is left out, and the text says so."""
MAX_KEY_CHARS: Final = 200
MAX_REPAIR_CHARS: Final = 1_000
MAX_RULE_CHARS: Final = 1_000
MAX_TEXT_LINES: Final = 40
"""Lines of a request's text, so that it fits on a screen; the middle of what is longer is left out, and counted."""
MAX_FIRST_ARGUMENTS_COUNT: Final = 20
MAX_LAST_ARGUMENTS_COUNT: Final = 10
"""Number of arguments shown from the first on, and from the last back."""
MAX_WARNINGS_COUNT: Final = 4
"""Number of lines about letters that look like others."""
MAX_REPAIRS_COUNT: Final = 10
FEWEST_LINES: Final = 3
"""Fewest lines of an argument that is not written on one: its beginning, the count of what is left out, its end."""
MAX_ACCENTS_COUNT: Final = 2
"""Number of accents on one letter; more would cover the lines around, so they are written as codes."""
MAX_LOOK_ALIKES_COUNT: Final = 10
HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
BLANK_CHARACTERS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks that show nothing."""
LOOK_ALIKE_SCRIPTS: Final = (
    "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "LATIN LETTER SMALL CAPITAL",
    "LATIN SMALL LETTER DOTLESS I", "LATIN SMALL LETTER ALPHA", "LATIN SMALL LETTER SCRIPT G",
)  # fmt: skip
"""Scripts with letters that look like Latin ones."""
LATIN_TWINS: Final = frozenset("аеорсухіјѕԁӏһԛԝѵАВЕКМНОРСТУХІЈЅΑΒΕΖΗΙΚΜΝΟΡΤΥΧονρϲ")
"""Letters that nobody can tell from Latin ones: a whole word of them passes for a Latin word."""
LOOK_ALIKE_SIGNS: Final = frozenset(
    "\u2010\u2011\u2212\u2044\u2215\u29f8\u2024\ua789\u2236\u037e\u02d0\u05c3\u01c3\u2223"
)
"""Signs that look like `-`, `/`, `.`, `:`, `;`, `!` and `|`."""
EVENT_FIELDS: Final = (
    "id", "tool", "risk", "arguments_hash", "text", "repairs", "reason", "suggested_rule", "sandbox", "expires_at",
)  # fmt: skip
"""The fields of a request that the transcript keeps."""


async def request_for(
    call_id: str,
    tool: ToolTraits,
    arguments: Mapping[str, Any],
    *,
    repairs: "Sequence[Repair]",
    sandbox: "Sandbox | None",
    reason: str,
    wait: float,
) -> ApprovalRequest:
    """The request for a call with these arguments; it holds a copy, so that nobody changes the call through it."""
    copied = deepcopy(dict(arguments))
    return ApprovalRequest(
        id=urandom(16).hex(),
        call_id=call_id,
        tool=tool.name,
        risk=tool.risk,
        effects=frozenset(tool.effects),
        arguments=copied,
        arguments_hash=arguments_hash(arguments),
        text=render(tool.name, copied),
        repairs=_described(repairs),
        reason=reason,
        suggested_rule=await suggest_rule(tool, arguments, sandbox),
        sandbox=f"{sandbox.report.driver}:{sandbox.workspace}" if sandbox is not None else "none",
        expires_at=time() + wait,
    )


def event_data(request: ApprovalRequest) -> dict[str, Any]:
    """The request as the transcript keeps it."""
    kept = {name: getattr(request, name) for name in EVENT_FIELDS}
    return {**kept, "effects": sorted(request.effects), "arguments": to_wire(request.arguments)}


async def suggest_rule(tool: ToolTraits, arguments: Mapping[str, Any], sandbox: "Sandbox | None") -> str:
    """The narrowest rule that covers this call: its tool, and the value of the first property that was sent.

    Empty, so that nothing is remembered, where no rule covers exactly this value or it cannot be shown in full.
    """
    if not arguments and not tool.parameters.get("properties"):
        return tool.name
    name = next((name for name in (first_property(tool), *arguments) if name in arguments), None)
    if name is None:
        return ""
    text = text_of(arguments[name])
    if len(text) > MAX_RULE_CHARS or visible(text) != text or any(True for _ in references([arguments[name]])):
        return ""
    if _has_two_types(tool, name, arguments[name], text):
        return ""
    if is_path(tool, name) and text.endswith("/"):  # as a rule it would cover everything below
        return ""
    inner = escape(text)
    for form in (inner, f"{name}={inner}"):
        if named_property(form, tool) == (name, inner):
            rule = f"{tool.name}({form})"
            covers = await matches(Rule(rule), tool, arguments, PathRoots(tool, sandbox), exact=True)
            return rule if covers else ""
    return ""


def _has_two_types(tool: ToolTraits, name: str, value: Any, text: str) -> bool:
    """Whether the property also accepts a value of another type with the same text, such as "1" beside 1."""
    where = (f"#/properties/{pointer_step(name)}",)
    if not isinstance(value, str):
        return takes(tool.parameters, where, "string")
    try:
        kind = kind_of(parse(text))
    except NotJson:
        return False
    return kind != "string" and takes(tool.parameters, where, kind)


def _described(repairs: "Sequence[Repair]") -> tuple[str, ...]:
    """The repairs as lines; those that need approval come first, because many others could hide them."""
    first = sorted(repairs, key=lambda repair: not repair.doubtful)[:MAX_REPAIRS_COUNT]
    changes = (f"{repair.path}: {repair.before!r} became {repair.after!r}" for repair in first)
    more = [f"… and {len(repairs) - len(first):,} more"] if len(repairs) > len(first) else []
    return (*(visible(change, lines=False)[:MAX_REPAIR_CHARS] for change in changes), *more)


def render(tool: str, arguments: Mapping[str, Any], most: int = MAX_TEXT_LINES) -> str:
    """The call as plain text of at most `most` lines, in which odd characters are written out and named.

    Of what is too long the beginning and the end are shown, because a dangerous part is most easily put at the end of
    something long, and what is left out between them is counted.
    """
    given = [(visible(cut_line(str(key), MAX_KEY_CHARS), lines=False), _text_of(arguments[key])) for key in arguments]
    left_out = max(0, len(given) - MAX_FIRST_ARGUMENTS_COUNT - MAX_LAST_ARGUMENTS_COUNT)
    if left_out:
        given[MAX_FIRST_ARGUMENTS_COUNT:-MAX_LAST_ARGUMENTS_COUNT] = []
    warnings = _warnings(arguments)
    room = max(0, most - 1 - len(given) - len(warnings) - bool(left_out))
    shares = _fair([text.count("\n") + 1 if "\n" in text else 0 for _, text in given], room)
    parts = [_argument(name, text, share) for (name, text), share in zip(given, shares, strict=True)]
    if left_out:
        parts.insert(MAX_FIRST_ARGUMENTS_COUNT, f"  … and {left_out:,} more arguments, then the last ones:")
    return "\n".join([visible(tool, lines=False), *parts, *warnings])


def excerpt(text: str, most: int) -> list[str]:
    """The ends of a text in at most `most` lines and MAX_ARGUMENT_CHARS characters; the rest is counted."""
    lines = text.split("\n")
    if len(lines) > most:
        head, tail = most // 2, most - most // 2 - 1
        counted = f"[… {len(lines) - head - tail:,} of {len(lines):,} lines left out …]"
        lines[head : len(lines) - tail] = [counted]
    shares = _fair([len(line) for line in lines], MAX_ARGUMENT_CHARS)
    return [visible(cut_line(line, share), lines=False) for line, share in zip(lines, shares, strict=True)]


def cut_line(text: str, longest: int) -> str:
    """The beginning and the end of a long text, and how much is missing between them."""
    if len(text) <= longest:
        return text
    half = longest // 2
    counted = f"[… {len(text) - 2 * half:,} of {len(text):,} characters left out …]"
    return f"{text[:half]} {counted} {text[len(text) - half :]}"


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _argument(name: str, text: str, most: int) -> str:
    """An argument on so many lines below its name, or beside its name if there is no room for more."""
    if "\n" not in text or most < min(FEWEST_LINES, text.count("\n") + 1):
        return f"  {name}: {visible(cut_line(text, MAX_ARGUMENT_CHARS), lines=False)}"
    return "\n".join([f"  {name}:", *(f"    {line}" for line in excerpt(text, most))])


def _fair(needs: Sequence[int], room: int) -> list[int]:
    """Fair shares of the room: small needs are met in full, the others get equal parts."""
    shares, waiting = [0] * len(needs), len(needs)
    for place in sorted(range(len(needs)), key=needs.__getitem__):
        shares[place] = min(needs[place], room // waiting)
        room -= shares[place]
        waiting -= 1
    return shares


def _warnings(arguments: Mapping[str, Any]) -> list[str]:
    """A line for each argument, also for one that is not shown, with letters that look like others."""
    found = [(key, strange) for key, value in arguments.items() if (strange := look_alikes(f"{key} {_text_of(value)}"))]
    lines = [
        f"  ! {visible(cut_line(str(key), MAX_KEY_CHARS), lines=False)} has letters that look like others: "
        f"{', '.join(strange)}"
        for key, strange in found[:MAX_WARNINGS_COUNT]
    ]
    if len(found) > len(lines):
        lines[-1:] = [f"  ! {len(found) - len(lines) + 1:,} more arguments have such letters"]
    return lines


def visible(text: str, *, lines: bool = True) -> str:
    """The text with control, bidi and invisible characters as codes; line breaks stay unless `lines` is False."""
    if text.isascii() and text.isprintable():
        return text
    safe, accents = [], 0
    for char in text:
        accents = accents + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        stays = (lines and char in "\n\t") or not (accents > MAX_ACCENTS_COUNT or _hides(char))
        safe.append(char if stays else _code(char))
    return "".join(safe)


def _hides(char: str) -> bool:
    selector = "\ufe00" <= char <= "\ufe0f" or "\u180b" <= char <= "\u180f" or "\U000e0100" <= char <= "\U000e01ef"
    odd_space = char.isspace() and char != " "
    return selector or odd_space or char in BLANK_CHARACTERS or unicodedata.category(char) in HIDDEN_CATEGORIES


def _code(char: str) -> str:
    if char in "\n\t":
        return {"\n": "\\n", "\t": "\\t"}[char]
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def look_alikes(text: str) -> list[str]:
    """Characters that a reader would take for others, each with its code and name: `а (U+0430 CYRILLIC …)`."""
    if text.isascii():
        return []
    strange: dict[str, None] = {}
    for word in text[: MAX_ARGUMENT_CHARS * 25].split():
        if word.isascii():
            continue
        letters = [char for char in word if char.isalpha()]
        passes = any(char.isascii() for char in letters) or LATIN_TWINS.issuperset(letters)
        for char in word:
            if not char.isascii() and (_imitates(char) or (passes and _name(char).startswith(LOOK_ALIKE_SCRIPTS))):
                strange[f"{char} (U+{ord(char):04X} {_name(char)})"] = None
    return list(strange)[:MAX_LOOK_ALIKES_COUNT]


def _imitates(char: str) -> bool:
    """Whether a character is another form of an ASCII character, or a sign that looks like one."""
    plain = unicodedata.normalize("NFKC", char)
    return char in LOOK_ALIKE_SIGNS or (len(plain) == 1 and plain.isascii() and not plain.isspace())


def _name(char: str) -> str:
    return unicodedata.name(char, "")
