"""The week of a real server, restarted with a larger max_num_seqs; no configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from driftwatch.cli.main import cli


def test_what_drifted_what_was_done_and_that_it_worked(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = shared_data / "vllm-0.32" / "run_cap"
    ran = CliRunner().invoke(cli, ["report", "--recording", str(folder), "--json"])
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    (row,) = told["moved"]
    assert row["what"] == "max_num_seqs full"
    # the number of ``driftwatch verify`` (tests/e2e/test_verify_command.py)
    assert row["done"] == "max_num_seqs at least 41"
    # the figure that decided
    assert row["result"].startswith("worked, TTFT ")
    assert told["advice"]["verdicts"] == {"PASS": 1, "FAIL": 0, "INCONCLUSIVE": 0}
    assert told["advice"]["forecast_errors"]["itl_seconds_mean"]["n"] == 1
    assert told["for_you"] == []
    sent = 2 * 6661  # the same requests twice (shared/data/README.md)
    assert told["pools"][0]["prompts"]["n"] == pytest.approx(sent, rel=0.01)
    # nobody said a target or counted GPUs, and no baseline tells the speed: none of it is 0
    assert row["missed"]["reason"] == "no latency target (slo in driftwatch.yaml, -c)"
    assert row["gpu_hours_lost"]["low"] is None
    assert row["waited_hours"] > 1
