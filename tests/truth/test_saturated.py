"""A server that cannot take what it is sent: which limit, whether it harms, and what is due."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl
from truth_judge.due import LIMIT_PAGES, WAIT_RULES, injected, with_due
from truth_judge.facts import Episode, Finding, Stretch
from truth_judge.matching import SATURATION, alarms
from truth_judge.saturated import LIMIT_RULES, Saturation, fullest, leaves_then, stretches

START = datetime(2026, 11, 16, tzinfo=UTC)
S0 = START.timestamp()


def rows(waiting: list[int], **more: float) -> pl.DataFrame:
    whole = {
        "sequences_ratio": 1.0,
        "step_tokens_ratio": 0.1,
        "kv_cache_ratio": 0.3,
        "preemptions": 0,
        "arrived_requests": 60,
        "ended_requests": 10,
        "in_ttft_requests": 10,
        "in_tpot_requests": 10,
        **more,
    }
    return pl.DataFrame(
        {
            "instance": ["a:8000"] * len(waiting),
            "time": [START + timedelta(minutes=m) for m in range(len(waiting))],
            "waiting_requests": waiting,
            "waiting_ratio": [float(one > 0) for one in waiting],
            **{name: [value] * len(waiting) for name, value in whole.items()},
        }
    )


QUEUE = [0] * 20 + [30] * 40 + [0] * 20


def test_a_queue_is_a_stretch_and_a_moment_is_none() -> None:
    (one,) = stretches(rows(QUEUE), None)
    assert (one.start_seconds - S0) / 60 == 20 and (one.end_seconds - S0) / 60 == 59
    assert one.leaves == ("concurrency_cap_binding",) and one.harms
    assert one.wait_seconds == 30.0
    assert stretches(rows([0] * 20 + [30] * 2 + [0] * 20), None) == []


def test_the_limit_is_the_one_that_is_full() -> None:
    of = {"sequences_ratio": 0.4}
    assert stretches(rows(QUEUE, **of, step_tokens_ratio=0.99), None)[0].limits == ("tokens",)
    assert stretches(rows(QUEUE, **of, kv_cache_ratio=0.97), None)[0].limits == ("kv",)
    assert stretches(rows(QUEUE, **of), None)[0].limits == ()
    both = stretches(rows(QUEUE, kv_cache_ratio=0.97), None)[0]
    assert set(both.limits) == {"sequences", "kv"}


def test_waiting_within_the_target_harms_nobody() -> None:
    assert not stretches(rows(QUEUE), 0.95)[0].harms
    assert stretches(rows(QUEUE, in_ttft_requests=8), 0.95)[0].harms
    assert not stretches(rows(QUEUE, in_ttft_requests=8), 0.95)[0].serves_nobody
    assert stretches(rows(QUEUE, in_ttft_requests=0, in_tpot_requests=0), 0.95)[0].serves_nobody
    assert stretches(rows(QUEUE, ended_requests=0, in_ttft_requests=0), 0.95)[0].harms


def test_a_long_queue_harms_only_while_the_target_is_missed() -> None:
    late = rows([30] * 200).with_columns(
        in_ttft_requests=pl.Series([10] * 100 + [2] * 30 + [10] * 70)
    )
    found = {one.harms: one for one in stretches(late, 0.95) if one.start_seconds > S0 + 3600}
    harming = found[True]
    assert 100 <= (harming.start_seconds - S0) / 60 <= 103
    assert 128 <= (harming.end_seconds - S0) / 60 <= 140


HARM = Saturation("a:8000", S0 + 3900, S0 + 7000, ("kv", "sequences"), True)
EFFECT = Episode(
    "prompts", S0 + 3600, S0 + 7200, 4.0, frozenset({"a:8000", "b:8000"}),
    notices=frozenset({"LengthDrift"}), leaf="drifted_within_limits",
)  # fmt: skip


def test_a_limit_is_due_where_it_harmed_for_long() -> None:
    due, allowed, retune = with_due([EFFECT], [HARM], ["a:8000", "b:8000"])
    assert retune.allowed == {"RetuneAdvised"}
    assert retune.until_seconds >= allowed.until_seconds + 86400
    assert (due.kind, due.pages, due.leaf, due.also) == (
        "limit-kv",
        LIMIT_PAGES,
        "kv_pressure",
        frozenset({"concurrency_cap_binding"}),
    )
    assert due.instances == {"a:8000"} and due.visible_seconds == S0 + 3900
    assert allowed.kind == SATURATION and allowed.allowed == LIMIT_RULES | WAIT_RULES
    assert injected([due, allowed, retune]) == [due]
    short = Saturation("a:8000", S0 + 3900, S0 + 4500, ("kv",), True)
    (undue, *_) = with_due([EFFECT], [short], ["a:8000", "b:8000"])
    assert not undue.pages and undue.leaf is None and undue.allowed == LIMIT_RULES
    brief = Saturation("a:8000", S0 + 3900, S0 + 7000, ("kv",), True, 0.4)
    (undue, *_) = with_due([EFFECT], [brief], ["a:8000", "b:8000"])
    assert not undue.pages
    (plain,) = with_due([EFFECT], [], ["a:8000", "b:8000"])
    assert plain == EFFECT


def test_saturation_excuses_a_page_of_a_limit_and_no_page_of_a_slow_engine() -> None:
    (allowed, _) = with_due([], [HARM], ["a:8000"])

    def said(rule: str, at: float, instance: str = "a:8000") -> Finding:
        return Finding("firing", rule, "page", S0 + at, S0 + at - 60, frozenset({instance}))

    stretch = Stretch(
        "s", "seed 1", S0, S0 + 9000, ("a:8000", "b:8000"), (allowed,),
        (
            said("BatchLimitBinding", 5000), said("SlowerAtEqualLoad", 5000),
            said("BatchLimitBinding", 5000, "b:8000"), said("BatchLimitBinding", 8500),
        ),
    )  # fmt: skip
    assert [a.verdict for a in alarms([stretch])] == ["allowed", "false", "false", "false"]


def test_a_limit_is_asked_about_while_it_was_fullest_and_by_what_was_full_then() -> None:
    waits = [30] * 30 + [0, 0, 30] * 10
    mixed = rows(waits).with_columns(
        sequences_ratio=pl.Series([1.0] * 25 + [0.3] * 35),
        step_tokens_ratio=pl.Series([0.3] * 25 + [1.0] * 35),
    )
    (one,) = stretches(mixed, None)
    begun = replace(EFFECT, start_seconds=S0, end_seconds=S0 + 3600)
    (due, *_) = with_due([begun], [one], ["a:8000", "b:8000"])
    assert fullest(due.waited["a:8000"], S0, S0 + 3600) == S0 + 29 * 60
    both = leaves_then(due.waited["a:8000"], S0 + 29 * 60)
    assert both == {"concurrency_cap_binding", "token_budget_binding"}
    assert leaves_then(due.waited["a:8000"], S0 + 34 * 60) == {"token_budget_binding"}
