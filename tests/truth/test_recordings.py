from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from truth_judge.commands import explained, leaf_of, replayed
from truth_judge.disguise import disguised, same_findings
from truth_judge.facts import Finding
from truth_judge.matching import alarms, detections
from truth_judge.recordings import recorded_case, recorded_cases


def test_the_truth_of_the_recordings_is_what_was_sent_and_injected(shared_data: Path) -> None:
    cases = {case.name: case for case in recorded_cases(shared_data / "vllm-0.32")}
    told = {
        name: [(e.cell, e.leaf, sorted(e.rules), e.knob) for e in case.episodes]
        for name, case in cases.items()
    }
    assert told == {
        "run_main": [
            ("prompt_length 4", "drifted_within_limits", ["LengthDrift"], None),
            ("generation_length 4", "drifted_within_limits", ["LengthDrift"], None),
            ("rate 0.25", "request_rate_drop", [], None),
        ],
        "run_cap": [
            ("sequence_cap", "concurrency_cap_binding", ["BatchLimitBinding"], "max_num_seqs")
        ],
        "run_slow": [("slowdown 0.25", "scheduler_regression", ["SlowerAtEqualLoad"], None)],
    }
    assert all(case.reference is not None for case in cases.values())


@pytest.mark.slow
def test_a_real_page_is_found_through_the_public_commands(shared_data: Path) -> None:
    (case,) = (c for c in recorded_cases(shared_data / "vllm-0.32") if c.name == "run_cap")
    findings, seconds = replayed(case)
    (found,) = detections([case.stretch(findings)])
    assert found.delay_seconds is not None and 480 <= found.delay_seconds <= 660
    assert found.finding is not None and found.finding.knob == "max_num_seqs"
    assert found.finding.before == 8 and (found.finding.after or 0) > 8
    assert found.finding.leaf == "concurrency_cap_binding"
    assert [a.verdict for a in alarms([case.stretch(findings)])] == ["found"]
    assert seconds > 0
    told = explained(case, case.instances[0], case.episodes[0].end_seconds)
    assert leaf_of(told) == "concurrency_cap_binding"


def test_a_recovered_phase_is_healthy_from_its_first_second(shared_data: Path) -> None:
    cases = {case.name: case for case in recorded_cases(shared_data / "vllm-0.32")}
    main, slow = cases["run_main"], cases["run_slow"]
    prompts, generations, _ = main.episodes
    assert prompts.until_seconds < generations.start_seconds

    def drift(at: float) -> Finding:
        return Finding("firing", "LengthDrift", "notice", at, at, frozenset({main.instances[0]}))

    recovered = (prompts.end_seconds + generations.start_seconds) / 2
    seen = main.stretch([drift(recovered), drift(generations.end_seconds - 60)])
    assert [a.verdict for a in alarms([seen])] == ["false", "found"]
    found = [d.finding for d in detections([seen]) if d.finding is not None]
    assert found == [seen.findings[1]]  # one finding, one episode
    (engine,) = slow.episodes
    late = Finding("firing", "SlowerAtEqualLoad", "page", engine.end_seconds + 60, 0.0)
    assert [a.verdict for a in alarms([slow.stretch([late])])] == ["false"]


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
