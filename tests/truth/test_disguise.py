from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from truth_judge.disguise import disguised, same_findings
from truth_judge.recordings import recorded_case


@pytest.mark.slow
def test_names_dates_and_phases_change_nothing(shared_data: Path, tmp_path: Path) -> None:
    case = recorded_case(shared_data / "vllm-0.32" / "run_cap")
    found = same_findings(case, tmp_path / "hidden")
    assert found["findings"] == 2
    assert found["same"], (found["only_first"], found["only_second"])


def test_the_disguise_hides_what_it_says(shared_data: Path, tmp_path: Path) -> None:
    case = recorded_case(shared_data / "vllm-0.32" / "run_main")
    other, names = disguised(case, tmp_path / "hidden")
    text = other.recording.read_text()
    with gzip.open(case.recording, "rt") as file:
        before = file.read()
    for word in ('"phase"', "prompt_drift", *names):
        assert word in before and word not in text, word
    assert len(text.splitlines()) == len(before.splitlines())
    assert json.loads(text.splitlines()[0])["t"] < json.loads(before.splitlines()[0])["t"]
    assert str(other.recording).find("run_main") < 0
