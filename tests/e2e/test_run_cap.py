"""A real server whose sequence cap binds, restarted with a higher one: one page, the right one.

Truth (phases.json): light from minute 0, more than 8 sequences carry from minute 3 to 12, light
until 14; then a restart with max_num_seqs 64 and the same requests again.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from e2e_cases import pages

from driftwatch.cli.main import cli
from driftwatch.collect.recordings.text import RecordingSource


@pytest.fixture
def recording(shared_data: Path) -> Path:
    return shared_data / "vllm-0.32" / "run_cap"


@pytest.fixture(scope="module")
def told(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The pages of a replay with nothing configured."""
    asked = ["replay", str(shared_data / "vllm-0.32" / "run_cap"), "--json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("replayed"))
        return pages(CliRunner().invoke(cli, asked))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_one_page_with_nothing_configured(told: list[dict[str, Any]], recording: Path) -> None:
    assert [(p["event"], p["alert"]) for p in told] == [
        ("firing", "BatchLimitBinding"),
        ("resolved", "BatchLimitBinding"),
    ]
    firing, resolved = told
    start = RecordingSource(recording).span()[0]
    minutes = (_time(firing["times"]["firing_at"]) - start) / timedelta(minutes=1)
    assert 10 <= minutes <= 13
    end = start + timedelta(minutes=29)
    assert _time(resolved["times"]["resolved_at"]) < end
    assert firing["incident"] == resolved["incident"]
    assert firing["severity"] == "page"
    assert firing["diagnosis"]["leaf"] == "concurrency_cap_binding"
    advice = firing["advice"]
    assert advice["action"] == "change"
    (move,) = advice["moves"]
    assert (move["knob"], move["from_value"]) == ("max_num_seqs", 8)
    assert move["from_provenance"] == "inferred"
    assert 16 <= move["to_value"] <= 64
    assert advice["undo"] == "--max-num-seqs 8"


def test_the_first_line_says_where_how_bad_and_what_to_do(told: list[dict[str, Any]]) -> None:
    line = told[0]["summary"]
    assert len(line) <= 120
    assert re.fullmatch(
        r"FIRING host:8000: first token takes \d+(\.\d)? s, (all|\d+ %) of it queueing\. "
        r"Set max_num_seqs 8 \(inferred\) → \d+",
        line,
    ), line


def test_a_known_cap_is_not_called_inferred(run: Any, recording: Path) -> None:
    told = pages(
        run("replay", recording, "--json", "--max-num-seqs", 8, "--max-num-batched-tokens", 1024)
    )
    assert told[0]["advice"]["moves"][0]["from_provenance"] == "command line"
    assert "inferred" not in told[0]["summary"]
    limits = {limit["name"]: limit for limit in told[0]["diagnosis"]["limits"]}
    assert limits["max_num_seqs"]["binds"] is True
    assert limits["max_num_seqs"]["margin_ratio"] < 0.05
    assert 7 < limits["max_num_seqs"]["in_flight_requests"] <= 8
    assert limits["max_num_batched_tokens"]["binds"] is False
    assert limits["max_num_batched_tokens"]["margin_ratio"] > 0.9
