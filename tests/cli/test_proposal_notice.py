"""What is said where driftwatch takes its own proposal, and while it has none."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from driftwatch.cli.history import plan_from
from driftwatch.cli.main import main
from driftwatch.cli.replay_summary import TakenProposals, with_proposals
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.notify.minute_line import speed_line
from driftwatch.service.replay import replay

AT = datetime(2026, 11, 21, 9, 52, tzinfo=UTC)


def test_a_replay_takes_its_own_proposal_and_says_so_once(shared_data: Path) -> None:
    source = RecordingSource(shared_data / "vllm-0.32" / "run_slow")
    start, _ = source.span()
    proposals = TakenProposals()
    said: list[str] = []
    arming: list[str] = []
    span = (start, start + timedelta(minutes=27))
    for outcome in replay(
        [source], span, with_proposals(plan_from(None)), stride=timedelta(minutes=9)
    ):
        proposals.note(outcome.rows)
        said += proposals.lines()
        rows = outcome.rows.filter(pl.col("speed_at_equal_load_ratio").is_null())
        arming += [speed_line(row) for row in rows.iter_rows(named=True)]
    (line,) = said
    assert line.startswith(
        "no baseline given: driftwatch uses the one it proposes, host:8000 2026-"
    )
    assert line.endswith(
        "with a baseline under 24 h, rules page 3 to 10 times as often as with 48 h"
    )
    assert "min)" in line
    assert any(text.startswith("not judged yet: ") and " of 20 minutes" in text for text in arming)


def test_explain_of_a_recording_says_which_proposal_it_took(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = str(shared_data / "vllm-0.32" / "run_slow" / "scrapes.jsonl.gz")

    def told(at: str) -> str:
        words = ["explain", "host:8000", "--at", at, "--recording", recording]
        monkeypatch.setattr(sys, "argv", ["driftwatch", *words])
        with pytest.raises(SystemExit):
            main()
        return capsys.readouterr().err

    line = "driftwatch uses the one it proposes, host:8000 2026-11-21 08:47 to "
    assert told("2026-11-21T09:17Z").count(line) == 1
    assert line not in told("2026-11-21T08:55Z")  # it is still arming
