"""What binds in a scrape and in a window, and how many requests each limit lets run."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from limit_cases import AT_CAP, IDLE, lengths, page, row
from pipeline_cases import evidence, scrapes, serving, windows

from driftwatch.diagnose.limits import binding_of_scrape, final_binding_limit
from driftwatch.diagnose.tree import limits_of
from driftwatch.pipeline.unknown_reasons import reasons

QUEUED = {
    "running": 8.0,
    "capacity": 5.0,
    "deferred": 0.0,
    "kv": 0.2,
    "preempted": 0.0,
    "tokens_per_step": 20.0,
    "first_tokens_per_step": 0.1,
    "steps_per_second": 11.0,
    "several_api_servers": False,
    "stalled": False,
    "max_num_seqs": 64.0,
    "max_num_seqs_inferred": False,
    "max_num_batched_tokens": 1024.0,
    "api_server_count": None,
}

_SCHEMA: dict[str, Any] = {
    name: pl.Boolean if isinstance(value, bool) else pl.Float64 for name, value in QUEUED.items()
}


def limit(**changes: Any) -> str | None:
    """What binds in one scrape."""
    frame = pl.DataFrame([QUEUED | changes], schema=_SCHEMA, orient="row")
    found: str | None = frame.select(binding_of_scrape()).item()
    return found


CASES: list[tuple[str, dict[str, Any], str | None]] = [
    # the signature table
    ("at the cap, KV free", {"running": 64.0}, "max_num_seqs"),
    ("5 % below a large cap", {"running": 244.0, "max_num_seqs": 256.0}, "max_num_seqs"),
    # requests wait, and no setting as configured explains it: not "none", some limit holds them
    ("further below it", {"running": 242.0, "max_num_seqs": 256.0}, "unknown"),
    ("budget at 0.78", {"tokens_per_step": 0.78 * 1024}, "max_num_batched_tokens"),
    ("budget not full", {"tokens_per_step": 700.0}, "unknown"),
    ("preempted at low KV", {"preempted": 2.0, "kv": 0.76}, "kv_cache"),
    ("KV full at the cap", {"kv": 0.95, "running": 64.0}, "kv_cache"),
    ("no KV for one more like those that run", {"running": 1.0, "kv": 0.74}, "kv_cache"),
    ("nobody runs", {"running": 0.0, "kv": 0.74}, "unknown"),
    ("a configured cap of one", {"running": 1.0, "kv": 0.74, "max_num_seqs": 1.0}, "max_num_seqs"),
    (
        "an inferred cap of one",
        {"running": 1.0, "kv": 0.74, "max_num_seqs": 1.0, "max_num_seqs_inferred": True},
        "kv_cache",
    ),
    (
        "a configured cap outranks a full budget",
        {"running": 64.0, "tokens_per_step": 1000.0},
        "max_num_seqs",
    ),
    ("no token since the last scrape", {"stalled": True, "running": 64.0}, "stalled"),
    # steps of 90 ms at 16 requests/s: 1.5 come in each, and up to 1.5 + 2 * sqrt(1.5) wait for it
    ("they wait for the next step", {"first_tokens_per_step": 1.5, "capacity": 3.0}, "none"),
    ("more than one step brings", {"first_tokens_per_step": 1.5, "capacity": 4.0}, "unknown"),
    (
        "one of them was preempted",
        {"first_tokens_per_step": 1.5, "capacity": 3.0, "preempted": 1.0},
        "kv_cache",
    ),
    (
        "few come, and one waits many steps",
        {"first_tokens_per_step": 0.4, "capacity": 1.0, "running": 64.0},
        "max_num_seqs",
    ),
    # vLLM's own gauge, steps of a second: three steps are three seconds of waiting
    (
        "long steps",
        {"first_tokens_per_step": 1.5, "capacity": 3.0, "steps_per_second": 1.0},
        "unknown",
    ),
    ("how many come is not known", {"first_tokens_per_step": None, "capacity": 1.0}, "unknown"),
    # unknown settings
    (
        "waiting, settings unknown",
        {"max_num_seqs": None, "max_num_batched_tokens": None},
        "unknown",
    ),
    # unknown inputs
    ("not known whether any waits", {"capacity": None}, None),
    ("KV unknown at the cap", {"kv": None, "running": 64.0}, "unknown"),
    ("preemptions unknown, KV low", {"preempted": None, "running": 64.0}, "max_num_seqs"),
    (
        "running unknown, budget full",
        {"running": None, "tokens_per_step": 1000.0},
        "max_num_batched_tokens",
    ),
    ("no step in between", {"tokens_per_step": None}, "unknown"),
    # several API servers count a step once each: tokens per step are a lower bound
    ("several API servers, count unknown", {"several_api_servers": True}, "unknown"),
    (
        "two API servers, half full each",
        {"several_api_servers": True, "api_server_count": 2.0, "tokens_per_step": 450.0},
        "max_num_batched_tokens",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_one_scrape(changes: dict[str, Any], expected: str | None) -> None:
    assert limit(**changes) == expected


KV_FULL = {"kv_cache_usage_ratio": 0.95}

BUDGET_FULL = {"iteration_tokens_sum_per_step": 1000.0}

DEFERRED = {**IDLE, "waiting_requests": 9.0, "waiting_deferred_requests": 9.0}


@pytest.mark.parametrize(
    ("parts", "share", "binding"),
    [
        ([(20, AT_CAP), (20, IDLE)], 0.5, "max_num_seqs"),
        ([(20, BUDGET_FULL), (20, IDLE)], 0.5, "max_num_batched_tokens"),
        ([(30, KV_FULL), (10, AT_CAP)], 1.0, "kv_cache"),
        # a tie: raising max_num_seqs would harm
        ([(20, KV_FULL), (20, AT_CAP)], 1.0, "kv_cache"),
        ([(40, IDLE)], 0.0, "none"),
        ([(20, DEFERRED), (20, IDLE)], 0.0, "deferred"),
    ],
)
def test_what_binds_in_most_scrapes(
    parts: list[tuple[int, dict[str, Any]]], share: float, binding: str
) -> None:
    found = row(parts)
    assert found["limit_binding_share_10m_ratio"] == pytest.approx(share)
    assert found["binding_limit"] == binding


def mixed(
    running: list[float], per_step: float, **changes: Any
) -> list[tuple[int, dict[str, Any]]]:
    """Requests wait in 24 of 40 scrapes; the means hold steps that only decode as well."""
    bound = [
        (1, {"running_requests": level, "iteration_tokens_sum_per_step": per_step} | changes)
        for level in running
    ]
    return [*bound, (16, IDLE)]


WANDERING = [14.0 + 4 * (i % 5) for i in range(24)]


def test_the_budget_is_named_where_nothing_else_can_hold_requests_back() -> None:
    """A mean of 400 of 1,024 tokens a step: a third of the steps were full."""
    assert row(mixed(WANDERING, 400.0))["binding_limit"] == "max_num_batched_tokens"


@pytest.mark.parametrize(
    ("parts", "settings"),
    [
        (mixed(WANDERING, 300.0), {}),  # too few steps can have been full
        (mixed([24.0] * 24, 400.0), {}),  # held like a cap that nobody configured
        (mixed([level + 20 for level in WANDERING], 400.0), {}),  # not far from the cap
        (mixed(WANDERING, 400.0, kv_cache_usage_ratio=0.6), {}),
        (mixed(WANDERING, 400.0), {"max_num_seqs": None}),
        (mixed(WANDERING, 400.0), {"max_num_batched_tokens": None}),
    ],
)
def test_the_budget_is_not_guessed(
    parts: list[tuple[int, dict[str, Any]]], settings: dict[str, Any]
) -> None:
    found = row(parts, **settings)
    assert found["binding_limit"] is None
    assert found["limit_binding_share_10m_ratio"] == pytest.approx(0.6)


def test_a_limit_that_binds_leaves_no_room_whatever_mean_lengths_would_let_run() -> None:
    found = row(lengths(390, running_requests=6.0, kv_cache_usage_ratio=0.95),
                kv_cache_tokens=100_000.0)  # fmt: skip
    assert found["binding_limit"] == "kv_cache"
    assert found["binding_margin_ratio"] == 0.0
    _, seqs, kv = limits_of(pl.DataFrame([found], strict=False))[0]
    assert (kv.binds, kv.margin_ratio) == (True, 0.0)
    assert seqs.margin_ratio == pytest.approx(1 - 6 / 64)


def test_without_the_kv_caches_use_it_is_named_as_what_is_missing() -> None:
    found = row([(40, AT_CAP | {"kv_cache_usage_ratio": None, "preemptions_total": None})])
    assert found["binding_limit"] is None
    assert "vllm:kv_cache_usage_perc is missing" in reasons(found)["binding_limit"]
    found = row([(40, AT_CAP)], max_num_seqs=None, max_num_batched_tokens=None)
    assert "max_num_batched_tokens" in reasons(found | {"binding_limit": None})["binding_limit"]


@pytest.mark.parametrize(
    ("at_cap", "low", "changes", "binding"),
    [
        (0, 40, {}, "max_num_batched_tokens"),  # far below the cap, and the cache half empty
        (8, 32, {}, "max_num_batched_tokens"),
        (16, 24, {}, None),  # of two limits that take turns none is the one to change
        (0, 40, {"running_requests": 30.0}, None),  # held like a cap that nobody configured
        # two prompts of a fifth of the cache: a third does not fit beside a free half
        (0, 40, {"running_requests": 2.0, "kv_cache_usage_ratio": 0.45}, None),
        (0, 40, {"running_requests": 3.0, "kv_cache_usage_ratio": 0.1}, "max_num_batched_tokens"),
    ],
)
def test_what_no_setting_explains_is_named_by_elimination(
    at_cap: int, low: int, changes: dict[str, Any], binding: str | None
) -> None:
    """The budget is unknown, and requests wait in every scrape."""
    wandering = [(1, {"running_requests": 3.0 + 7 * (i % 5)} | changes) for i in range(low)]
    found = row([*wandering, *([(at_cap, AT_CAP)] if at_cap else [])], max_num_batched_tokens=None)
    assert found["limit_binding_share_10m_ratio"] == 1.0
    assert found["binding_limit"] == binding


def test_a_page_before_waiting_by_reason() -> None:
    """Old vLLM: every waiting request waited for capacity, deferred is not known."""
    old = {"waiting_capacity_requests": None, "waiting_deferred_requests": None}
    found = row([(40, AT_CAP | old)])
    assert found["binding_limit"] == "max_num_seqs"
    assert found["waiting_capacity_requests"] == 5.0
    assert found["waiting_deferred_requests"] is None
    assert found["waiting_deferred_share_10m_ratio"] is None
    found = row([(40, old | {"waiting_requests": None})])
    assert found["binding_limit"] is found["limit_binding_share_10m_ratio"] is None


@pytest.mark.parametrize(
    ("parts", "seconds"),
    [
        ([(1, AT_CAP), (14, IDLE), (25, AT_CAP)], 240.0),  # one stray scrape first
        ([(1, AT_CAP), (9, IDLE), (10, AT_CAP), (5, IDLE), (15, AT_CAP)], 150.0),  # it pauses
        ([(22, AT_CAP), (18, IDLE)], 0.0),  # it is over, and was more than half
        ([(1, AT_CAP), (14, IDLE), (9, AT_CAP), (16, IDLE)], 225.0),  # less than half
        ([(1, AT_CAP), (1, IDLE)] * 20, 0.0),  # every other one
    ],
)
def test_since_is_the_beginning_of_the_run_not_the_first_stray_scrape(
    parts: list[tuple[int, dict[str, Any]]], seconds: float
) -> None:
    found = row(parts)
    assert found["binding_requests"] == 69.0
    assert (found["binding_since"] - found["start"]).total_seconds() == seconds
    deferred = IDLE | {"waiting_deferred_requests": 3.0}
    found = row([(n, deferred if kind is AT_CAP else kind) for n, kind in parts])
    assert (found["deferred_since"] - found["start"]).total_seconds() == seconds // 60 * 60


def test_what_bound_before_a_restart_is_not_counted_after_it() -> None:
    """The last ten minutes begin after the minute of the restart: only the new server counts."""
    old, new = {"process_start_time_seconds": 1.0}, {"process_start_time_seconds": 9000.0}
    found = row([(30, AT_CAP | old), (10, IDLE | new)])
    assert found["limit_binding_share_10m_ratio"] == 0.0
    assert found["binding_limit"] == "none"
    assert found["binding_requests"] is None
    found = row([(30, IDLE | old), (10, AT_CAP | new)])
    assert found["limit_binding_share_10m_ratio"] == 1.0
    assert (found["binding_since"] - found["start"]).total_seconds() == 480.0


def test_a_budget_that_steps_exceed_is_not_in_force() -> None:
    per_step = {"iteration_tokens_sum_per_step": 2000.0}
    decoding = {"itl_seconds_count": 0.0, "itl_seconds_sum": 0.0}
    found = row([(40, per_step | decoding)])
    assert not found["max_num_batched_tokens_exceeded"]  # prefill alone: steps go unobserved
    loads = [2e5 * min(i, 8) + 1e4 * max(i - 8, 0) for i in range(40)]  # a light load says nothing
    pages = [
        page(i, iteration_tokens_sum=total, itl_seconds_count=8e2 * i)
        for i, total in enumerate(loads)
    ]
    frame = scrapes(pages)
    settings = serving(frame, max_num_seqs=64.0, max_num_batched_tokens=1024.0)
    (found,) = evidence(frame, windows((0.0, 600.0)), settings).to_dicts()
    assert found["max_num_batched_tokens_exceeded"] is True
    assert found["max_num_batched_tokens"] is None


@pytest.mark.parametrize(
    ("text", "configured", "tokens"),
    [("None", None, 16_000.0), ("12345.0", None, 12_345.0), ("12345.0", 999.0, 999.0)],
)
def test_the_page_tells_the_kv_size_and_what_a_person_configured_wins(
    text: str, configured: float | None, tokens: float
) -> None:
    config = f'{{"block_size":"16","kv_cache_size_tokens":"{text}","num_gpu_blocks":"1000"}}'
    found = row(lengths(390, cache_config=config), kv_cache_tokens=configured)
    assert found["kv_cache_tokens"] == tokens


def test_limits_of_a_row_name_what_is_missing() -> None:
    found = row(lengths(390), max_num_seqs=None, max_num_batched_tokens=None)
    unknown = {"max_num_seqs": None, "allows_max_num_seqs": None, "binding_limit": None}
    unknown["max_num_seqs_inferred"] = False
    (limits,) = limits_of(pl.DataFrame([found | unknown], strict=False))
    notes = ["setting not given", "setting not given", "KV cache size not in /metrics"]
    assert [one.note for one in limits] == notes
    assert [one.margin_ratio for one in limits] == [None] * 3
    found = row([(40, AT_CAP)], kv_cache_tokens=1000.0)
    budget, seqs, kv = limits_of(pl.DataFrame([found], strict=False))[0]
    assert budget.note == kv.note == "no finished requests to size by"
    assert (seqs.allows_requests, seqs.binds, seqs.margin_ratio) == (64.0, True, 0.0)
    assert (kv.binds, kv.allows_requests) == (False, None)
    full = {"binding_limit": "max_num_batched_tokens", "allows_max_num_batched_tokens": 1024.0}
    full["binding_running_requests"] = 575.0  # the closed form counts steps without a prompt, too
    budget = limits_of(pl.DataFrame([found | full], strict=False))[0][0]
    assert (budget.allows_requests, budget.in_flight_requests, budget.binds) == (575.0, 575.0, True)
    parts = [(1, {**IDLE, "running_requests": 3.0}) for _ in range(40)]
    found = row(parts, max_num_seqs=None, max_num_batched_tokens=None)
    assert found["allows_max_num_seqs"] is found["binding_margin_ratio"] is None


def test_the_closed_form_of_each_limit() -> None:
    found = row(lengths(390), kv_cache_tokens=100_000.0, kv_block_tokens=16.0)
    assert found["allows_max_num_seqs"] == 64.0
    # B E[G] / (E[P](1-h) + E[G]), h = 0.2
    assert found["allows_max_num_batched_tokens"] == pytest.approx(1024 * 50 / (400 + 50))
    # residents are length-biased: E[G²]/(2 E[G]), G spread evenly over (10, 100]
    residence = (10**2 + 10 * 100 + 100**2) / 3 / 50
    assert found["allows_kv_cache"] == pytest.approx(100_000 / (500 + residence / 2 + 8))
    assert found["binding_margin_ratio"] == 0.0  # 64 of the tightest, 64
    found = row(lengths(390, running_requests=16.0), max_num_seqs=512.0)
    tightest = found["allows_max_num_batched_tokens"]
    assert found["binding_margin_ratio"] == pytest.approx(1 - 16 / tightest)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "max_num_seqs"),
        ({"slo_missed": False}, "none"),  # in target: bursts fill a batch, and nobody minds
        ({"slo_missed": None}, "none"),
        ({"limit_binding_share_10m_ratio": 0.24}, "none"),
        ({"batch_assembly_wait_10m_seconds": 0.98}, "none"),  # not the wait is what is missed
        ({"batch_assembly_wait_10m_seconds": None}, "none"),
        ({"tpot_in_target_10m_ratio": 0.5}, "none"),  # tokens are slow, not the start
        ({"ttft_in_target_10m_ratio": None}, "none"),
        ({"ttft_in_target_10m_ratio": None, "tpot_in_target_10m_ratio": None}, "max_num_seqs"),
        ({"queue_limit": None}, None),  # which limit it is cannot be told
        ({"binding_limit": "deferred"}, "deferred"),
        ({"binding_limit": None}, None),
    ],
)
def test_a_missed_target_names_the_limit_that_requests_wait_for(
    changes: dict[str, Any], expected: str | None
) -> None:
    known = {
        "binding_limit": "none",
        "queue_limit": "max_num_seqs",
        "limit_binding_share_10m_ratio": 0.4,
        "slo_missed": True,
        "batch_assembly_wait_10m_seconds": 1.7,
        "ttft_10m_seconds": 2.0,
        "ttft_in_target_10m_ratio": 0.6,
        "tpot_in_target_10m_ratio": 1.0,
    }
    texts = ("binding_limit", "queue_limit")
    schema = {name: pl.String if name in texts else pl.Float64 for name in known}
    schema |= {"slo_missed": pl.Boolean}
    frame = pl.DataFrame([known | changes], schema=schema)
    assert frame.select(final_binding_limit()).item() == expected
