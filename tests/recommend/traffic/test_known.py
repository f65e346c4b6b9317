from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from observed_cases import MinutesOf, heavy, server

from driftwatch.detect.reference import baseline_of_minutes
from driftwatch.model import Serving, Setting, Slo
from driftwatch.recommend.advice import Question, targets_of
from driftwatch.recommend.scenarios import BUDGETS, configurations_of
from driftwatch.recommend.traffic.from_minutes import observed_from_minutes
from driftwatch.recommend.traffic.observed import Observed, Server, reference_requests

INF = float("inf")


@pytest.fixture(scope="module")
def observed(minutes_of: MinutesOf) -> Observed:
    return observed_from_minutes(heavy(minutes_of("run_cap")), server())


def with_serving(**settings: float) -> Server:
    said = {name: Setting(value, "config") for name, value in settings.items()}
    return replace(server(num_gpu_blocks=8192), serving=Serving(**said))


def test_known_settings_are_one_configuration(observed: Observed) -> None:
    known = configurations_of(
        with_serving(max_num_seqs=8, max_num_batched_tokens=1024, max_model_len=8192), observed
    )
    (one,) = known.configurations
    assert (one.max_num_seqs, one.max_num_batched_tokens, one.max_model_len) == (8, 1024, 8192)
    assert (one.num_gpu_blocks, one.block_size) == (8192, 32)
    assert known.missing == () and known.notes == ()
    one.check()


def test_an_unknown_budget_is_ranged_over_and_never_below_the_cap(observed: Observed) -> None:
    known = configurations_of(with_serving(max_num_seqs=700), observed)
    budgets = [one.max_num_batched_tokens for one in known.configurations]
    assert budgets == [budget for budget in BUDGETS if budget >= 700]
    assert any("must hold for every value from 1,024 to 16,384" in note for note in known.notes)


def test_an_unknown_cap_is_missing(observed: Observed) -> None:
    known = configurations_of(with_serving(max_num_batched_tokens=1024), observed)
    assert known.configurations == () and known.missing == ("max_num_seqs",)


def test_flags_that_the_server_told_are_kept(observed: Observed) -> None:
    told = replace(
        with_serving(max_num_seqs=8, max_num_batched_tokens=1024, max_num_active_seqs=6),
        flags={
            "async_scheduling": "False",
            "scheduling_policy": "priority",
            "long_prefill_token_threshold": "256",
        },
        num_gpu_blocks=None,
        block_size=None,
    )
    known = configurations_of(told, observed)
    (one,) = known.configurations
    assert (one.async_scheduling, one.scheduling_policy) == (False, "priority")
    assert (one.long_prefill_token_threshold, one.max_num_active_seqs) == (256, 6)
    assert one.num_gpu_blocks is None
    assert any(note.startswith("number of KV blocks not given") for note in known.notes)
    assert any(note.startswith("block size not given") for note in known.notes)


def question(minutes_of: MinutesOf, **changes: Any) -> Question:
    rows = minutes_of("run_main")
    return replace(Question(at=rows["end"][-1], minutes=rows, server=server()), **changes)


def test_targets_said_go_before_derived_ones(minutes_of: MinutesOf) -> None:
    reference = {"reference_ttft_seconds_p95": 0.4, "reference_tpot_seconds_p95": 0.02}
    said = question(
        minutes_of, slo=Slo(ttft_seconds=1.0), slo_source="command line", reference=reference
    )
    assert targets_of(said) == (Slo(ttft_seconds=1.0), "command line")
    derived, source = targets_of(question(minutes_of, reference=reference))
    assert source == "derived from the pin"
    assert derived == Slo(0.8, 0.04, 0.95)
    half, source = targets_of(question(minutes_of, reference={"reference_ttft_seconds_p95": 0.4}))
    assert half == Slo(0.8, None, 0.95)
    assert targets_of(question(minutes_of)) == (None, "unknown")
    nothing = question(minutes_of, slo=Slo(), reference=reference)  # a share without a target
    assert targets_of(nothing)[1] == "derived from the pin"


def test_lengths_of_a_pin_on_the_arrivals_of_today(observed: Observed) -> None:
    reference = {
        "reference_prompt_tokens_mean": 300.0,
        "reference_prompt_tokens_edges": [200.0, 500.0, INF],
        "reference_prompt_tokens_buckets": [100.0, 200.0, 200.0],
        "reference_generation_tokens_mean": 64.0,
    }
    found = reference_requests(observed, reference)
    assert found is not None
    today = observed.requests.take(slice(observed.carried_requests, None))
    assert np.array_equal(found.arrival_seconds, today.arrival_seconds)
    assert found.prompt_tokens.mean() == pytest.approx(300.0, abs=0.01)
    assert (found.prompt_tokens > 200).mean() == pytest.approx(0.5, abs=0.001)
    # a mean alone: today's shape, scaled
    assert found.generation_tokens.mean() == pytest.approx(64.0, rel=0.02)
    scaled = today.generation_tokens * 64.0 / today.generation_tokens.mean()
    assert (np.abs(found.generation_tokens - scaled) <= 1).all()
    assert (found.cached_tokens < found.prompt_tokens).all()
    again = reference_requests(observed, reference)
    assert again is not None and np.array_equal(again.prompt_tokens, found.prompt_tokens)


def test_without_lengths_there_is_no_reference(observed: Observed) -> None:
    assert reference_requests(observed, {}) is None
    assert reference_requests(observed, {"reference_ttft_seconds_mean": 0.1}) is None


def test_a_baseline_remembers_the_p95_that_targets_are_derived_from(minutes_of: MinutesOf) -> None:
    rows = minutes_of("run_slow")
    (reference,) = baseline_of_minutes(rows).to_dicts()
    found = observed_from_minutes(rows, server())
    for name, ours in (
        ("reference_ttft_seconds_p95", found.ttft_p95_seconds),
        ("reference_tpot_seconds_p95", found.tpot_p95_seconds),
    ):
        assert reference[name] == pytest.approx(ours)
    derived, source = targets_of(question(minutes_of, reference=reference))
    assert source == "derived from the pin" and derived is not None
    assert derived.ttft_seconds == pytest.approx(2 * reference["reference_ttft_seconds_p95"])
