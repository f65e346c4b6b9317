"""``driftwatch verify`` on real servers, with nothing configured.

Truth of run_cap: max_num_seqs 8, a restart with 64, the same requests at the same offsets again.
The advice it is held against is that of the page, made before the restart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def recording(shared_data: Path) -> Path:
    return shared_data / "vllm-0.32" / "run_cap"


def test_the_raised_cap_passes_with_the_forecast_of_the_first_half(
    run: Any, recording: Path
) -> None:
    result = run("verify", "--recording", recording, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["verdict"] == "PASS"
    assert found["change"]["what"] == {"max_num_seqs": ["8 (most that ran at once)", "at least 41"]}
    # a page of the first half advised it
    assert found["incident_id"] is not None
    effects = {effect["name"]: effect for effect in found["effects"]}
    truth = {p["phase"]: p for p in json.loads((recording / "phase_summary.json").read_text())}
    was, now = truth["cap8_heavy"], truth["cap64_heavy"]
    ttft, itl = effects["ttft_seconds_mean"], effects["itl_seconds_mean"]
    # as a share of what it was: the matched minutes waited 2.5 s, the whole phase 2.8
    change = ttft["before"] * (now["ttft_mean_ms"] / was["ttft_mean_ms"] - 1.0)
    assert ttft["low"] <= change <= ttft["high"] < 0
    assert ttft["low"] >= -ttft["before"]
    change = 1e-3 * (now["itl_mean_ms"] - was["itl_mean_ms"])
    assert itl["low"] <= change <= itl["high"]
    # forecast from the first half, beside the second: every direction is right
    forecast = found["forecast"]
    assert forecast["itl_seconds"] > forecast["today"]["itl_seconds"]
    assert itl["after"] > itl["before"]
    assert itl["after"] == pytest.approx(itl["forecast"], rel=0.25)
    assert forecast["running_requests"] > forecast["today"]["running_requests"]


def test_no_change_is_no_verdict(run: Any, shared_data: Path) -> None:
    said = run("verify", "--recording", shared_data / "vllm-0.32" / "run_slow")
    assert type(said.exception).__name__ == "NoVerdict"
    assert "no change of a setting or a release found in" in str(said.exception)
