"""The closed-form value of one knob: bounds, capture sizes, ceilings, and every "none"."""

from __future__ import annotations

import doctest
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftwatch.diagnose.tree import Leaf
from driftwatch.model import Diagnosis, Recommendation, Serving, Setting
from driftwatch.recommend import closed_form
from driftwatch.recommend.closed_form import capture_size_at_least, recommend

# vLLM 0.32 config/vllm.py _set_cudagraph_sizes, and the same steps beyond the largest
SIZES = [1, 2, 4, *range(8, 256, 8), *range(256, 20_000, 16)]

CAP = Leaf("concurrency_cap_binding", "change", "the cap is full", knob="max_num_seqs")
BUDGET = Leaf("token_budget_binding", "change", "the budget is full", knob="max_num_batched_tokens")
WALKED = Diagnosis("batch-size-drift", "leaf", ())


def serving(**values: float) -> Serving:
    return Serving(**{name: Setting(value, "config") for name, value in values.items()})


def raised_seqs(now: float, demand: float, **evidence: Any) -> Recommendation:
    return recommend(
        CAP, WALKED, {"binding_requests": demand, **evidence}, serving(max_num_seqs=now)
    )


def raised_budget(now: float, demand: float | None, allows: float | None) -> Recommendation:
    evidence = {"binding_requests": demand, "allows_max_num_batched_tokens": allows}
    return recommend(BUDGET, WALKED, evidence, serving(max_num_batched_tokens=now))


def test_the_doctests_hold() -> None:
    found = doctest.testmod(closed_form)
    assert found.attempted > 0
    assert found.failed == 0


@given(st.floats(0.01, 18_000))
def test_a_capture_size_is_the_next_one(requests: float) -> None:
    assert capture_size_at_least(requests) == next(s for s in SIZES if s >= requests)


# --- max_num_seqs


@pytest.mark.parametrize(
    ("now", "demand", "to"),
    [
        (8, 39.0, 40),  # the demand, up to the next capture size
        (8, 9.0, 16),  # at least doubled
        (8, 400.0, 64),  # at most eightfold
        (1, 1.5, 2),
        (1, 100.0, 8),
        (2, 3.0, 4),
        (64, 130.0, 136),
        (128, 249.5, 256),
        (256, 513.0, 528),
    ],
)
def test_the_cap_follows_the_demand(now: float, demand: float, to: float) -> None:
    found = raised_seqs(now, demand)
    assert (found.action, found.knob, found.from_value, found.to_value) == (
        "change",
        "max_num_seqs",
        now,
        to,
    )
    assert found.undo == f"--max-num-seqs {now:g}"
    assert found.price[0] == "restart"
    assert found.wrong_if


@given(
    now=st.integers(1, 1024),
    demand=st.floats(0, 20_000),
    kv=st.none() | st.floats(0, 5000),
    budget_allows=st.none() | st.floats(0, 5000),
    budget=st.none() | st.integers(1, 16384),
)
def test_no_ceiling_is_ever_passed(
    now: int, demand: float, kv: float | None, budget_allows: float | None, budget: int | None
) -> None:
    found = raised_seqs(
        now,
        demand,
        allows_kv_cache=kv,
        allows_max_num_batched_tokens=budget_allows,
        max_num_batched_tokens=budget,
    )
    ceilings = [c for c in (kv, budget_allows, budget) if c is not None]
    if found.action == "none":
        # only where a ceiling leaves no capture size above what is set
        assert min(ceilings) < next(s for s in SIZES if s > now)
        assert "do not raise max_num_seqs" in found.reason
        assert found.to_value is None
        return
    assert found.to_value is not None
    assert found.to_value > now
    assert found.to_value in SIZES
    assert all(found.to_value <= c for c in ceilings)
    assert found.to_value <= next(s for s in SIZES if s >= 8 * now)


@pytest.mark.parametrize(
    ("ceiling", "named"),
    [
        ("allows_kv_cache", "KV cache"),
        ("allows_max_num_batched_tokens", "token budget"),
        ("max_num_batched_tokens", "max_num_batched_tokens"),
    ],
)
def test_what_holds_it_back_is_named(ceiling: str, named: str) -> None:
    found = raised_seqs(64, 200.0, **{ceiling: 65.0})
    assert found.action == "none"
    assert named in found.reason
    assert "65" in found.reason
    lower = raised_seqs(64, 200.0, **{ceiling: 100.0})
    assert (lower.action, lower.to_value) == ("change", 96.0)


def test_an_inferred_cap_is_said_to_be_inferred() -> None:
    evidence = {"binding_requests": 30.0, "max_num_seqs": 8.0, "max_num_seqs_inferred": True}
    found = recommend(CAP, WALKED, evidence, Serving())
    assert (found.from_value, found.from_provenance, found.to_value) == (8.0, "inferred", 32.0)


def test_an_unknown_cap_changes_nothing() -> None:
    found = recommend(CAP, WALKED, {"binding_requests": 30.0}, Serving())
    assert (found.action, found.reason) == ("none", "max_num_seqs unknown")
    assert found.knob is None


def test_an_unknown_demand_changes_nothing_and_is_not_called_an_unknown_cap() -> None:
    found = recommend(CAP, WALKED, {}, serving(max_num_seqs=8))
    assert found.action == "none"
    assert "max_num_seqs unknown" not in found.reason
    assert found.reason


def test_unknown_kv_room_is_said() -> None:
    assert any("KV room unknown" in p for p in raised_seqs(8, 39.0).price)
    found = raised_seqs(8, 39.0, allows_kv_cache=500.0)
    assert any("holds 500 requests" in p for p in found.price)


def test_max_num_active_seqs_is_what_is_raised_where_it_caps() -> None:
    """Raising max_num_seqs above a lower max_num_active_seqs would change nothing."""
    settings = serving(max_num_seqs=64, max_num_active_seqs=8)
    evidence = {"binding_requests": 39.0, "max_num_seqs": 8.0}
    found = recommend(CAP, WALKED, evidence, settings)
    assert (found.knob, found.from_value, found.to_value) == ("max_num_active_seqs", 8.0, 40.0)
    assert found.undo == "--max-num-active-seqs 8"
    # and never above max_num_seqs: vLLM refuses that
    high = recommend(CAP, WALKED, {**evidence, "binding_requests": 4000.0}, settings)
    assert high.to_value == 64.0
    tight = recommend(CAP, WALKED, evidence, serving(max_num_seqs=12, max_num_active_seqs=8))
    assert tight.action == "none"
    assert "max_num_seqs" in tight.reason


def test_max_num_active_seqs_above_the_cap_does_not_matter() -> None:
    settings = serving(max_num_seqs=8, max_num_active_seqs=8)
    found = recommend(CAP, WALKED, {"binding_requests": 39.0, "max_num_seqs": 8.0}, settings)
    assert (found.knob, found.to_value) == ("max_num_seqs", 40.0)


# --- max_num_batched_tokens


@pytest.mark.parametrize(
    ("now", "demand", "allows", "to"),
    [
        (256, 20.0, 10.0, 512),
        (256, 50.0, 10.0, 2048),  # 1280 tokens, the next power of two
        (256, 11.0, 10.0, 512),  # at least doubled
        (128, 1000.0, 10.0, 1024),  # at most eightfold
        (512, 1000.0, 10.0, 2048),  # there the gain ends
        (1536, 20.0, 10.0, 2048),
        (2047, 20.0, 10.0, 2048),
    ],
)
def test_the_budget_follows_the_demand(now: float, demand: float, allows: float, to: float) -> None:
    found = raised_budget(now, demand, allows)
    assert (found.action, found.knob, found.to_value) == ("change", "max_num_batched_tokens", to)
    assert found.undo == f"--max-num-batched-tokens {now:g}"
    assert "restart" in found.price


@given(now=st.integers(16, 2047), demand=st.floats(0.1, 1e5), allows=st.floats(0.1, 1e5))
def test_the_budget_is_a_power_of_two_in_bounds(now: int, demand: float, allows: float) -> None:
    to = raised_budget(now, demand, allows).to_value
    assert to is not None
    assert now < to <= 2048
    assert math.log2(to).is_integer()


@pytest.mark.parametrize("now", [2048, 4096, 16384])
def test_from_2048_tokens_the_budget_is_left_alone(now: float) -> None:
    found = raised_budget(now, 500.0, 10.0)
    assert found.action == "none"
    assert "2048" in found.reason
    assert found.knob is None


def test_an_unknown_budget_changes_nothing() -> None:
    evidence = {"binding_requests": 30.0, "allows_max_num_batched_tokens": 10.0}
    found = recommend(BUDGET, WALKED, evidence, Serving())
    assert (found.action, found.reason) == ("none", "max_num_batched_tokens unknown")


@pytest.mark.parametrize(("demand", "allows"), [(None, 10.0), (30.0, None)])
def test_what_the_budget_is_sized_by_is_named_where_unknown(
    demand: float | None, allows: float | None
) -> None:
    found = raised_budget(512, demand, allows)
    assert found.action == "none"
    assert found.reason
    assert "max_num_batched_tokens unknown" not in found.reason


# --- leaves that change nothing


@pytest.mark.parametrize("kind", ["none", "notice", "healthy"])
def test_other_leaves_never_change_a_knob(kind: Any) -> None:
    leaf = Leaf("x", kind, "meaning", advice="Do not change a knob; drain it")
    found = recommend(
        leaf, WALKED, {"binding_requests": 30.0, "max_num_seqs": 8.0}, serving(max_num_seqs=8)
    )
    assert (found.action, found.knob, found.to_value) == ("none", None, None)
    assert found.reason == "Do not change a knob; drain it"


def test_undetermined_never_changes_a_knob() -> None:
    walked = Diagnosis("t", "undetermined", (), missing=("slo_missed", "x"))
    found = recommend(None, walked, {"binding_requests": 30.0}, serving(max_num_seqs=8))
    assert (found.action, found.reason) == ("none", "undetermined: slo_missed, x unknown")


def test_a_knob_without_a_closed_form_is_not_guessed() -> None:
    leaf = Leaf("x", "change", "meaning", knob="block_size")
    found = recommend(leaf, WALKED, {"binding_requests": 30.0}, serving(max_num_seqs=8))
    assert (found.action, found.reason) == ("none", "no closed form for block_size")


@pytest.mark.parametrize("leaf", [CAP, BUDGET, None])
@pytest.mark.parametrize(("lost", "said"), [(1.0, "1 GPU is lost"), (2.0, "2 GPUs are lost")])
def test_a_lost_gpu_outranks_every_knob(leaf: Leaf | None, lost: float, said: str) -> None:
    knobs = serving(max_num_seqs=8, max_num_batched_tokens=512)
    evidence = {
        "binding_requests": 39.0,
        "allows_max_num_batched_tokens": 20.0,
        "gpus_lost": lost,
    }
    advised = recommend(leaf, WALKED, evidence, knobs)
    assert (advised.action, advised.reason) == ("none", f"do not change a knob; {said}")
    if leaf is not None:
        assert recommend(leaf, WALKED, evidence | {"gpus_lost": 0.0}, knobs).action == "change"
