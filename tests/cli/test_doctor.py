"""The doctor tells the truth about every driver, also of those that cannot run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from handrail.cli.doctor import DriverReport, as_json, examine, render
from handrail.contract.driver import Feature, Guarantee, Standing
from handrail.drivers._cgroup import can_keep
from tests.cli.terminal import ENV, MAIN, WIDTHS, terminal

pytestmark = pytest.mark.anyio

FEATURES = get_args(Feature)


@pytest.fixture(scope="module")
async def reports() -> list[DriverReport]:
    return await examine()


def one(reports: list[DriverReport], name: str) -> DriverReport:
    return next(report for report in reports if report.name == name)


def standings(report: DriverReport) -> dict[str, str]:
    return {guarantee.feature: guarantee.standing for guarantee in report.guarantees}


async def test_every_driver_answers_for_every_promise(reports: list[DriverReport]) -> None:
    assert [report.name for report in reports[:3]] == ["jail", "host", "memory"]
    for report in reports:
        assert [guarantee.feature for guarantee in report.guarantees] == list(FEATURES)
        assert all(guarantee.reason for guarantee in report.guarantees if guarantee.standing != "enforced")


async def test_what_is_said_of_ours_was_tried(reports: list[DriverReport]) -> None:
    assert one(reports, "jail").tried
    assert one(reports, "host").tried
    assert not one(reports, "memory").tried
    assert standings(one(reports, "jail"))["network_isolation"] == "enforced"
    assert standings(one(reports, "host"))["network_isolation"] == "absent"
    limits = {name: standing for name, standing in standings(one(reports, "jail")).items() if name.startswith("limit_")}
    uncounted = os.geteuid() == 0 and not can_keep("processes")  # root without a cgroup
    assert limits.pop("limit_processes") == ("advisory" if uncounted else "enforced")
    assert set(limits.values()) == {"enforced"}
    assert standings(one(reports, "memory"))["exec"] == "absent"


async def test_people_see_the_table_the_reasons_and_what_auto_takes(reports: list[DriverReport]) -> None:
    text = render(reports)
    lines = text.splitlines()
    assert lines[0].split()[:4] == ["promise", "jail", "host", "memory"]
    assert [line.split()[0] for line in lines[1 : len(FEATURES) + 1]] == list(FEATURES)
    assert "limit_memory: advisory: the guard's watch keeps it" in text
    assert text.endswith("auto takes jail.")


async def test_programs_see_the_same(reports: list[DriverReport]) -> None:
    answer = json.loads(as_json(reports))
    assert answer["auto"] == "jail"
    jail = next(driver for driver in answer["drivers"] if driver["name"] == "jail")
    assert jail["works"] is True
    assert {it["feature"]: it["standing"] for it in jail["promises"]} == standings(one(reports, "jail"))


def test_a_driver_that_cannot_run_is_listed_with_what_to_do() -> None:
    absent = tuple(Guarantee(feature, "absent", "it cannot run here") for feature in FEATURES)
    broken = DriverReport("jail", False, absent, problem="no usable bubblewrap: install bubblewrap 0.8 or newer")
    text = render([broken])
    assert "jail cannot run here\n  no usable bubblewrap: install" in text
    assert "auto takes nothing here" in text
    assert json.loads(as_json([broken]))["auto"] is None


def test_auto_does_not_take_a_jail_with_a_missing_wall() -> None:
    guarantees = tuple(Guarantee(it, "absent" if it == "file_isolation" else "enforced", "x") for it in FEATURES)
    assert "auto takes nothing here" in render([DriverReport("jail", True, guarantees, True)])


def test_it_leaves_nothing(tmp_path: Path) -> None:
    code = "import anyio; from handrail.cli.doctor import examine; print(len(anyio.run(examine)))"
    env = {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert int(ran.stdout) >= 3, "the control"
    assert os.listdir(tmp_path) == []


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory with a package whose driver cannot be loaded."""
    place = tmp_path_factory.mktemp("packages")
    (place / "broken-1.dist-info").mkdir()
    (place / "broken-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (place / "broken-1.dist-info/entry_points.txt").write_text("[handrail.drivers]\nbroken = nowhere_at_all:open\n")
    return str(place)


def typed(beside: str, *words: str) -> str:
    """What `handrail doctor` prints."""
    env = {**ENV, "PYTHONPATH": os.pathsep.join([ENV["PYTHONPATH"], beside])}
    command = [sys.executable, "-c", MAIN, "doctor", *words]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True)
    assert ran.stderr == ""
    return ran.stdout


@pytest.fixture(scope="module")
def printed(beside: str) -> tuple[str, str]:
    """For programs, and for people."""
    return typed(beside, "--json"), typed(beside)


def parsed(text: str) -> dict[str, Any]:
    """The table and the reasons that people read, as data: by driver what holds, and why the rest does not."""
    table, *sections, last = text.strip().split("\n\n")
    head, *rows = (line.split() for line in table.splitlines())
    standing = {name: {row[0]: row[place] for row in rows} for place, name in enumerate(head) if place}
    reasons: dict[str, dict[str, str]] = {}
    problems = {}
    for title, *lines in (section.splitlines() for section in sections):
        name = title.split()[0]
        if title.endswith("cannot run here"):
            problems[name] = "\n".join(lines).strip()
            continue
        told = (line.strip().partition(": ") for line in lines)
        reasons[name] = {it: why for listed, _, why in told for it in listed.split(", ") if it in FEATURES}
    return {"standing": standing, "reasons": reasons, "problems": problems, "auto": last}


def expected(answer: dict[str, Any]) -> dict[str, Any]:
    """The same of the form for programs."""
    working = [driver for driver in answer["drivers"] if driver["works"]]
    return {
        "standing": {
            driver["name"]: {it["feature"]: it["standing"] if driver["works"] else "-" for it in driver["promises"]}
            for driver in answer["drivers"]
        },
        "reasons": {
            driver["name"]: {
                it["feature"]: f"{it['standing']}: {it['reason']}" + (f"; {it['remedy']}" if it["remedy"] else "")
                for it in driver["promises"] if it["standing"] != "enforced"
            }
            for driver in working
        },
        "problems": {driver["name"]: driver["problem"] for driver in answer["drivers"] if not driver["works"]},
        "auto": f"auto takes {answer['auto']}.",
    }  # fmt: skip


def test_the_command_prints_json_for_programs_and_the_same_as_a_table_for_people(
    printed: tuple[str, str],
) -> None:
    answer, text = json.loads(printed[0]), printed[1]
    names = [driver["name"] for driver in answer["drivers"]]
    assert (names[:3], "broken" in names) == (["jail", "host", "memory"], True)
    for driver in answer["drivers"]:
        assert [it["feature"] for it in driver["promises"]] == list(FEATURES)
        for it in driver["promises"]:
            assert it["standing"] in get_args(Standing)
            assert bool(it["reason"]) == (it["standing"] != "enforced"), it
    assert text.startswith("promise"), "the control: people get no JSON"
    assert parsed(text) == expected(answer)
    for driver in answer["drivers"]:
        assert all(note in text for note in driver["notes"])


def test_the_command_says_what_to_do_in_both_forms(printed: tuple[str, str]) -> None:
    answer, text = json.loads(printed[0]), printed[1]
    drivers = {driver["name"]: driver for driver in answer["drivers"]}
    wall = next(it for it in drivers["host"]["promises"] if it["feature"] == "network_isolation")
    assert (wall["reason"], wall["remedy"]) == ("commands use this machine's network", "use the jail driver")
    assert f"network_isolation: absent: {wall['reason']}; {wall['remedy']}" in text
    assert drivers["broken"]["remedy"] == "install the driver's package again, or remove it"
    assert (drivers["broken"]["works"], "nowhere_at_all" in drivers["broken"]["problem"]) == (False, True)
    assert f"broken cannot run here\n  {drivers['broken']['problem']}" in text


def test_it_exits_with_1_where_nothing_enforced_can_run() -> None:
    """In a user namespace that allows no others, as some machines are set up."""
    refuse = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "sh", "-c", refuse, "sh", sys.executable, "-c", MAIN, "doctor"]
    ran = subprocess.run([*argv, "--json"], env=ENV, capture_output=True, text=True, timeout=120, check=False)
    answer = json.loads(ran.stdout)
    jail = answer["drivers"][0]
    assert (ran.returncode, answer["auto"], jail["name"], jail["works"]) == (1, None, "jail", False), ran.stderr
    assert "user.max_user_namespaces" in jail["remedy"]
    assert jail["problem"].endswith(jail["remedy"])
    people = subprocess.run(argv, env=ENV, capture_output=True, text=True, timeout=120, check=False)
    assert (people.returncode, "auto takes nothing here" in people.stdout) == (1, True)


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_person_sees_progress_and_lines_that_fit(columns: int, tmp_path: Path) -> None:
    with terminal("doctor", cwd=tmp_path, columns=columns) as screen:
        assert screen.end() == 0
    assert screen.shown.index("trying jail (1 of ") < screen.shown.index("trying host (2 of ")
    assert max(map(len, screen.seen.splitlines())) <= columns
    assert ("promise" in screen.shown) == (columns > 40), "a table where it fits"
    assert "network_isolation" in screen.shown
    assert screen.shown.endswith("auto takes jail.")
