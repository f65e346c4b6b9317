"""Lengths drift ×4 and the rate drops on a real server; nothing binds, so nobody is paged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from e2e_cases import iso, pages, phases


@pytest.fixture
def recording(shared_data: Path) -> Path:
    return shared_data / "vllm-0.32" / "run_main"


@pytest.fixture
def baseline(recording: Path) -> str:
    phase = phases(recording)["baseline"]
    return f"{iso(phase['start'])}..{iso(phase['end'])}"


def _explained(run: Any, recording: Path, baseline: str, at: float) -> dict[str, Any]:
    result = run(
        "explain",
        "host:8000",
        "--recording",
        recording,
        "--baseline",
        baseline,
        "--at",
        at,
        "--window",
        "1m",
        "--json",
    )
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


COLUMNS = {
    "prompts": "prompt_tokens_mean",
    "generations": "generation_tokens_mean",
    "requests": "requests_per_second",
}


@pytest.mark.parametrize(
    ("phase", "signal", "factor", "leaf"),
    [
        ("prompt_drift_4x", "prompts", 3.96, "drifted_within_limits"),
        ("gen_drift_4x", "generations", 4.05, "drifted_within_limits"),
        ("rate_drop_to_25pct", "requests", 0.23, "request_rate_drop"),
    ],
)
def test_each_drift_is_named_with_its_factor(
    run: Any, recording: Path, baseline: str, phase: str, signal: str, factor: float, leaf: str
) -> None:
    start = phases(recording)[phase]["start"]
    found = _explained(run, recording, baseline, start + 65 + 60)
    assert found["diagnosis"]["leaf"] == leaf
    for name, column in COLUMNS.items():
        ratio = found["evidence"][f"{column}_ratio"]["value"]
        assert 0.67 < ratio < 1.5 or name == signal, name
        assert name != signal or ratio == pytest.approx(factor, rel=0.15)
    assert found["advice"]["action"] == "none"
    # two and a half minutes say nothing of how far lengths go by themselves
    unknown = found["evidence"]["prompt_tokens_usual_ratio"]
    assert unknown["value"] is None
    assert "less than an hour" in unknown["reason"]


def test_before_the_drifts_it_is_healthy_and_says_when_nobody_judged_the_speed(
    run: Any, recording: Path, baseline: str
) -> None:
    """Two minutes of a baseline arm no load model: unmeasured is not "as before"."""
    at = phases(recording)["baseline"]["start"] + 110
    where = ("--recording", recording, "--baseline", baseline, "--at", at, "--window", "1m")
    text = " ".join(run("explain", "host:8000", *where).stdout.split())
    assert text.startswith("No latency target (slo of its pool), no limit full, lengths as in the ")
    assert "earliest" not in text  # of a baseline's window nothing is to come
    text = run("explain", "host:8000", "--recording", recording, "--at", at).stdout
    assert re.search(r"speed\s+not judged yet", text)


def test_without_a_reference_nothing_is_claimed(run: Any, recording: Path) -> None:
    assert pages(run("replay", recording, "--json")) == []
    at = phases(recording)["prompt_drift_4x"]["start"] + 125
    result = run("explain", "--recording", recording, "--at", at, "--window", "1m", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert "no limit full, lengths not compared (no baseline)" in found["state"]
    assert found["diagnosis"]["leaf"] == "undetermined"
    assert "prompt_tokens_mean_ratio" in found["diagnosis"]["missing"]
    assert found["advice"]["action"] == "none"
