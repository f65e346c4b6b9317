"""How long an answer is given to servers that join, and to which of a pool's servers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from driftwatch.model import Finding, Incident, Reason, Recommendation, Target, TargetKey
from driftwatch.notify.body import lines
from driftwatch.notify.page import build_page
from driftwatch.pipeline.advice import answer_stands, configured_alike
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.signals.minutes import MINUTE_SCHEMA, no_minutes

AT = datetime(2026, 11, 18, 12, tzinfo=UTC)
A, B, C, D = (TargetKey(f"{name}:8000", "0") for name in "abcd")
CHANGE = Recommendation(
    "change",
    reason=Reason("other", "1 % → 99 %"),
    knob="max_num_batched_tokens",
    from_value=512.0,
    to_value=1024.0,
    effect=("in target 1 % → 99 %",),
    forecast={"in_target_ratio": 0.99},
    basis="simulation",
)
LOAD = {"requests_per_second": 10.0, "prompt_tokens_mean": 400.0, "generation_tokens_mean": 150.0}


def past(rate: float, prompt: float = 400.0) -> PastMinutes:
    """The last ten minutes of A."""
    first = 60.0 * rate
    rows = [
        {
            "instance": A.instance,
            "engine": A.engine,
            "end": AT - timedelta(minutes=n),
            "ttft_seconds_count": first,
            "prompt_tokens_total": first * prompt,
            "generation_tokens_total": first * 150.0,
        }
        for n in range(10)
    ]
    frame = pl.concat([no_minutes(), pl.DataFrame(rows)], how="diagonal_relaxed")
    return PastMinutes(frame.select(*MINUTE_SCHEMA))


def paged(minutes_ago: float, **load: float | None) -> Incident:
    at = AT - timedelta(minutes=minutes_ago)
    page: dict[str, Any] = {
        "times": {"evaluated_at": at.isoformat()},
        "evidence": {name: {"value": one} for name, one in (LOAD | load).items()},
    }
    labels = {"instance": A.instance, "engine": A.engine, "pool": "p"}
    return Incident("x", "x", "r", "BatchDrift", "page", labels, "firing", at, at, page=page)


@pytest.mark.parametrize(
    ("incident", "now", "stands"),
    [
        (paged(59), past(100.0), True),  # of the hour that it was computed of
        (paged(240), past(12.0), True),
        (paged(240), past(16.0), False),
        (paged(240), past(6.0), False),
        (paged(240), past(10.0, prompt=900.0), False),
        (paged(240, prompt_tokens_mean=None), past(10.0), False),  # unknown is not "the same"
        (paged(240), PastMinutes(), False),
        (replace(paged(1), page=None), past(10.0), False),
    ],
)
def test_an_answer_of_hours_ago_stands_only_under_the_load_that_it_is_of(
    incident: Incident, now: PastMinutes, stands: bool
) -> None:
    assert answer_stands(incident, AT, [A, B], now) is stands


def page_of(concerned: tuple[TargetKey, ...], alike: tuple[TargetKey, ...]) -> dict[str, Any]:
    finding = Finding(
        "BatchLimitBinding",
        Target(A, {"model_name": "m"}, pool="p"),
        AT,
        {},
        recommendation=CHANGE,
        concerned=concerned,
        of_targets=6,
    )
    finding = replace(finding, configured_alike=configured_alike(finding, alike))
    pool = replace(paged(0), page=None, target={"pool": "p"})
    return build_page(finding, pool, "firing", AT, annotations={"summary": "a limit binds"})


def test_a_page_of_servers_with_different_settings_names_whose_answer_it_gives() -> None:
    page = page_of((A, B, C, D), (A, B))
    assert page["summary"].endswith("Set max_num_batched_tokens 512 → 1024 on 2 of 4")
    (line,) = [one.text for one in lines(page) if one.label == "Settings"]
    assert line == (
        "the advice is for a:8000 and b:8000; c:8000 and d:8000 have other settings: "
        "run driftwatch recommend c:8000"
    )
    (line,) = [o.text for o in lines(page_of((A, B), ())) if o.label == "Settings"]
    assert "is for a:8000; b:8000 has other settings" in line


def test_a_page_of_servers_with_one_setting_says_nothing_of_it() -> None:
    page = page_of((A, B), (A, B))
    assert page["concerned"] == {
        "targets": 2,
        "of_targets": 6,
        "first": ["a:8000", "b:8000"],
    }
    assert page["summary"].endswith("512 → 1024")
    assert "Settings" not in [one.label for one in lines(page)]
