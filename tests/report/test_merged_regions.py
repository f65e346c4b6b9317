"""One report of several regions: theirs side by side, and who could not be read in its head."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from report_cases import FLEET_WEEK, SCENARIO, fleet_span
from schema_cases import problems

from driftwatch.cli.main import cli
from driftwatch.collect.recordings import open_recording
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.fleet.generate import generate_compact
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.pipeline.plan import Plan
from driftwatch.service.history import keep_history
from driftwatch.store.store import Store

CONFIG = """\
sources: [{pages: [http://127.0.0.1:9/metrics]}]
database: driftwatch.db
pools:
  - name: chat-8b
    gpus_per_replica: 1
    slo: {ttft_seconds: 0.1, tpot_seconds: 0.01}
"""
# the same names as in the other region, on three servers for three hours
OTHER: dict[str, Any] = {
    **SCENARIO,
    "duration": "3h",
    "faults": [],
    "pool": {**SCENARIO["pool"], "replicas": 3},  # type: ignore[dict-item]
}


@pytest.fixture(scope="module")
def other_database(tmp_path_factory: pytest.TempPathFactory, fleet_plan: Plan) -> Path:
    folder = tmp_path_factory.mktemp("other")
    generate_compact(Scenario.model_validate(OTHER), 8, folder / "fleet")
    source = open_recording(folder / "fleet")
    with Store.open(folder / "fleet.db") as store:
        keep_history(store, [source], fleet_span(source), fleet_plan)
    source.close()
    return folder / "fleet.db"


@pytest.fixture
def regions(
    fleet_database: Path, other_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    for name, database in (("eu", fleet_database), ("us", other_database)):
        (tmp_path / name).mkdir()
        shutil.copy(database, tmp_path / name / "driftwatch.db")
        (tmp_path / name / "driftwatch.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    # one process's, not every region's
    monkeypatch.setenv("DRIFTWATCH_DATABASE", str(tmp_path / "none.db"))
    return tmp_path


def report(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["report", *arguments])


def document(*arguments: str) -> dict[str, Any]:
    ran = report("--json", *arguments)
    assert ran.exit_code == 0, ran.output
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


BOTH = ("--merge", "eu=eu/driftwatch.yaml", "--merge", "us=us/driftwatch.yaml")
AP = ("--merge", "ap=ap/driftwatch.yaml")


def test_two_regions_and_one_that_cannot_be_read(
    regions: Path, golden: Callable[[str, str], None]
) -> None:
    ran = report(*BOTH, *AP)
    assert ran.exit_code == 0, ran.output
    golden("report/merged-regions.txt", ran.stdout)
    assert report(*AP, *reversed_pairs(BOTH)).stdout == ran.stdout
    assert report(*BOTH, *AP, "--md", "-").stdout == report(*BOTH, *AP, "--md", "-").stdout


def reversed_pairs(words: tuple[str, ...]) -> list[str]:
    pairs = [words[at : at + 2] for at in range(0, len(words), 2)]
    return [word for pair in reversed(pairs) for word in pair]


def test_every_row_of_a_region_is_there_under_its_name(regions: Path) -> None:
    both = document(*BOTH)
    assert problems(both) == []
    alone = {
        name: document("-c", f"{name}/driftwatch.yaml", "--db", f"{name}/driftwatch.db")
        for name in ("eu", "us")
    }
    assert both["fleet"] == {"pools": 2, "servers": 5}
    assert [one["pool"] for one in both["pools"]] == ["eu/chat-8b", "us/chat-8b"]
    for name, one in alone.items():
        mine = [row for row in both["incidents"] if row["id"].startswith(f"{name}/")]
        assert [row["id"].removeprefix(f"{name}/") for row in mine] == [
            row["id"] for row in one["incidents"]
        ]
        drifts = [row for row in both["drift"] if row["pool"] == f"{name}/chat-8b"]
        same = ("family", "figure", "from", "cost", "result")
        assert [{key: row[key] for key in same} for row in drifts] == [
            {key: row[key] for key in same} for row in one["drift"]
        ]
        (region,) = (row for row in both["regions"] if row["name"] == name)
        assert region["reason"] is None
        assert region["servers"] == one["fleet"]["servers"]
        assert region["rules_sha256"] == one["rules"]["sha256"] == both["rules"]["sha256"]
    assert alone["eu"]["regions"] == []
    assert len(both["drift"]) == len(alone["eu"]["drift"]) + len(alone["us"]["drift"]) >= 1
    minutes = [alone[name]["blind"]["server_minutes"] for name in alone]
    assert both["blind"]["server_minutes"] == pytest.approx(sum(minutes))


def test_two_regions_of_the_very_same_names_and_minutes_stay_two(regions: Path) -> None:
    twice = document("--merge", "a=eu/driftwatch.db", "--merge", "b=eu/driftwatch.yaml", *AP)
    assert twice["fleet"]["servers"] == 4
    ids = [one["id"] for one in twice["incidents"]]
    assert len(ids) == len(set(ids)) >= 2
    assert {one.partition("/")[0] for one in ids} == {"a", "b"}
    assert twice["summary"].endswith("; not read: ap")


def test_regions_with_other_rules_are_told_apart(regions: Path) -> None:
    (regions / "own.yaml").write_text(
        "groups:\n  - name: own\n    rules:\n      - alert: PromptsAreOthers\n"
        "        severity: ticket\n        when: prompt_tokens_mean_2m_ratio >= 1.5\n"
    )
    config = regions / "us/driftwatch.yaml"
    config.write_text(f"{CONFIG}rules: [../own.yaml]\n")
    ran = report(*BOTH, "--md", "-")
    assert ran.exit_code == 0, ran.output
    assert "Each region has its own: eu sha256 " in ran.stdout


def _newer(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda us: (us / "driftwatch.db").unlink(), "driftwatch.db"),
        (lambda us: (us / "driftwatch.yaml").unlink(), "driftwatch.yaml"),
        (lambda us: _newer(us / "driftwatch.db"), "version"),
        (lambda us: (us / "driftwatch.db").write_text("no database"), "driftwatch.db"),
        (
            lambda us: (us / "driftwatch.yaml").write_text(
                CONFIG.replace("driftwatch.db", "postgresql://nobody@127.0.0.1:9/none")
            ),
            "127.0.0.1:9",
        ),
    ],
    ids=["no database", "no configuration", "newer database", "no database at all", "down"],
)
def test_a_region_that_cannot_be_read_is_named_with_the_reason(
    regions: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    spoil(regions / "us")
    found = document(*BOTH)
    (us,) = (one for one in found["regions"] if one["name"] == "us")
    assert reason in us["reason"]
    assert (us["servers"], us["until"]) == (0, None)
    assert problems(found) == []
    assert {"label": "NOT READ", "text": f"us: {us['reason']}"} in found["lines"]


def test_with_none_readable_the_command_fails_and_names_them(regions: Path) -> None:
    ran = report(*AP, "--merge", "us=us/none.db")
    assert isinstance(ran.exception, NoVerdict)
    assert ran.exception.message == (
        "no region can be read: ap: ap/driftwatch.yaml: cannot be read: no such file or directory; "
        "us: there is no database us/none.db"
    )


def test_a_week_that_no_region_has_is_refused(regions: Path) -> None:
    ran = report(*BOTH, "--week", FLEET_WEEK.before.name)
    assert isinstance(ran.exception, NoVerdict)
    assert f"; us: not a minute of {FLEET_WEEK.before.name}" in ran.exception.message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--merge", "eu"), "is not NAME=CONFIG"),
        (("--merge", "=x.yaml"), "is not NAME=CONFIG"),
        (("--merge", "e u=x.yaml"), "is not NAME=CONFIG"),
        (("--merge", "eu=x.yaml", "--merge", "eu=y.yaml"), "eu is named twice"),
        (("--merge", "eu=x.yaml", "--db", "y.db"), "--merge names all that is read"),
        (("--merge", "eu=x.yaml", "--max-num-seqs", "8"), "--merge names all that is read"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(arguments: tuple[str, ...], message: str) -> None:
    ran = report(*arguments)
    assert isinstance(ran.exception, UsageError)
    assert message in ran.exception.message
