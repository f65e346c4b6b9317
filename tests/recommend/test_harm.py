"""Changes that people make and that hurt: none of them is advised."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from advice_cases import AT, H100_8B, answer_of, prepared_of, requests_of, server_with
from recorded_questions import question_at

from driftwatch.errors import WorkloadError
from driftwatch.model import Setting, Slo
from driftwatch.recommend.advice import Question
from driftwatch.recommend.advise import advise
from driftwatch.recommend.candidates import SATURATED
from driftwatch.signals.minutes import no_minutes
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.trial import simulate

BLOCKS = 27_000


@pytest.mark.slow
def test_raising_a_token_budget_of_2048_is_not_advised() -> None:
    """Long prompts fill every step and the demand is above what the GPU computes: what a larger
    budget gives back is a few percent of capacity, and each step of it takes longer."""
    requests, budget = requests_of(9, 4000, 150), 2048
    today = SchedulerConfiguration(256, budget, BLOCKS, enable_prefix_caching=True)
    answer = answer_of(requests, today, Slo(1.0, 0.03))
    said = answer.recommendation
    assert not (said.knob == "max_num_batched_tokens" and (said.to_value or 0) > budget)
    assert said.action == "none"
    # line 1 says the first of them: what serves this demand, and not what only eases it
    assert "replica" in said.instead[0] and any("cached" in words for words in said.instead)

    ground = prepared_of(
        requests, SchedulerConfiguration(256, budget, BLOCKS), Slo(1.0, 0.03)
    ).ground
    scenario = ground.scenarios[0]
    today = ground.measured(scenario, {}, scraped=True)
    raised = ground.measured(scenario, {"max_num_batched_tokens": 2.0 * budget}, scraped=True)
    assert today is not None and raised is not None
    assert raised.itl_p99_seconds > 1.2 * today.itl_p99_seconds  # type: ignore[operator]


def test_raising_max_num_seqs_when_the_kv_cache_binds_is_not_advised() -> None:
    requests = requests_of(9, 400, 450)
    configuration = SchedulerConfiguration(64, 2048, 800)
    answer = answer_of(requests, configuration, Slo(2.0, 0.05), replicas=2)
    said = answer.recommendation
    assert said.action == "none" and said.knob is None
    assert answer.today is not None and (answer.today.preemptions or 0) > 0.5  # it does bind
    ground = prepared_of(requests, configuration, Slo(2.0, 0.05)).ground
    scenario, more = ground.scenarios[0], {"max_num_seqs": 128.0}
    today, raised = ground.measured(scenario, {}), ground.measured(scenario, more)
    assert today is not None and raised is not None
    assert raised.in_target_ratio <= today.in_target_ratio + 0.01
    assert raised.preemptions >= 0.9 * today.preemptions
    assert any("fp8 KV cache" in words for words in said.instead)


def test_a_budget_that_is_full_four_steps_in_ten_is_no_alarm_in_a_healthy_server() -> None:
    requests = requests_of(11.5, 1200, 120)
    configuration = SchedulerConfiguration(256, 512, BLOCKS)
    steps = simulate(requests, configuration, H100_8B["linear"], per_step=True).steps
    seconds = steps["end_seconds"] - steps["start_seconds"]
    full = steps["prefill_tokens"] + steps["decode_seqs"] >= 512
    assert 0.3 <= float((seconds * full).sum()) / float(seconds.sum()) <= 0.6
    answer = answer_of(requests, configuration, Slo(1.0, 0.05))
    assert answer.recommendation.action == "no_action"
    assert "of capacity" in answer.recommendation.why


@cache
def _at_the_cap(shared: Path) -> Question:
    asked = question_at(shared / "vllm-0.32" / "run_cap", 12)
    # vLLM's default on a CPU, which the run had; unknown, each answer takes several times as long
    known = replace(asked.server.serving, max_num_batched_tokens=Setting(2048, "config"))
    return replace(asked, server=replace(asked.server, serving=known))


def test_a_queue_of_deferred_requests_is_not_answered_with_a_knob(shared_data: Path) -> None:
    """Requests wait, and the scheduler says that LoRA slots, KV transfer or grammar hold them."""
    asked = _at_the_cap(shared_data)
    deferred = {**asked.evidence, "binding_limit": "deferred"}
    answer = advise(replace(asked, evidence=deferred))
    assert answer.recommendation.action == "none"
    assert "deferred" in answer.recommendation.why
    assert advise(replace(asked, leaf="deferred_admission")).recommendation.knob is None


def test_a_slowed_engine_whose_batch_hit_the_cap_is_not_told_to_raise_it(
    shared_data: Path,
) -> None:
    """The same recorded window ends in a change where the engine keeps its speed."""
    asked = _at_the_cap(shared_data)
    assert asked.evidence["binding_limit"] == "max_num_seqs"
    slowed = {**asked.evidence, "slower_at_equal_load": True, "speed_at_equal_load_ratio": 0.81}
    answer = advise(replace(asked, evidence=slowed))
    assert answer.recommendation.action == "none"
    assert answer.recommendation.why == "do not change a knob: slower at equal load: 19 %"
    for leaf in ("replica_slow", "version_change", "gpu_throttled", "engine_stuck"):
        assert advise(replace(asked, leaf=leaf)).recommendation.action == "none"


def test_a_saturated_window_without_a_request_log_is_answered_on_capacity(
    shared_data: Path,
) -> None:
    """Requests wait in most scrapes of the real server's window: a TTFT cannot be simulated there,
    which is no reason to refuse."""
    answer = advise(_at_the_cap(shared_data), table=False)
    said = answer.recommendation
    assert said.action == "change" and said.basis == "simulation"
    assert (said.knob, said.from_value, said.from_provenance) == ("max_num_seqs", 8.0, "inferred")
    assert 16 <= (said.to_value or 0) <= 64
    today, then = answer.today, answer.advised
    assert today is not None and then is not None
    assert today.ttft_seconds is None and today.ttft_p95_seconds is None
    assert today.reasons["ttft_seconds"] == SATURATED
    assert not any("TTFT" in words for words in (*said.effect, *said.price))
    assert today.capacity_requests_per_second and then.capacity_requests_per_second
    assert then.capacity_requests_per_second > 1.2 * today.capacity_requests_per_second


def test_a_request_alone_that_misses_its_target_is_no_matter_of_knobs() -> None:
    """An SLO that no configuration can meet."""
    answer = answer_of(
        requests_of(4, 1200, 150), SchedulerConfiguration(256, 512, BLOCKS), Slo(0.001, 0.001)
    )
    assert answer.recommendation.action == "none"
    assert "requests that are served alone" in answer.recommendation.why
    assert not any("replica" in words for words in answer.recommendation.instead)


@pytest.mark.slow
def test_a_model_and_a_gpu_that_no_table_knows_are_named(shared_data: Path) -> None:
    asked = _at_the_cap(shared_data)
    server = replace(asked.server, model="acme/own-7b", gpu="Acme X1")
    answer = advise(replace(asked, server=server), table=False)
    assert answer.calibration is not None and not answer.calibration.prior_known
    assert "acme/own-7b" in answer.calibration.prior or "Acme X1" in answer.calibration.prior
    assert any("not corrected" in note and "acme/own-7b" in note for note in answer.notes)
    assert answer.recommendation.action in ("change", "insufficient")


def test_unknown_settings_are_named(shared_data: Path) -> None:
    asked = _at_the_cap(shared_data)
    unknown = replace(asked.server, serving=replace(asked.server.serving, max_num_seqs=None))
    answer = advise(replace(asked, server=unknown))
    assert answer.recommendation.action == "insufficient"
    assert "max_num_seqs" in answer.recommendation.why


def test_nothing_seen_is_no_verdict() -> None:
    configuration = SchedulerConfiguration(8, 512, BLOCKS)
    answer = advise(Question(AT, no_minutes(), server_with(configuration)))
    assert answer.recommendation.action == "insufficient"
    assert answer.gates and not answer.gates[0].passed


def test_a_request_log_that_contradicts_the_metrics_is_refused_with_both_numbers(
    shared_data: Path,
) -> None:
    """A tenth of the requests that the server counted."""
    asked = _at_the_cap(shared_data)
    with pytest.raises(WorkloadError) as caught:
        advise(replace(asked, log=requests_of(1, 100, 100)))
    assert any(digit.isdigit() for digit in str(caught.value))


def test_two_knobs_that_are_asked_for_together_are_one_candidate() -> None:
    both = {"max_num_seqs": 128.0, "max_num_batched_tokens": 1024.0}
    answer = answer_of(
        requests_of(4, 600, 150),
        SchedulerConfiguration(64, 2048, BLOCKS),
        Slo(1.0, 0.05),
        what_if=both,
    )
    (found,) = [one for one in answer.what_ifs if dict(one.knobs) == both]
    assert found.in_target_ratio is not None and found.capacity_requests_per_second
    refused = answer_of(
        requests_of(4, 600, 150),
        SchedulerConfiguration(64, 2048, BLOCKS),
        Slo(1.0, 0.05),
        what_if={"max_num_seqs": 512.0, "max_num_batched_tokens": 256.0},
    )
    assert any("vLLM refuses to start" in (one.refused or "") for one in refused.what_ifs)
