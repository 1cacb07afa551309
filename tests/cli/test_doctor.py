"""The doctor tells the truth about every driver, also of those that cannot run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from handrail.cli.doctor import DriverReport, as_json, examine, render
from handrail.contract.driver import Feature, Promise
from handrail.drivers.guard.build import build, stale

pytestmark = pytest.mark.anyio

FEATURES = get_args(Feature)


@pytest.fixture(scope="module", autouse=True)
def _guard() -> None:
    if stale():
        build()


@pytest.fixture(scope="module")
async def reports() -> list[DriverReport]:
    return await examine()


def one(reports: list[DriverReport], name: str) -> DriverReport:
    return next(report for report in reports if report.name == name)


def standings(report: DriverReport) -> dict[str, str]:
    return {promise.feature: promise.standing for promise in report.promises}


async def test_every_driver_answers_for_every_promise(reports: list[DriverReport]) -> None:
    assert [report.name for report in reports[:3]] == ["jail", "host", "memory"]
    for report in reports:
        assert [promise.feature for promise in report.promises] == list(FEATURES)
        assert all(promise.reason for promise in report.promises if promise.standing != "enforced")


async def test_what_is_said_of_ours_was_tried(reports: list[DriverReport]) -> None:
    assert one(reports, "jail").tried
    assert one(reports, "host").tried
    assert not one(reports, "memory").tried
    assert standings(one(reports, "jail"))["network_isolation"] == "enforced"
    assert standings(one(reports, "host"))["network_isolation"] == "absent"
    assert standings(one(reports, "jail"))["limit_processes"] == ("advisory" if os.geteuid() == 0 else "enforced")
    assert standings(one(reports, "memory"))["exec"] == "absent"


async def test_people_see_the_table_the_reasons_and_what_auto_takes(reports: list[DriverReport]) -> None:
    text = render(reports)
    lines = text.splitlines()
    assert lines[0].split()[:4] == ["promise", "jail", "host", "memory"]
    assert [line.split()[0] for line in lines[1 : len(FEATURES) + 1]] == list(FEATURES)
    assert "limit_memory: advisory: needs a cgroup" in text
    assert text.endswith("auto takes jail.")


async def test_programs_see_the_same(reports: list[DriverReport]) -> None:
    answer = json.loads(as_json(reports))
    assert answer["auto"] == "jail"
    jail = next(driver for driver in answer["drivers"] if driver["name"] == "jail")
    assert jail["works"] is True
    assert {it["feature"]: it["standing"] for it in jail["promises"]} == standings(one(reports, "jail"))


def test_a_driver_that_cannot_run_is_listed_with_what_to_do() -> None:
    absent = tuple(Promise(feature, "absent", "it cannot run here") for feature in FEATURES)
    broken = DriverReport("jail", False, absent, problem="no usable bubblewrap: install bubblewrap 0.8 or newer")
    text = render([broken])
    assert "jail cannot run here\n  no usable bubblewrap: install" in text
    assert "auto takes nothing here" in text
    assert json.loads(as_json([broken]))["auto"] is None


def test_auto_does_not_take_a_jail_with_a_missing_wall() -> None:
    promises = tuple(Promise(it, "absent" if it == "file_isolation" else "enforced", "x") for it in FEATURES)
    assert "auto takes nothing here" in render([DriverReport("jail", True, promises, True)])


def test_it_leaves_nothing(tmp_path: Path) -> None:
    code = "import anyio; from handrail.cli.doctor import examine; print(len(anyio.run(examine)))"
    env = {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert int(ran.stdout) >= 3, "the control"
    assert os.listdir(tmp_path) == []
