"""Replace artifact references in arguments by their content, and check the result against schema and rules."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Result
from handrail.policy.judge import judge
from handrail.policy.policy import RuleLists
from handrail.schema.artifact_refs import MARK, is_reference
from handrail.schema.artifact_refs import references as references_in
from handrail.schema.describe import dotted
from handrail.schema.explain import NotConvertible
from handrail.schema.navigate import ROOT, Location
from handrail.schema.parse import NotJson, parse
from handrail.schema.refuse import refuse
from handrail.schema.validate import Problem, Validator
from handrail.toolkit.gate import Next, Step

if TYPE_CHECKING:
    from handrail.artifacts.store import Scope

MAX_FILLED_IN: Final = 512 << 20
"""Bytes of artifacts that one call may have filled in."""
BINARY_FORMATS: Final = frozenset({"binary", "base64", "base64url", "byte"})
"""String formats that mean bytes."""
CONTAINERS: Final = frozenset({dict, list})
Path = tuple[str | int, ...]
Form = Literal["text", "bytes", "json", "any"]


class _Unfit(Exception):
    def __init__(self, path: Path, message: str, expected: str) -> None:
        self.problem = Problem(dotted(path), f"`{dotted(path)}` {message}", expected, "an artifact")


async def references(step: Step, proceed: Next) -> Result:
    """Preflight refuses unknown and incomplete artifacts; one that became so since is refused here."""
    if CONTAINERS.isdisjoint(map(type, step.arguments.values())):
        return await proceed(step)
    found = dict(references_in(step.arguments))
    refused = await _fill_in(step, found) if found else None
    return await proceed(step) if refused is None else refused


async def _fill_in(step: Step, found: Mapping[Path, str]) -> Failure | None:
    tool = step.tool
    try:
        contents = await _contents(step, found)
    except _Unfit as error:
        return refuse(tool.name, tool.checks, [error.problem], step.arguments, convert=tool.convert)
    except ToolFailed as error:  # gone, or changed on disk
        return error.failure
    filled: dict[str, Any] = _with(step.arguments, contents, keep_bytes=True)
    checked = _with(step.arguments, contents, keep_bytes=False)
    if problems := tool.checks.with_references.problems(checked):
        return refuse(tool.name, tool.checks, problems, step.arguments, convert=tool.convert)
    try:
        step.converted = filled if tool.convert is None else tool.convert(filled)
    except NotConvertible as error:
        return refuse(tool.name, tool.checks, error.problems, step.arguments, convert=tool.convert)
    return await _forbidden(step, filled)


async def _contents(step: Step, found: Mapping[Path, str]) -> dict[Path, Any]:
    """The content for each path: bytes, text or JSON, as the schema requires."""
    artifacts, known = step.context.artifacts, {}
    for path, ref in found.items():
        if artifacts.has(ref) and (fault := artifacts.fault(ref)):
            raise _Unfit(path, f"cannot be filled in: {fault}", "an artifact that is whole")
    sizes = {ref: info.size for ref in set(found.values()) if (info := artifacts.info(ref))}
    if sum(sizes.values()) > MAX_FILLED_IN:
        raise _Unfit(next(iter(found)), f"would fill in more than {MAX_FILLED_IN >> 20} MiB", "smaller artifacts")
    contents: dict[Path, Any] = {}
    for path, ref in found.items():
        form = wanted(step.tool.checks, path)
        if (ref, form) not in known:
            known[ref, form] = _as(form, path, await _read(artifacts, ref, path), artifacts.info(ref))
        contents[path] = known[ref, form]
    return contents


async def _read(artifacts: "Scope", ref: str, path: Path) -> bytes:
    try:
        return await artifacts.read(ref)
    except ToolFailed as error:  # name the argument, not the parameter of `read`
        known = error.failure.field is None
        raise error if known else ToolFailed(replace(error.failure, field=dotted(path))) from None


def _as(form: Form, path: Path, data: bytes, info: Any) -> Any:
    media_type = info.media_type if info is not None else ""
    if form == "any":
        form = "json" if "json" in media_type else "text" if media_type.startswith("text/") else "bytes"
    if form == "bytes":
        return data
    try:
        text = data.decode()
        return text if form == "text" else parse(text)
    except UnicodeDecodeError:
        raise _Unfit(path, "takes text, and the artifact is not UTF-8", "an artifact of text") from None
    except NotJson as error:
        raise _Unfit(
            path, f"needs JSON, and the artifact is not JSON: {error.message}", "an artifact of JSON"
        ) from None


def wanted(checks: Validator, path: Path) -> Form:
    """The form that the schema takes at a path: text for a string, bytes for a binary string, otherwise JSON."""
    locations: list[Location] = [ROOT]
    for name in path:
        locations = [inner for location in _branches(checks, locations) if (inner := _inside(checks, location, name))]
    leaves = _branches(checks, locations)
    kinds = [checks.spec(location).kinds for location in leaves]
    if not leaves or (len(leaves) == 1 and kinds[0] is None and not checks.spec(leaves[0]).members):
        return "any"
    texts = [location for location, kind in zip(leaves, kinds, strict=True) if kind and "string" in kind]
    if texts:
        return "bytes" if all(checks.spec(location).get("format") in BINARY_FORMATS for location in texts) else "text"
    return "json"


def _branches(checks: Validator, locations: list[Location]) -> list[Location]:
    """The locations, with each union replaced by its branches."""
    found: list[Location] = []
    waiting = list(locations)
    while waiting and len(found) + len(waiting) < 1_000:
        location = waiting.pop(0)
        unions = checks.spec(location).branches
        if unions:
            waiting += [(pointer,) for _, group in unions for pointer in group]
            if checks.spec(location).properties:
                found.append(location)
        else:
            found.append(location)
    return found


def _inside(checks: Validator, location: Location, name: str | int) -> Location:
    spec = checks.spec(location)
    return spec.item(name) if isinstance(name, int) else spec.properties.get(name, spec.others)


def _with(value: Any, contents: Mapping[Path, Any], *, keep_bytes: bool, path: Path = ()) -> Any:
    """A copy with the contents filled in. Without `keep_bytes`, references to bytes stay references."""
    if path in contents:
        content = contents[path]
        keep = isinstance(content, bytes) and not keep_bytes and is_reference(value)
        return {MARK: value[MARK]} if keep else content
    if isinstance(value, Mapping):
        return {name: _with(item, contents, keep_bytes=keep_bytes, path=(*path, name)) for name, item in value.items()}
    if isinstance(value, list):
        return [_with(item, contents, keep_bytes=keep_bytes, path=(*path, at)) for at, item in enumerate(value)]
    return value


async def _forbidden(step: Step, filled: Mapping[str, Any]) -> Failure | None:
    """Apply deny and ask rules to the content too, so that a reference cannot hide it from them."""
    tool, sandbox = step.tool, step.shared.sandbox
    rules = step.shared.rules_about(tool)
    restricting = RuleLists(ask=rules.ask, deny=rules.deny)
    verdict = await judge("open", restricting, tool, filled, sandbox)
    if verdict.action == "allow":
        return None
    before = await judge("open", restricting, tool, step.arguments, sandbox)
    if verdict.action == "ask" and before.action == "ask":  # a person has approved it
        return None
    advice = "Go on without it" if verdict.action == "deny" else "Send the value itself, so that a person can be asked"
    return Failure("rejected", f"{tool.name} was not run: with the artifact filled in, {verdict.reason}. {advice}.")
