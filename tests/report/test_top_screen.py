"""The top screen: golden, and what each of its lines says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from report_cases import (
    BEGAN,
    WEEK,
    cell,
    cells,
    flat,
    given,
    incident,
    marked,
    page,
    reported,
    verification,
)

from driftwatch.model import Advice, Diagnosis, KnobMove, Reason
from driftwatch.notify.page import Amount
from driftwatch.report.report import Report
from driftwatch.report.words import top_screen
from driftwatch.verify.verification import Change, Effect

CHANGE = Advice(
    action="change", reason=Reason("x", "y"), moves=(KnobMove("max_num_seqs", 64.0, 128.0),)
)
DRAIN = Advice(action="none", reason=Reason("leaf", "drain it"))
OPEN = WEEK.end - timedelta(days=4, hours=2)
HOUR = timedelta(hours=1)


def _opened(alert: str, advice: Advice, of_page: Any = (), **values: Any) -> Any:
    times = {"started_at": OPEN, "firing_at": OPEN, "last_true_at": WEEK.end, "resolved_at": None}
    severity = values.get("severity", "page")
    sent = page(alert=alert, severity=severity, advice=advice, **dict(of_page))
    return incident(alert=alert, page=sent, **times, **values)


def _story() -> Report:
    """A drift that a change mended, a slow server, and a ticket that waits."""
    slow = {"slow_seconds": 600.0, "lost_seconds": 120.0, "lost_gpu_seconds": 240.0}
    late = {"ttft_seconds_count": 3e4, "missed_low": 2e4, "missed_high": 2.1e4}
    rows = [
        *(cell(10 * n, **late) for n in range(1, 24)),
        *(cell(10 * n, instance="s5:8000", **slow) for n in range(1, 13)),
        *(cell(10 * n, speed_at_equal_load_ratio=1 + 0.02 * (-1) ** n) for n in range(30, 60)),
    ]
    ratio = {"prompt_tokens_mean_ratio": Amount(value=2.34, unit="1")}
    target = {"pool": "p", "instance": "s5:8000", "engine": "0"}
    causes = [
        incident(page=page(evidence=ratio)),
        incident(id="b" * 12, key="b", alert="SlowerAtEqualLoad", target=target),
        _opened("RetuneAdvised", CHANGE, severity="ticket"),
    ]
    return reported(
        cells=cells(*rows),
        incidents=causes,
        verifications=[verification()],
        marks={"b" * 12: marked(False)},
        knows_last_week=True,
    )


def test_the_top_screen_reads_as_recorded(golden: Callable[[str, str], None]) -> None:
    golden("report/top-screen.txt", "\n".join(top_screen(_story())) + "\n")
    piped = "\n".join(top_screen(_story(), piped=True))
    golden("report/top-screen-piped.txt", piped + "\n")


GIVEN = given("p", OPEN, (KnobMove("max_num_batched_tokens", 512.0, 1024.0),))
EARLY = given("p", BEGAN + timedelta(minutes=20), GIVEN.moves, "abcdef012345")
AHEAD = Advice(
    action="change",
    reason=Reason("x", "y"),
    moves=GIVEN.moves,
    effect=("forecast: 98 % of requests in target",),
    price=("ITL p99 27 → 43 ms (its target is 50 ms)", "restart"),
)
MORE = Advice(
    action="none",
    reason=Reason("x", "y"),
    instead=(
        "add 2 replicas (6 in all): forecast 99 % of requests in target",
        "cache half the prompt tokens: capacity 8.8 → 12 req/s",
    ),
    basis="simulation",
)
MIXED = ("FAIL", "PASS", "FAIL")
INFERRED = verification(
    change=Change(
        "knobs", EARLY.at, {"max_num_batched_tokens": ("512", "at least 1024 (by its steps)")}
    )
)
FAILED = INFERRED.model_copy(update={"id": "v2", "verdict": "FAIL"})


RELEASE = verification(
    verdict="FAIL",
    reason="requests in target fell",
    change=Change("release", OPEN - timedelta(hours=8), {"vllm": ("0.32.0", "0.33.0")}),
    effects=(
        Effect("in_target_ratio", 0.37, 0.0, -0.4, -0.1, None, "1"),
        Effect("ttft_seconds_mean", 10.0, 200.0, 90.0, 400.0, None, "seconds"),
        Effect("itl_seconds_mean", 0.026, 0.031, 0.001, 0.01, None, "seconds"),
        Effect("batch_assembly_wait_seconds", 9.0, 190.0, 80.0, 400.0, None, "seconds"),
    ),
    forecast=None,
)
OLDER = Diagnosis("t", "version_change", (), advice="Roll back", meaning="slower at equal load")
SLOWER = {"diagnosis": OLDER, "first_problem": "21 % slower at equal load; max_num_seqs is full"}
BLAMES = _opened("SlowerAtEqualLoad", DRAIN, SLOWER)
_UNJUDGED = [
    cell(10, end=OPEN - timedelta(minutes=10 * n), **{"load outside the baseline": 600.0})
    for n in range(40)
]


def over(advice: Advice) -> Any:
    return incident(page=page(alert="BatchDrift", advice=advice))


_BEYOND = [cell(10 * n, running_requests_max_of_process=70.0 + 4 * n) for n in (1, 2)]
STEPS = {"step_tokens_max_of_process": 1076.0}
OLD = {("p", "max_num_batched_tokens"): 512.0}
FILE = {("p", "max_num_seqs"): 32.0}
_LEVEL = {"running_requests_max_of_process": 96.0, "inferred_max_num_seqs": 96.0}
_HELD = [cell(10, instance=f"s{n}:8000", restarted=True, **_LEVEL) for n in (0, 1)]
_AGAIN = [
    cell(0, end=OPEN + timedelta(minutes=n), instance=f"s{n}:8000", restarted=True)
    for n in (70, 90, 100, 110)
]


@pytest.mark.parametrize(
    ("material", "kind", "what"),
    [
        (
            {"incidents": [_opened("RetuneAdvised", CHANGE, severity="ticket")]},
            "retune",
            "re-tune max_num_seqs 64 → 128, open 4 d 2 h",
        ),
        (
            {"incidents": [_opened("EngineStuck", DRAIN, acknowledged_by="Ana")]},
            "page",
            "EngineStuck: drain it, open 4 d 2 h, acknowledged by Ana",
        ),
        # somebody may have changed it: the report asks and asserts nothing
        (
            {"advice": [GIVEN], "cells": cells(*_AGAIN)},
            "question",
            "what is max_num_batched_tokens since the restart of Wed 23:00 (4 servers)? Nobody "
            "confirmed it; it was 512; 1024 was advised Wed 22:00. Correct driftwatch.yaml, and "
            "record it: driftwatch verify p --setting max_num_batched_tokens=N --at "
            "2026-11-18T23:00Z",
        ),
        # over: what to do beforehand, what it brings and costs; the last advice counts
        (
            {"incidents": [over(AHEAD)], "advice": [EARLY]},
            "advice",
            "set max_num_batched_tokens 512 → 1024 before it happens again: forecast 98 % of "
            "requests in target; price: ITL p99 27 → 43 ms, restart",
        ),
        # steps show what runs
        (
            {"advice": [EARLY], "cells": cells(cell(10, **STEPS)), "configured": OLD},
            "setting",
            "correct serving.max_num_batched_tokens in driftwatch.yaml (the start-up log has it): "
            "it says 512, and the servers run at least 1024; 1024 was advised Wed 03:05",
        ),
        # a rollout is one decision, with what it did to the median server
        (
            {"verifications": [verification(id=f"v{n}", verdict=v) for n, v in enumerate(MIXED)]},
            "verification",
            "keep max_num_batched_tokens 2048: helped on 1 of 3 servers: 1.3 → 100 % in target, "
            "less than promised; what else helps: driftwatch recommend p --at 2026-11-18T08:00Z",
        ),
        # a release: the time between tokens is sound where a queue grows
        (
            {"verifications": [RELEASE]},
            "verification",
            "go back to vllm 0.32.0: slower: ITL 26 → 31 ms; 37 → 0 % in target, requests queued "
            "before it too",
        ),
        # one fault is one ask, and no simulation knows what helps a slow engine
        (
            {"verifications": [RELEASE], "incidents": [BLAMES], "cells": cells(*_UNJUDGED)},
            "page",
            "go back to vllm 0.32.0 (0.33.0 came Wed 13:59): 1 of 1 server 21 % slower at equal "
            "load, first seen Wed 22:00: load outside the baseline before; open 4 d 2 h",
        ),
        (
            {
                "verifications": [
                    verification(verdict="INCONCLUSIVE", reason="31 of 60 matched minutes")
                ]
            },
            "verification",
            "decide whether to keep max_num_batched_tokens 2048: cannot be judged: 31 of 60 "
            "matched minutes",
        ),
        (
            {"cells": cells(*_BEYOND), "configured": FILE},
            "setting",
            "correct serving.max_num_seqs in driftwatch.yaml (the start-up log has it): it says "
            "32, and up to 78 ran at once on s0:8000",
        ),
        # the level that both servers held is named, until a person has recorded it
        (
            {"cells": cells(*_HELD), "configured": FILE},
            "question",
            "what is max_num_seqs since the restart of Wed 02:40 (2 servers)? Nobody confirmed it; "
            "driftwatch.yaml says 32, and at most 96 ran on all 2 servers while requests queued: "
            "probably 96. Correct driftwatch.yaml, and record it: driftwatch verify p --setting "
            "max_num_seqs=96 --at 2026-11-18T02:40Z",
        ),
        (
            {
                "cells": cells(*_HELD),
                "configured": FILE,
                "confirmed": {("p", "max_num_seqs"): (BEGAN, 96.0)},
            },
            "setting",
            "correct serving.max_num_seqs in driftwatch.yaml: it says 32, and 96 runs since Wed "
            "02:45 (a person recorded it)",
        ),
        (
            {"configured": FILE, "confirmed": {("p", "max_num_seqs"): (BEGAN, 24.0)}},
            "setting",
            "correct serving.max_num_seqs in driftwatch.yaml: it says 32, and 24 runs since Wed "
            "02:45 (a person recorded it)",
        ),
    ],
)
def test_what_waits_for_a_person(material: dict[str, Any], kind: str, what: str) -> None:
    (decision,) = reported(**material).for_you
    assert (decision.kind, decision.what) == (kind, what)


def test_an_advice_is_for_a_load_and_the_busiest_hour_of_its_cause_may_have_had_more() -> None:
    ticket = _opened("RetuneAdvised", MORE, severity="ticket")
    advised = given("p", OPEN + HOUR, (), ticket.id)
    answer = advised.answer.model_copy(update={"offered_requests_per_second": 1.5})
    rows = [
        cell(0, end=OPEN + n * HOUR, ttft_seconds_count=m)
        for n, m in ((1, 900), (2, 1200), (3, 60))
    ]
    rows.append(cell(0, end=OPEN + 4 * HOUR, ttft_seconds_count=3000.0, slow_seconds=600.0))
    report = reported(
        incidents=[ticket], advice=[replace(advised, answer=answer)], cells=cells(*rows)
    )
    assert report.for_you[0].what == (
        "RetuneAdvised: add 2 replicas (6 in all), open 4 d 2 h; that is for the 1.50 requests/s a "
        "server of Wed 23:00; 2.00 came in the hour to Thu 00:00: driftwatch recommend p --at "
        "2026-11-19T00:00Z"
    )


# what a verification explains is no question
@pytest.mark.parametrize("explained", [0, 4])
def test_restarts_inside_an_incident_may_have_changed_a_setting(explained: int) -> None:
    changes = [
        RELEASE.model_copy(
            update={"id": f"v{n}", "instance": f"s{n}:8000"}
            | {"change": replace(RELEASE.change, at=OPEN + timedelta(minutes=n - 3))}
        )
        for n in (70, 90, 100, 110)[:explained]
    ]
    report = reported(
        incidents=[_opened("BatchDrift", MORE)], cells=cells(*_AGAIN), verifications=changes
    )
    asks = [one.what for one in report.for_you if one.kind == "question"]
    question = (
        "4 servers restarted Wed 23:00, inside an incident (requests wait). If a setting changed, "
        "record it: driftwatch verify p --setting NAME=VALUE --at 2026-11-18T23:00Z"
    )
    assert asks == ([] if explained else [question])


def test_a_release_that_came_to_slow_servers_counts_once() -> None:
    late = RELEASE.model_copy(update={"change": replace(RELEASE.change, at=OPEN + HOUR)})
    servers = [one.model_copy(update={"since": OPEN + 2 * HOUR}) for one in BLAMES.servers]
    slow = BLAMES.model_copy(update={"servers": tuple(servers)})
    waits = _opened("BatchDrift", DRAIN, id="b" * 12, key="b")
    rows = reported(incidents=[slow, waits], verifications=[late]).moved
    came = "vllm 0.32.0 → 0.33.0 came Wed 22:59; not taken back"
    assert {row.family: came in row.done for row in rows} == {"speed": True, "traffic": False}
    assert not any("0.33.0" in row.done for row in rows if row.family == "traffic")


NOTHING = Advice(action="no_action", reason=Reason("x", "all in target"))


@pytest.mark.parametrize(
    "material",
    [
        # a ticket that asks for nothing
        {"incidents": [_opened("RetuneAdvised", NOTHING, severity="ticket")]},
        # a change of that knob after the advice is what it asked for
        {"advice": [GIVEN], "verifications": [verification(change=verification().change)]},
        {"cells": cells(*_HELD)},
        {"cells": cells(*_HELD), "configured": {("p", "max_num_seqs"): 96.0}},
    ],
    ids=["nothing asked", "done", "not configured", "corrected"],
)
def test_what_waits_for_nobody(material: dict[str, Any]) -> None:
    if "advice" in material:
        early = given("p", OPEN - timedelta(days=4), GIVEN.moves)
        material = {**material, "advice": [early]}
    assert reported(**material).for_you == ()


def _pages(*marks: bool) -> str:
    paged = [incident(id=digit * 12, key=digit) for digit in "abcd"]
    marks = {id_ * 12: marked(useful) for id_, useful in zip("abcd", marks, strict=False)}
    week = reported(incidents=paged, marks=marks, knows_last_week=True)
    return flat(week).partition("PAGES ")[2].partition(" BLIND")[0]


def test_false_pages_stand_beside_their_budget_and_true_ones_are_over_none() -> None:
    """A page that nobody marked is neither."""
    assert _pages() == "4 (last week 0); nobody marked one useful or not useful"
    marks = "1 marked useful; {} marked not useful, budget one in 17 weeks"
    assert _pages(True) == f"4 (last week 0); {marks.format(0)}"
    assert _pages(True, False) == f"4 (last week 0); {marks.format(1)}"
    held = incident(id="e" * 12, key="e", silenced_by="f")
    assert "PAGES 0; 1 silenced" in flat(reported(incidents=[held]))


def test_the_week_is_told_as_it_stood_at_its_end() -> None:
    late = incident(resolved_at=WEEK.end + timedelta(hours=3))
    report = reported(incidents=[late], verifications=[verification(closed_at=WEEK.end)])
    assert report.moved[0].result == "not verified yet"
    assert report.moved[0].end is None
    assert report.advice.outcomes == {"not verified yet": 1}
    assert [one.kind for one in report.for_you] == ["page"]
    day = timedelta(days=1)
    before = incident(
        firing_at=WEEK.start - 2 * day,
        started_at=WEEK.start - 2 * day,
        resolved_at=WEEK.start - day,
    )
    quiet = reported(incidents=[before], knows_last_week=True)
    assert (quiet.pages.pages, quiet.pages.pages_last_week) == (0, 1)
    assert top_screen(quiet)[1:3] == ["FOR YOU  nothing", "MOVED    nothing"]
    asked = cells(cell(10, ttft_seconds_count=1.74e6, missed_low=3.0, missed_high=9.0))
    line = "MOVED nothing; 1.74M requests, >99.9 % in target"
    assert line in flat(reported(cells=asked))
    mixed = [verification(id=f"v{n}", verdict=v) for n, v in enumerate(MIXED)]
    # every advice has one outcome; what the median server gained makes the rollout not enough
    of_another = given("q", EARLY.at, GIVEN.moves, "another")
    advice = reported(verifications=mixed, advice=[of_another]).advice
    assert advice.outcomes == {"helped in part": 1, "not made": 1}
    asked = reported(advice=[GIVEN], cells=cells(*_AGAIN)).advice
    assert (advice.advised, asked.outcomes) == (2, {"not confirmed": 1})
