"""How long an answer is given to servers that join, and to which of a pool's servers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from small_page import small_page

from driftwatch.incidents.incident import Incident
from driftwatch.model import Advice, Finding, KnobMove, Reason, Target, TargetKey
from driftwatch.notify.headline import lines
from driftwatch.notify.page import Page, Servers, Times
from driftwatch.pipeline.advice import answer_stands, configured_alike
from driftwatch.pipeline.build_page import build_page

AT = datetime(2026, 11, 18, 12, tzinfo=UTC)
A, B, C, D = (TargetKey(f"{name}:8000", "0") for name in "abcd")
CHANGE = Advice(
    action="change",
    reason=Reason("other", "1 % → 99 %"),
    moves=(KnobMove("max_num_batched_tokens", 512.0, 1024.0),),
    effect=("in target 1 % → 99 %",),
    forecast={"in_target_ratio": 0.99},
    basis="simulation",
)


def paged(minutes_ago: float) -> Incident:
    at = AT - timedelta(minutes=minutes_ago)
    page = small_page(times=Times(started_at=at, evaluated_at=at, measured_at=at))
    labels = {"instance": A.instance, "engine": A.engine, "pool": "p"}
    return Incident("x", "x", "r", "BatchDrift", "page", labels, "firing", at, at, page=page)


def test_an_answer_stands_for_the_hour_that_it_was_computed_of() -> None:
    assert answer_stands(paged(59), AT)
    assert not answer_stands(paged(61), AT)
    assert not answer_stands(replace(paged(1), page=None), AT)


def page_of(concerned: tuple[TargetKey, ...], alike: tuple[TargetKey, ...]) -> Page:
    finding = Finding(
        "BatchLimitBinding",
        Target(A, {"model_name": "m"}, pool="p"),
        AT,
        {},
        advice=CHANGE,
        concerned=concerned,
        of_targets=6,
    )
    finding = replace(finding, configured_alike=configured_alike(finding, alike))
    pool = replace(paged(0), page=None, target={"pool": "p"})
    return build_page(finding, pool, "firing", AT, annotations={"summary": "a limit binds"})


def test_a_page_of_servers_with_different_settings_names_whose_answer_it_gives() -> None:
    page = page_of((A, B, C, D), (A, B))
    assert page.summary.endswith("Set max_num_batched_tokens 512 → 1024 on 2 of 4")
    (line,) = [one.text for one in lines(page) if one.label == "Settings"]
    assert line == (
        "the advice is for a:8000 and b:8000; c:8000 and d:8000 have other settings: "
        "run driftwatch recommend c:8000"
    )
    (line,) = [o.text for o in lines(page_of((A, B), ())) if o.label == "Settings"]
    assert "is for a:8000; b:8000 has other settings" in line


def test_a_page_of_servers_with_one_setting_says_nothing_of_it() -> None:
    page = page_of((A, B), (A, B))
    assert page.servers == Servers(concerned=2, of=6, first=("a:8000", "b:8000"))
    assert page.summary.endswith("512 → 1024")
    assert "Settings" not in [one.label for one in lines(page)]
