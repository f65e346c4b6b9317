"""Where no simulation can be trusted: a larger max_num_seqs within bounds, or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from advice_cases import AT, requests_of, server_with

from driftwatch.model import Reason, Recommendation, Setting, Slo
from driftwatch.recommend.advice import Advice, Gate, Question
from driftwatch.recommend.traffic.observed import CHUNK_SCHEMA, Observed
from driftwatch.recommend.without_simulation import safe_change
from driftwatch.signals.minutes import no_minutes
from driftwatch.simulate.configuration import SchedulerConfiguration

REFUSED = Advice(
    AT,
    Recommendation("insufficient", reason=Reason("other", "simulated tokens/s +70 %")),
    gates=(Gate("fit_generation_tokens", False, "simulated tokens/s +70 %"),),
)
FULL = {
    "binding_limit": "max_num_seqs",
    "binding_running_requests": 24.0,
    "binding_waiting_requests": 60.0,
}


def _observed(**other: Any) -> Observed:
    chunk: dict[str, Any] = {
        **dict.fromkeys(CHUNK_SCHEMA, None),
        "start_seconds": 0.0,
        "end_seconds": 240.0,
        "tokens_per_step": 60.0,
        "running_requests": 24.0,
        "waiting_requests": 60.0,
        "kv_cache_usage_ratio": 0.2,
        "preemptions_per_second": 0.0,
        **other,
    }
    return Observed(
        AT,
        240.0,
        requests_of(1.0, 400, 400),
        "metrics",
        pl.DataFrame([chunk], schema=CHUNK_SCHEMA),
        busy_windows=4,
        saturated=True,
        tpot_p95_seconds=0.015,
    )


def _question(slo: Slo | None = None, budget: int | None = 2048, **evidence: Any) -> Question:
    server = server_with(SchedulerConfiguration(24, 2048, 27_000))
    known = None if budget is None else Setting(float(budget), "config")
    serving = replace(server.serving, max_num_batched_tokens=known)
    return Question(
        AT,
        no_minutes(),
        replace(server, serving=serving),
        slo or Slo(1.0, 0.05),
        "configuration",
        evidence={**FULL, **evidence},
    )


def test_a_full_cap_with_an_empty_kv_cache_is_raised_though_no_replay_is_trusted() -> None:
    said = safe_change(_question(), REFUSED, _observed(), None).recommendation
    assert (said.action, said.knob, said.from_value) == ("change", "max_num_seqs", 24.0)
    assert said.basis == "closed form" and said.forecast is None
    # 50 ms of TPOT target over 15 ms measured: three times as many at most
    assert said.to_value == 64.0
    assert "KV cache 20 % → at most 53 %" in said.price
    assert any("at most" in cost and "times today's" in cost for cost in said.price)
    assert "simulated tokens/s +70 %" in said.why and "60" in said.why


@pytest.mark.parametrize(
    ("why", "question", "observed"),
    [
        ("another limit binds", _question(binding_limit="kv_cache"), _observed()),
        ("the budget binds", _question(binding_limit="max_num_batched_tokens"), _observed()),
        ("which limit is unknown", _question(binding_limit=None), _observed()),
        ("requests are preempted", _question(), _observed(preemptions_per_second=0.1)),
        ("preemptions unknown", _question(), _observed(preemptions_per_second=None)),
        ("the cache is half full", _question(), _observed(kv_cache_usage_ratio=0.7)),
        ("its use is unknown", _question(), _observed(kv_cache_usage_ratio=None)),
        ("steps are nearly full", _question(), _observed(tokens_per_step=1500.0)),
        ("nobody waits", _question(binding_waiting_requests=0.0), _observed()),
        ("TPOT is near its target", _question(Slo(1.0, 0.018)), _observed()),
        ("the traffic is unknown", _question(), None),
    ],
)
def test_it_is_not_raised_where_anything_may_bind_or_break(
    why: str, question: Question, observed: Observed | None
) -> None:
    assert safe_change(question, REFUSED, observed, None) is REFUSED, why


def test_the_steps_stay_within_the_budget() -> None:
    """60 of 120 tokens a step today: twice as many requests, though 3.3 times meet TPOT."""
    said = safe_change(_question(budget=120), REFUSED, _observed(), None).recommendation
    assert said.to_value == 48.0


def test_every_step_time_model_must_promise_the_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    gains = iter((0.5, 0.19, 0.5, 0.21))
    monkeypatch.setattr(
        "driftwatch.recommend.without_simulation._step_times", lambda *_: [None, None]
    )
    monkeypatch.setattr("driftwatch.recommend.without_simulation._gain", lambda *_: next(gains))
    assert safe_change(_question(), REFUSED, _observed(), None) is REFUSED
    assert safe_change(_question(), REFUSED, _observed(), None) is not REFUSED


def test_prompts_that_fill_the_steps_leave_nothing_to_gain() -> None:
    """Where a step's time is that of its prompt tokens, more requests make it longer, no more."""
    busy = _observed(tokens_per_step=4000.0)
    question = _question(Slo(1.0, 0.5), budget=16_384)
    assert safe_change(question, REFUSED, busy, None) is REFUSED


def test_without_a_step_time_model_nothing_is_advised() -> None:
    question = _question()
    unknown = replace(question, server=replace(question.server, gpu=None))
    assert safe_change(unknown, REFUSED, _observed(), None) is REFUSED
