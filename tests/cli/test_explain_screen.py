"""Whole screens of ``driftwatch explain`` of real servers, by the shipped rules and trees."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_cases import Run

import driftwatch

CAP = Path(driftwatch.__file__).parent / "_demo" / "run_cap.jsonl.gz"
AT_THE_CAP = ("--at", "2026-11-21T08:30Z", "--baseline", "2026-11-21T08:34Z..2026-11-21T08:46Z")
# prompts are four times as long, and no limit is full
LONGER = (
    *("--at", "2026-11-21T01:40Z", "--window", "2m"),
    *("--baseline", "2026-11-21T01:35:30Z..2026-11-21T01:37:30Z"),
)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, shared_data: Path, tmp_path: Path) -> None:
    """A folder with both recordings, so that no path of this machine is printed."""
    monkeypatch.chdir(tmp_path)
    Path("cap.jsonl.gz").symlink_to(CAP)
    Path("drift.jsonl.gz").symlink_to(shared_data / "vllm-0.32/run_main/scrapes.jsonl.gz")


@pytest.mark.usefixtures("here")
def test_a_full_limit_is_answered_first_and_then_explained(
    run: Run, golden: Callable[[str, str], None]
) -> None:
    code, out, _ = run("explain", "--recording", "cap.jsonl.gz", *AT_THE_CAP)
    golden("explain/cap.txt", out)
    assert code == 0


@pytest.mark.usefixtures("here")
def test_longer_prompts_without_a_full_limit_as_text_and_as_json(
    run: Run, golden: Callable[[str, str], None]
) -> None:
    where = ("explain", "--recording", "drift.jsonl.gz", *LONGER)
    golden("explain/drift.txt", run(*where)[1])
    _, out, _ = run(*where, "--json")
    golden("explain/drift.json", json.dumps(_rounded(json.loads(out)), indent=1) + "\n")


def test_a_proposal_that_is_used_for_a_baseline_is_named(run: Run, shared_data: Path) -> None:
    recording = shared_data / "vllm-0.32/run_slow/scrapes.jsonl.gz"
    words = ("explain", "host:8000", "--recording", recording, "--at")
    line = "driftwatch uses the one it proposes, host:8000 2026-11-21 08:47 to "
    assert run(*words, "2026-11-21T09:17Z")[2].count(line) == 1
    assert line not in run(*words, "2026-11-21T08:55Z")[2]  # it is still arming
