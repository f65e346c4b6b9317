"""A backlog that lasts shows what a server completes, whatever a model of it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import polars as pl
import pytest
from advice_cases import AT, requests_of, server_with

from driftwatch.model import Reason, Recommendation
from driftwatch.notify.advice import imperatives
from driftwatch.notify.page import recommendation_json
from driftwatch.recommend import advise
from driftwatch.recommend.advice import Advice, Question
from driftwatch.recommend.prepare import Prepared
from driftwatch.recommend.traffic.observed import CHUNK_SCHEMA, Observed
from driftwatch.recommend.without_simulation import by_measured_capacity
from driftwatch.signals.minutes import no_minutes
from driftwatch.simulate.configuration import SchedulerConfiguration

REFUSED = Advice(
    AT, Recommendation("insufficient", reason=Reason("other", "simulated tokens/s +70 %"))
)
QUESTION = Question(
    AT, no_minutes(), server_with(SchedulerConfiguration(64, 2048, 27_000)), replicas=2
)


def _observed(*, waiting: float = 40.0, completes: float | None = 3.0, **other: Any) -> Observed:
    chunk: dict[str, Any] = {
        **dict.fromkeys(CHUNK_SCHEMA, None),
        "start_seconds": 0.0,
        "end_seconds": 240.0,
        "waiting_requests": waiting,
        "finished_per_second": completes,
    }
    seen = Observed(
        AT,
        240.0,
        requests_of(5.0, 400, 400),
        "metrics",
        pl.DataFrame([chunk], schema=CHUNK_SCHEMA),
        busy_windows=4,
        saturated=True,
    )
    return replace(seen, **other)


def test_a_deep_backlog_is_answered_with_the_replicas_that_its_demand_needs() -> None:
    said = by_measured_capacity(QUESTION, REFUSED, _observed()).recommendation
    # 2 replicas complete 3 req/s each where 5 arrive at each: 10 req/s need 4 of them
    assert (said.action, said.basis, said.knob) == ("none", "measured", None)
    assert said.instead[0].startswith("add at least 2 replicas (4 in all): ")
    assert "simulated tokens/s +70 %" in said.why and "whether a knob helps" in said.why
    page: Any = {
        "severity": "page",
        "recommendation": recommendation_json(said),
        "diagnosis": None,
        "evidence": {},
    }
    assert (
        imperatives(page)[0]
        == "Add at least 2 replicas (4 in all); driftwatch could not judge a setting"
    )


@pytest.mark.parametrize(
    ("minutes", "replicas"),
    [
        # what a growing queue's server completes came before it: asked a few minutes apart, the
        # answers do not contradict each other (scenario prompts-x4, 09:50, 10:00 and 10:10 UTC)
        ((5.0, 5.1, 6.0, 6.0, 4.5, 2.5, 4.7, 2.1, 2.6), 1),
        ((2.5, 4.7, 2.1, 2.6, 1.1, 0.9, 1.8, 4.1, 1.6, 3.4, 5.8, 1.0, 0.6, 2.9), 2),
        ((0.6, 2.9, 2.4, 3.0, 4.2, 0.9, 2.3, 2.1, 0.4, 1.7, 1.5, 0.1), 3),
    ],
)
def test_minutes_that_differ_leave_only_how_many_replicas_are_needed_at_least(
    minutes: tuple[float, ...], replicas: int
) -> None:
    one = _observed().chunks
    chunks = [
        one.with_columns(
            start_seconds=pl.lit(60.0 * i),
            end_seconds=pl.lit(60.0 * (i + 1)),
            finished_per_second=pl.lit(rate),
        )
        for i, rate in enumerate(minutes)
    ]
    seen = _observed(chunks=pl.concat(chunks), requests=requests_of(5.8, 400, 400))
    said = by_measured_capacity(QUESTION, REFUSED, seen).recommendation
    plural = "s" if replicas > 1 else ""
    assert said.instead[0].startswith(f"add at least {replicas} replica{plural} ")


@pytest.mark.parametrize(
    "seen",
    [
        None,
        _observed(saturated=False),
        _observed(waiting=0.4),
        _observed(completes=None),
        _observed(completes=4.6),  # the demand may be what it completes
        _observed(completes=0.3),  # too few to know the rate
    ],
)
def test_what_a_window_does_not_show_is_not_answered(seen: Observed | None) -> None:
    assert by_measured_capacity(QUESTION, REFUSED, seen) is REFUSED


def test_who_may_complete_all_that_arrive_is_not_said_to_need_a_replica() -> None:
    one = _observed().chunks
    rates = (5.0, 0.5, 4.8, 0.4, 6.0, 0.2, 5.0, 0.6, 5.5, 0.3)  # 2.8 a second, 4.5 at most
    chunks = pl.concat(
        one.with_columns(
            start_seconds=pl.lit(60.0 * number),
            end_seconds=pl.lit(60.0 * (number + 1)),
            finished_per_second=pl.lit(rate),
        )
        for number, rate in enumerate(rates)
    )
    seen = _observed(chunks=chunks, requests=requests_of(3.6, 400, 400))
    assert by_measured_capacity(QUESTION, REFUSED, seen) is REFUSED


def test_a_forecast_that_is_too_wide_leaves_the_measured_capacity_and_no_other_knob(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gain that the simulation cannot be sure of is not advised by a formula instead."""
    prepared = Prepared(REFUSED, _observed(), ground=cast(Any, None), judged=requests_of(5, 9, 9))
    monkeypatch.setattr(advise, "not_a_knob", lambda _: None)
    monkeypatch.setattr(advise, "prepare", lambda *_: prepared)
    monkeypatch.setattr(advise, "answer_prepared", lambda *_, table: REFUSED)
    monkeypatch.setattr(advise, "safe_change", lambda *_: pytest.fail("a formula was asked"))
    assert advise.advise(QUESTION).recommendation.basis == "measured"
