"""The judge's proof: the same stretch through a real Prometheus gives the same findings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from truth_judge.recordings import recorded_case
from truth_judge.sets import Draw
from truth_judge.through_prometheus import same_findings, scenario_the_same

pytestmark = pytest.mark.usefixtures("real_prometheus")

WEDGED = {
    "name": "short-wedge",
    "title": "one of two engines hangs",
    "duration": "20m",
    "pool": {"replicas": 2, "dcgm": False},
    "traffic": {"requests_per_second": 2.0},
    "faults": [{"kind": "wedge", "at": "12m", "replicas": [1]}],
    "truth": {"baseline": {"at": "1m", "until": "11m"}},
}


def test_a_real_servers_page_is_the_same(shared_data: Path) -> None:
    found = same_findings(recorded_case(shared_data / "vllm-0.32" / "run_cap"), step_seconds=5.0)
    assert found["findings"] == 2
    assert found["same"], (found["only_first"], found["only_second"])


def test_a_simulated_fleets_page_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = scenario_the_same(Draw("short-wedge", 5, WEDGED, "shipped"), tmp_path)
    assert found["findings"] >= 1
    assert found["same"], (found["only_first"], found["only_second"])
