"""Read a docstring: what the tool does, and what each parameter is."""

from dataclasses import dataclass, field
from inspect import cleandoc

from docstring_parser import Docstring, DocstringMeta, DocstringParam, DocstringReturns, ParseError, parse


@dataclass(frozen=True, slots=True)
class Documented:
    """A docstring of Google, NumPy or reST style, taken apart."""

    description: str = ""
    """Everything but the parameter section."""
    parameters: dict[str, str] = field(default_factory=dict)


def read_docstring(text: str | None) -> Documented:
    """Never fails: a docstring of no known style is all description."""
    text = cleandoc(text or "")
    try:
        parsed = parse(text)
    except ParseError:
        return Documented(text)
    parameters = {
        entry.arg_name: " ".join((entry.description or "").split())
        for entry in parsed.meta
        if isinstance(entry, DocstringParam) and entry.description
    }
    return Documented(_description(parsed), parameters)


def _description(parsed: Docstring) -> str:
    head = [parsed.short_description, parsed.long_description]
    parts = [part.strip() for part in head if part and part.strip()]
    notes = [_note(entry) for entry in parsed.meta if not isinstance(entry, DocstringParam) and entry.description]
    return "\n\n".join([*parts, *notes])


def _note(entry: DocstringMeta) -> str:
    label = "Returns" if isinstance(entry, DocstringReturns) else " ".join(entry.args).capitalize()
    return f"{label}: {' '.join((entry.description or '').split())}"
