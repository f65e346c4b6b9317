from __future__ import annotations

from pathlib import Path

from truth_judge.golden import compare, golden_runs


def test_a_golden_run_is_equal_through_the_command_and_another_setting_is_not(
    shared_data: Path, tmp_path: Path
) -> None:
    runs = {run["name"]: run for run in golden_runs(shared_data)}
    assert len(runs) == 16
    asked = runs["async"]
    found = compare(asked, tmp_path)
    assert found.equal, found
    assert found.steps_equal == found.steps == len(asked["trace"])
    other = compare(asked | {"max_num_seqs": 8}, tmp_path)
    assert not other.equal and other.problem is None
    assert 0 < other.steps_equal < other.steps
    refused = compare(asked | {"max_num_batched_tokens": 8}, tmp_path)
    assert not refused.equal and refused.problem is not None
    assert "max_num_batched_tokens" in refused.problem


def test_runs_without_arrays_are_made_from_the_trace(shared_data: Path) -> None:
    run = next(r for r in golden_runs(shared_data) if r["name"] == "vllm_0.32_golden 1")
    assert len(run["arrival_s"]) == len(run["ttft_s"]) == 800
    assert run["arrival_s"][0] == 0.0
    assert run["prompt_tokens"][0] == run["trace"][0][0] == 374
    assert max(run["prompt_tokens"]) <= run["max_prompt_tokens"]
