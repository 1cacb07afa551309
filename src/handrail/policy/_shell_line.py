"""Read a command line as bash does: every command in it, with its words."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from handrail.lazy import Lazy

if TYPE_CHECKING:
    import tree_sitter as _parsers
    import tree_sitter_bash as _bash
else:  # only a rule on a command needs the grammar: 0.9 MB of native code
    _parsers = Lazy("tree_sitter")
    _bash = Lazy("tree_sitter_bash")

UNKNOWN: Final = "\x00"
"""Stand-in for a part of a word that the shell fills in (variable, substitution, wildcard). No line contains it."""
MAX_LINE_CHARS: Final = 100_000
"""Length of the longest line that is read, in characters."""
MAX_NODES_COUNT: Final = 200_000
"""Number of nodes of a syntax tree that are visited."""
_PLAIN: Final = """
    program list pipeline subshell compound_statement negated_command redirected_statement if_statement elif_clause
    else_clause while_statement do_group case_statement case_item command command_name word number string string_content
    raw_string concatenation file_redirect file_descriptor simple_expansion variable_name special_variable_name
    command_substitution process_substitution
"""
PLAIN_NODES: Final = frozenset(_PLAIN.split())
"""Named nodes that change nothing but by the commands in them. Any other node is beyond what a rule can allow."""
EVALUATED_NODES: Final = frozenset({"declaration_command", "unset_command", "test_command", "variable_assignment"})
"""Nodes whose quoted texts the shell may expand later: `declare 'a[$(x)]=1'`, `PS4='$(x)'`."""
_CONTINUED: Final = re.compile(r"\S\\\n\S")
_SUBSTITUTION: Final = re.compile(rb"(?P<escapes>\\*)(?:\$\(|`)")
_WILD: Final = frozenset("*?[")
_LITERAL_ESCAPES: Final = frozenset('$`"\\\n')
"""Characters before which a backslash in double quotes is an escape."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a line."""

    words: tuple[str, ...]
    """Its words without quotes, beginning with its name; a part that is not known is UNKNOWN."""
    assigns: bool = False
    """Whether assignments stand before its name."""
    fed: str | None = None
    """The text of a here-document or here-string that the command reads."""
    piped: bool = False
    """Whether the command reads the output of another."""


@dataclass(frozen=True, slots=True)
class Line:
    """The commands of a line, in the order of their names."""

    commands: tuple[Command, ...]
    plain: bool
    """Whether the line holds only commands: no assignment, function, loop variable, test or redirection to a file."""
    evaluates: bool
    """Whether the shell may run commands that are written inside a quoted text."""


@lru_cache(maxsize=64)
def read_line(line: str) -> Line | None:
    """The commands of a line; None where it is too long, is not bash, or has characters that shells disagree on."""
    if len(line) > MAX_LINE_CHARS or not line.replace("\n", "").replace("\t", "").isprintable():
        return None
    if _CONTINUED.search(line):  # a word that goes on in the next line; the grammar takes it for two
        return None
    source = line.encode("utf-8", "surrogatepass")
    root = _parser().parse(source).root_node
    if root.has_error or _hides_commands(root, source):
        return None
    commands: list[Command] = []
    plain, evaluates = True, False
    for count, node in enumerate(_walk(root)):
        if count > MAX_NODES_COUNT or node.is_missing:
            return None
        if node.type == "command":
            commands.append(_command(node))
        evaluates = evaluates or (node.type in EVALUATED_NODES and _holds_substitution(node))
        plain = plain and _is_plain(node)
    return Line(tuple(commands), plain, evaluates)


@cache
def _parser() -> "_parsers.Parser":
    return _parsers.Parser(_parsers.Language(_bash.language()))


def _walk(root: "_parsers.Node") -> "Iterator[_parsers.Node]":
    """Every node, in the order of the text, without recursion: a hostile line may be nested deeply."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def _hides_commands(root: "_parsers.Node", source: bytes) -> bool:
    """Whether a substitution stands where the grammar sees only text: in `${x#$(y)}`, or escaped in backquotes."""
    known: set[int] = set()
    literal: list[tuple[int, int]] = []
    for node in _walk(root):
        if node.type in ("command_substitution", "arithmetic_expansion"):
            known |= {node.start_byte, node.end_byte - 1}
            if source[node.start_byte : node.start_byte + 1] == b"`" and b"\\" in (node.text or b""):
                return True
        elif node.type in ("raw_string", "ansi_c_string", "comment") or _is_quoted_document(node):
            literal.append((node.start_byte, node.end_byte))
    for found in _SUBSTITUTION.finditer(source):
        at = found.end("escapes")
        if len(found["escapes"]) % 2 or at in known:
            continue
        if not any(start <= at < end for start, end in literal):
            return True
    return False


def _is_quoted_document(node: "_parsers.Node") -> bool:
    """Whether a node is the body of a here-document in which nothing is expanded: `<<'E'`."""
    if node.type != "heredoc_body" or node.parent is None:
        return False
    starts = [each.text or b"" for each in node.parent.children if each.type == "heredoc_start"]
    return bool(starts) and all(start[:1] in (b"'", b'"', b"\\") for start in starts)


def _is_plain(node: "_parsers.Node") -> bool:
    if node.type == "file_redirect":
        return _is_harmless(node)
    if node.type == "compound_statement":  # `(( x ))` is one too
        return node.children[0].type == "{"
    return not node.is_named or node.type in PLAIN_NODES


def _is_harmless(redirect: "_parsers.Node") -> bool:
    """Whether a redirection leads to a descriptor or to /dev/null."""
    target = _destinations(redirect)[0]
    if target.type == "number":
        return any(child.type in (">&", "<&") for child in redirect.children)
    return target.type == "word" and target.text == b"/dev/null"


def _destinations(redirect: "_parsers.Node") -> "list[_parsers.Node]":
    """The target of a redirection. The grammar also counts the words behind it, which are the command's."""
    found = [each for each in redirect.children if each.is_named and each.type != "file_descriptor"]
    return found or [redirect.children[-1]]


def _holds_substitution(node: "_parsers.Node") -> bool:
    """Whether a quoted text in it has what would be a substitution without its quotes."""
    found = list(_walk(node))
    quoted = [each.text or b"" for each in found if each.type in ("raw_string", "ansi_c_string")]
    escaped = [each.text or b"" for each in found if each.type in ("string", "word", "concatenation")]
    if any(mark in text for text in quoted for mark in (b"$(", b"`", b"${", b"\\")):
        return True
    return any(mark in text for text in escaped for mark in (b"\\$", b"\\`"))


def _command(node: "_parsers.Node") -> Command:
    words: list[str] = []
    assigns, fed = False, _fed(node)
    for child in node.children:
        if child.type == "variable_assignment":
            assigns = True
        elif child.type == "herestring_redirect":
            fed = _word(child.children[-1])
        elif child.type == "command_name":
            words.append(_word(child.children[0]) if child.child_count == 1 else UNKNOWN)
        elif child.type not in ("file_redirect", "heredoc_redirect", "subshell"):
            words.append(_word(child))
        elif child.type == "subshell":
            words.append(UNKNOWN)
    words += (_word(each) for redirect in _redirects(node) for each in _destinations(redirect)[1:])
    return Command(tuple(words), assigns, fed, _is_piped(node))


def _redirects(node: "_parsers.Node") -> "list[_parsers.Node]":
    """The redirections of one command, which stand in it or around it."""
    around = node.parent
    outer = around.children if around is not None and around.type == "redirected_statement" else []
    return [each for each in (*node.children, *outer) if each.type == "file_redirect"]


def _fed(node: "_parsers.Node") -> str | None:
    """The here-document that a command reads, also by way of what is around it; UNKNOWN for `< <(…)`."""
    if any(_is_substituted(each) for each in node.children):
        return UNKNOWN
    around: _parsers.Node | None = node
    while around is not None:
        if around.type == "redirected_statement":
            for redirect in around.children:
                if _is_substituted(redirect):
                    return UNKNOWN
                if redirect.type == "heredoc_redirect":
                    bodies = [each for each in redirect.children if each.type == "heredoc_body"]
                    known = all(part.type == "heredoc_content" for body in bodies for part in body.children)
                    known = known and all(
                        _is_quoted_document(each) or b"\\" not in (each.text or b"") for each in bodies
                    )
                    text = "\n".join((body.text or b"").decode("utf-8", "replace") for body in bodies)
                    return text if known else UNKNOWN
                if redirect.type == "herestring_redirect":
                    return _word(redirect.children[-1])
        around = around.parent
    return None


def _is_substituted(redirect: "_parsers.Node") -> bool:
    """Whether it leads from the output of other commands: `< <(…)`."""
    kinds = {each.type for each in redirect.children}
    return redirect.type == "file_redirect" and {"<", "process_substitution"} <= kinds


def _is_piped(node: "_parsers.Node") -> bool:
    inner, around = node, node.parent
    while around is not None:
        if around.type == "pipeline" and around.children[0] != inner:
            return True
        if around.type == "process_substitution" and around.children[0].type == ">(":
            return True
        inner, around = around, around.parent
    return False


def _word(node: "_parsers.Node") -> str:
    """A word as the command gets it."""
    text = (node.text or b"").decode("utf-8", "surrogatepass")
    match node.type:
        case "word" | "number":
            return _unquoted(text)
        case "raw_string":
            return text[1:-1]
        case "ansi_c_string":
            return UNKNOWN if "\\" in text else text[2:-1]
        case "string":
            parts = [_quoted(part) for part in node.children]
            between = len(text) - 2 == sum(len((part.text or b"").decode()) for part in node.children[1:-1])
            return "".join(parts) if between else UNKNOWN
        case "concatenation":
            joined = "".join(_word(part) for part in node.children)
            return UNKNOWN + joined if any(map(_has_brace, node.children)) else joined
        case _:
            return UNKNOWN


def _has_brace(part: "_parsers.Node") -> bool:
    """Whether a part of a word may be a brace expansion, `{a,b}`, which makes several words of one."""
    return part.type == "brace_expression" or (part.type == "word" and not {*b"{}"}.isdisjoint(part.text or b""))


def _quoted(part: "_parsers.Node") -> str:
    """A part of a text in double quotes."""
    if part.type == '"':
        return ""
    if part.type != "string_content":
        return UNKNOWN
    made, text, at = [], (part.text or b"").decode("utf-8", "surrogatepass"), 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text) and text[at + 1] in _LITERAL_ESCAPES:
            at += 1
            made.append("" if text[at] == "\n" else text[at])
        else:
            made.append(text[at])
        at += 1
    return "".join(made)


def _unquoted(text: str) -> str:
    """A bare word: a backslash takes the meaning from the next character; wildcards and `~` are filled in."""
    made, at = [], 0
    while at < len(text):
        char = text[at]
        if char == "\\" and at + 1 < len(text):
            at += 1
            made.append("" if text[at] == "\n" else text[at])
        elif char in _WILD or (char == "~" and at == 0):
            made.append(UNKNOWN)
        else:
            made.append(char)
        at += 1
    return "".join(made)
