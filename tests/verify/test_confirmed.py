"""A person records what runs since a restart that no metric explains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from verify_cases import DATA, verifications_of

from driftwatch.cli.main import cli
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.fleet.generate import generate_compact
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.truth import write_truth
from driftwatch.model import TargetKey
from driftwatch.store.store import Store

KEY = TargetKey("host:8000", "0")


DOWN = {
    **{"name": "down", "title": "a server that never answers", "duration": "5m"},
    **{"start": "2026-11-16T00:00:00Z", "truth": {"effects": []}},
    "traffic": {"requests_per_second": 2},
    "faults": [{"kind": "gone", "at": "0s", "until": "5m"}],
}
# a rollout to 24 that nobody writes into driftwatch.yaml
RAISED = {
    **DOWN,
    **{"duration": "45m", "scrape": {"interval": "15s"}, "traffic": {"requests_per_second": 14}},
    "pool": {"name": "p", "replicas": 1, "serving": {"max_num_seqs": 16}},
    "faults": [
        {"kind": "rollout", "at": "20m", "down": "30s", "serving": {"max_num_seqs": 24}},
        {"kind": "rollout", "at": "40m", "down": "30s", "vllm_version": "9.0.0"},
    ],
}


def ran(*words: str) -> Any:
    return CliRunner().invoke(cli, words, catch_exceptions=False)


@pytest.fixture(scope="module")
def database(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("confirmed") / "driftwatch.db")
    ran("replay", str(DATA / "run_cap"), "--max-num-seqs", "8", "--no-advice", "--db", path)
    return path


def test_a_recorded_setting_counts_everywhere_since_its_restart(database: str) -> None:
    db = ("--db", database)
    of_restart = ("verify", "host:8000", "--setting", "max_num_seqs=48", "--at", "08:33", *db)
    assert "runs max_num_seqs 48 since" in ran(*of_restart, "--by", "bo").stderr
    # whoever knows better replaces it
    kept = json.loads(ran(*of_restart[:3], "max_num_seqs=64", *of_restart[4:], "--json").stdout)
    assert kept["verdict"] == "PASS" and kept["confirmed_by"] != "bo"
    assert kept["change"]["what"] == {"max_num_seqs": ["8", "64"]}
    with Store.open(database, migrate=False) as store:
        (one,) = store.confirmed_settings()
        assert one.values == {"max_num_seqs": (8.0, 64.0)}
        # every command reads its rows with it, from the restart to when it was recorded
        first, last = store.minutes_reach() or (one.since, one.at)
        rows = store.past(first, last, [KEY], ["max_num_seqs"])
        caps = {
            end >= one.since: cap for end, cap in rows.select("end", "max_num_seqs").iter_rows()
        }
        assert caps == {False: 8.0, True: 64.0}
        assert len(verifications_of(store)) == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("max_num_seqs=64", "--at", "07:10"), "did not restart within an hour"),
        (("max_num_seqs=64",), "needs SERVER or POOL and the restart"),
        (("max_num_seqs=64", "--setting", "max_num_batched_tokens=3", "--at", "08:33"), "tokens"),
        (("max_num_seqs=9", "--at", "08:33"), "max_num_seqs is not 9, its scrapes .* show 4"),
    ],
)
def test_what_cannot_be_recorded(database: str, words: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        ran("verify", "host:8000", "--db", database, "--setting", *words)


def test_a_file_that_is_wrong_is_not_believed(tmp_path: Path) -> None:
    scenario = Scenario.model_validate(RAISED)
    generate_compact(scenario, 1, tmp_path / "p")
    write_truth(scenario, 1, tmp_path / "p")
    db = ("--db", str(tmp_path / "p.db"), "-c", str(tmp_path / "p" / "driftwatch.yaml"))
    ran("replay", str(tmp_path / "p"), "--no-advice", *db)
    known = ran("verify", *db)
    assert "max_num_seqs 16 → 24 (most that ran at once)" in known.stdout
    # an id is a name, and a pool's exit code is that of its outcome
    verdict = ran("verify", known.stdout[:12], "--at", "00:39", *db).stdout.splitlines()
    assert verdict[0].startswith("PASS: IT WORKED")
    assert "max_num_seqs 24 (inferred)" in ran("explain", "p", *db).stdout
    assert "driftwatch.yaml, and record it: driftwatch verify p --setting max_num_seqs=24" in (
        ran("report", *db).stdout
    )
    early = ran("verify", "p", "--at", "00:23", *db)  # its verdict came later
    assert early.exit_code == 4 and "a verdict needs 10 of each" in early.stdout
    right = tmp_path / "right.yaml"
    wrong = (tmp_path / "p" / "driftwatch.yaml").read_text(encoding="utf-8")
    right.write_text(wrong.replace("max_num_seqs: 16", "max_num_seqs: 24"), encoding="utf-8")
    assert "says 16" not in ran("report", *db[:2], "-c", str(right)).stdout
    record = ("verify", "p", "--setting", "max_num_seqs=320", "--at", "00:20", *db)
    with pytest.raises(UsageError, match="at most 24 ran while requests queued"):
        ran(*record)
    # a person who confirms what the scrapes show moves no verdict
    told = ran(*record[:3], "max_num_seqs=24", *record[4:], "--by", "bo").stdout
    assert "24 (says bo)" in told and "9.0.0" not in told  # no later change
    after = ran("verify", known.stdout[:12], "--at", "00:39", *db).stdout.splitlines()
    assert "24 (says bo)" in after[1] and [after[0], *after[2:]] == [verdict[0], *verdict[2:]]


def test_without_a_usable_scrape_there_is_no_verdict(tmp_path: Path) -> None:
    generate_compact(Scenario.model_validate(DOWN), 1, tmp_path / "down")
    with pytest.raises(NoVerdict):
        ran("replay", str(tmp_path / "down"), "--db", str(tmp_path / "x.db"))
    with pytest.raises(NoVerdict, match="no usable scrape in the day"):
        ran("verify", "--db", str(tmp_path / "x.db"))
