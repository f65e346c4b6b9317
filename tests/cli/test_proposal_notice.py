"""What is said where driftwatch takes its own proposal, and while it has none."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from driftwatch.cli.main import main

AT = datetime(2026, 11, 21, 9, 52, tzinfo=UTC)


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
