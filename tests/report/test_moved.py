"""Causes, what they cost, the lengths of a pool, and the page that shows them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from report_cases import BEGAN, WEEK, cell, cells, flat, incident, page, reported, verification

from driftwatch.model import Advice, Diagnosis, KnobMove, Reason, Slo
from driftwatch.notify.page import Amount, First, Line
from driftwatch.report import words
from driftwatch.report.blind import blind_texts
from driftwatch.report.cells import cells_of
from driftwatch.report.html import as_html
from driftwatch.report.material import Usual
from driftwatch.report.report import Report
from driftwatch.store.minute_columns import STORED_SCHEMA

ENDED = BEGAN + timedelta(minutes=61)
THROTTLED = Diagnosis(
    "t", "gpu_throttled", (), meaning="slower at equal load with the GPU clock down"
)
RATIO = {"prompt_tokens_mean_ratio": Amount(value=2.34, unit="1")}
HUNG = [
    cell(10 * n, stuck_seconds=600.0, lost_seconds=600.0, lost_gpu_seconds=600.0)
    for n in range(1, 7)
]


def _late(minutes: float, low: float, high: float | None = None) -> dict[str, Any]:
    over = {"missed_low": low, "missed_high": low if high is None else high}
    return cell(minutes, ttft_seconds_count=1000.0, **over)


def _hang(**values: Any) -> Any:
    times = {"last_true_at": ENDED, "resolved_at": ENDED}
    return incident(id="a" * 12, key="hang", alert="EngineStuck", **{**times, **values})


def test_cost_done_and_result_of_one_incident() -> None:
    rows = [_late(10, 300, 400), _late(20, 300, 400), _late(-180, 9), _late(0, 20)]
    sent = page(evidence=RATIO)
    times = dict.fromkeys(("last_true_at", "resolved_at"), BEGAN + timedelta(minutes=10))
    report = reported(
        cells=cells(*rows),
        incidents=[incident(page=sent, **times)],
        verifications=[verification(incident_id="abcdef012345")],
    )
    (row,) = report.moved
    assert (row.subject, row.what) == ("s0:8000", "prompts ×2.3")
    # a bucket leaves a range; the ten minutes before in which few missed are not its cost
    assert (row.missed.low, row.missed.high) == (600.0, 800.0)
    assert (row.counted_from, row.counted_to) == (
        BEGAN.replace(minute=40),
        BEGAN.replace(hour=3, minute=0),
    )
    assert (row.done, row.result) == (
        "max_num_batched_tokens 2048, as advised",
        "worked: 1.3 → 100 % in target",
    )
    assert report.pools[0].missed.low == 629.0
    assert report.advice.outcomes == {"worked": 1}
    assert report.advice.forecast_errors["ttft_seconds_mean"].median == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("alert", "values", "cost"),
    [
        (
            "BatchDrift",
            {},
            "requests missed unknown: no latency target (slo in driftwatch.yaml, -c)",
        ),
        (
            "SlowerAtEqualLoad",
            {"verdict_seconds": 0.0, "no baseline yet": 600.0},
            "GPU time lost unknown: no verdict on speed",
        ),
        (
            "SlowerAtEqualLoad",
            {"slow_seconds": 600.0, "lost_seconds": 120.0, "lost_gpu_seconds": None},
            "GPU time lost unknown: GPU count unknown (gpus_per_replica)",
        ),
    ],
)
def test_unknown_is_said_and_never_zero(alert: str, values: dict[str, Any], cost: str) -> None:
    said = incident(alert=alert, rule=alert)
    report = reported(cells=cells(cell(10, **values)), slos={}, incidents=[said])
    assert words.cost_text(report.moved[0]) == cost


def test_gpu_hours_lost_are_a_range_as_wide_as_the_speed_wanders() -> None:
    slow = [
        cell(10 * n, slow_seconds=600.0, lost_seconds=120.0, lost_gpu_seconds=240.0)
        for n in range(1, 13)
    ]
    usual = [cell(10 * n, speed_at_equal_load_ratio=1.0 + 0.02 * (-1) ** n) for n in range(20, 40)]
    times = dict.fromkeys(("last_true_at", "resolved_at"), BEGAN + timedelta(minutes=110))
    said = incident(alert="SlowerAtEqualLoad", **times)
    (row,) = reported(cells=cells(*slow, *usual), incidents=[said]).moved
    assert row.result == "over after 110 min, then 96–104 % of the usual speed"
    low, high = row.gpu_hours_lost.low, row.gpu_hours_lost.high
    assert low is not None and high is not None
    assert low < 2 * 0.2 * 2 < high  # GPUs · loss · hours


def test_what_waits_after_a_hang_is_a_row_of_its_own_where_prompts_are_longer() -> None:
    began = ENDED + timedelta(minutes=3)
    times = dict.fromkeys(("last_true_at", "resolved_at"), began + timedelta(minutes=9))
    waits = incident(
        key="backlog", started_at=began, firing_at=began, page=page(evidence=RATIO), **times
    )
    report = reported(cells=cells(*HUNG, _late(70, 80)), incidents=[_hang(), waits])
    by_family = {row.family: row for row in report.moved}
    assert {name: row.incidents[0].id for name, row in by_family.items()} == {
        "stuck": _hang().id,
        "traffic": waits.id,
    }
    assert by_family["stuck"].what == "no token for 62 min"
    assert by_family["stuck"].done == "no change found"
    # with lengths as usual it is the hang's
    waits = waits.model_copy(update={"page": page()})
    (row,) = reported(cells=cells(*HUNG, _late(70, 80)), incidents=[_hang(), waits]).moved
    assert (row.family, len(row.incidents)) == ("stuck", 2) and row.missed.low == 80


def _share(minutes: float, share: float, prompts: float = 2300.0, **values: Any) -> dict[str, Any]:
    """Ten minutes in which a share of 1,000 requests misses its target."""
    tokens = {"prompt_tokens_count": 1000.0, "prompt_tokens_sum": 1000 * prompts}
    return {**_late(minutes, 1000 * share), **tokens, **values}


def test_a_hang_counts_those_without_an_answer_and_its_backlog() -> None:
    usual = [_late(10 * n, 0) for n in range(-11, 1)]
    stuck = [
        {**one, "row_seconds": 60.0, "held_requests": 7.0, "missed_low": 0.0, "missed_high": 0.0}
        for one in HUNG
    ]
    after = _late(70, 500) | {"given_up_requests": 70.0, "running_requests": 15.0}
    report = reported(cells=cells(*usual, *stuck, after), incidents=[_hang()])
    (row,) = report.moved
    lost = row.unanswered
    # 70 that began never ended, give or take what was running; 1,000 came in ten minutes before
    assert (lost.low, lost.high) == (pytest.approx(62), pytest.approx(6000 + 400 + 7 + 62))
    assert row.missed.low == pytest.approx(562)
    assert report.pools[0].missed == row.missed
    assert "requests missed" in words.cost_text(row)
    # a restart ends what was in it
    died = [*stuck[:-1], stuck[-1] | {"restarted": True}]
    (row,) = reported(cells=cells(*usual, *died), incidents=[_hang()]).moved
    assert row.unanswered.low == 7


def test_shorter_answers_of_requests_that_clients_gave_up_are_no_drift() -> None:
    """Long answers run into a time-out first: those that finish are short."""
    tokens = [
        {"generation_tokens_count": 100.0, "generation_tokens_sum": 100.0 * mean}
        | {"ttft_seconds_count": 100.0 + lost, "given_up_requests": lost}
        for mean, lost in [(200, 0.0)] * 30 + [(120, 40.0)] * 18 + [(200, 0.0)] * 30
    ]
    usual = {"p": Usual("tuned_for", {"generation_tokens_mean": 200.0})}
    rows = [cell(10 * n, **values) for n, values in enumerate(tokens)]
    (pool,) = reported(cells=cells(*rows), usual=usual).pools
    assert pool.generations.stretches == ()
    assert pool.hours is not None and None in pool.hours.generations[56:58]
    kept = [cell(10 * n, **{**v, "given_up_requests": 0.0}) for n, v in enumerate(tokens)]
    (pool,) = reported(cells=cells(*kept), usual=usual).pools
    assert [round(one.ratio, 2) for one in pool.generations.stretches] == [0.6]


def _slow(name: str, *servers: int) -> Any:
    keys = [{"instance": f"s{n}:8000", "engine": "0"} for n in servers]
    one = incident(id=name * 12, alert="SlowerAtEqualLoad", target={"pool": "p", **keys[0]})
    of_each = tuple(one.servers[0].model_copy(update=key) for key in keys)
    return one.model_copy(update={"servers": of_each})


def test_each_slow_server_is_a_cause_and_several_at_once_are_one() -> None:
    """The first page knows the cause; later ones see the limit that the queue fills."""
    slow = _slow("a", 0)
    asked = {"diagnosis": THROTTLED, "lines": (Line("Do", "Find what holds the clock down"),)}
    last = slow.page.model_copy(
        update={
            "first": First(at=BEGAN, summary="", **asked),
            "advice": Advice(
                action="change",
                reason=Reason("x", "y"),
                moves=(KnobMove("max_num_seqs", 48.0, 192.0),),
            ),
        }
    )
    slow = slow.model_copy(update={"page": last})
    apart = reported(incidents=[slow, _slow("b", 1)]).moved
    assert [row.subject for row in apart] == ["s0:8000", "s1:8000"]
    assert apart[0].what.endswith("slower at equal load with the GPU clock down")
    assert apart[0].done == "no change found; advised: find what holds the clock down"
    (together,) = reported(incidents=[_slow("c", 0, 1)]).moved
    assert together.subject == "p"


def test_a_second_drift_inside_the_first_is_a_second_cause() -> None:
    lengths = {f"{stem}_tokens_count": 100.0 for stem in ("prompt", "generation")}
    rows = [
        _late(10 * n, 50.0 if n >= 60 else 0.0)
        | lengths
        | {"prompt_tokens_sum": 1e5 * (1.5 if n >= 300 else 1.0)}
        | {"generation_tokens_sum": 2e4 * (1.8 if n >= 60 else 1.0)}
        for n in range(600)
    ]
    values = {"prompt_tokens_mean": 1000.0, "generation_tokens_mean": 200.0}
    began = BEGAN + timedelta(hours=10)
    times = {"started_at": began, "firing_at": began, "resolved_at": None}
    report = reported(
        cells=cells(*rows),
        usual={"p": Usual("tuned_for", values)},
        incidents=[incident(last_true_at=WEEK.end, **times)],
    )
    by_start = sorted(report.moved, key=lambda row: row.start)
    assert [(row.what, words.when_text(row), row.missed.low) for row in by_start] == [
        ("generations ×1.8", "Wed 12:30 – Fri 04:30", 12_000.0),
        ("generations ×1.8 and prompts ×1.5", "since Fri 04:30, still so", 15_000.0),
    ]


def test_lengths_of_six_hours_are_told_with_their_period() -> None:
    """Over the week they are ×1.06, which nobody asked about."""
    rows = [
        cell(
            10 * n,
            prompt_tokens_count=100.0,
            prompt_tokens_sum=100.0 * (1178 if 100 <= n < 136 else 512),
        )
        for n in range(800)
    ]
    usual = {"p": Usual("tuned_for", {"prompt_tokens_mean": 512.0})}
    (pool,) = reported(cells=cells(*rows), usual=usual).pools
    assert words.lengths_text(pool.prompts) == (
        "×2.3 Wed 19:10 – Thu 01:10 UTC (1,178 tokens); week ×1.1 (542 tokens, tuned for 512)"
    )
    (plain,) = reported(cells=cells(*rows)).pools
    assert words.lengths_text(plain.prompts).endswith(
        "no baseline and no tuned_for to compare with"
    )


def test_a_loss_on_gpus_that_nobody_counted_is_unknown_in_a_cell_with_fast_minutes_too() -> None:
    usual = {"instance": "s0:8000", "engine": "0", "pool": "p", "seconds": 60.0, "scrapes": 6}
    first, second = (WEEK.start + timedelta(minutes=n) for n in (1, 2))
    minutes = [
        {**usual, "end": first, "slower_at_equal_load": True, "speed_at_equal_load_ratio": 0.75},
        {**usual, "end": second, "slower_at_equal_load": False, "speed_at_equal_load_ratio": 1.0},
    ]
    schema = {**STORED_SCHEMA, "seconds": pl.Float64}
    (found,) = cells_of(pl.DataFrame(minutes, schema=schema), {}).iter_rows(named=True)
    assert found["lost_seconds"] == pytest.approx(15.0)
    assert found["lost_gpu_seconds"] is None
    counted = pl.DataFrame([{**row, "gpu_count": 2.0} for row in minutes], schema=schema)
    assert cells_of(counted, {})["lost_gpu_seconds"].to_list() == [pytest.approx(30.0)]


NASTY = "<script>alert(1)</script>|`*\"'&$x_y$"


def _nasty(pools: int = 1) -> Report:
    rows = [
        cell(
            60 * at,
            pool=NASTY if number == 0 else f"{NASTY}{number}",
            instance=f"s{number}:8000",
            generation_tokens_total=6000.0,
            ttft_seconds_count=100.0 + at,
            speed_at_equal_load_ratio=1.0 - at / 1000,
            prompt_tokens_sum=1e5,
            prompt_tokens_count=100.0,
        )
        for number in range(pools)
        for at in range(-50, 110)
    ]
    firing = incident(
        target={"pool": NASTY, "instance": "s0:8000", "engine": "0"},
        alert="Custom",
        page=page(alert="Custom", annotations={"summary": NASTY}, summary=NASTY),
        acknowledged_by=NASTY,
    )
    return reported(cells=cells(*rows), incidents=[firing], slos={NASTY: Slo(1.0)})


def test_names_are_only_ever_text_and_nothing_is_loaded() -> None:
    html = as_html(_nasty())
    assert "<svg" in html and "<table" in html and "default-src 'none'" in html
    assert not re.search(r"<script|<[^>]*\s(?:src|href|xlink:href|action)=", html)
    assert "&lt;script&gt;" in html and NASTY not in html
    ids = re.findall(r'\sid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    assert "(nobody watched)</li>" in html and "</details>" in html  # each period of BLIND
    many = as_html(_nasty(pools=60))
    assert 20_000 < len(many.encode()) <= 60_000 and "56 pools not drawn" in many
    assert "<h2" not in as_html(reported()), "a quiet week is the top screen alone"


def test_the_rows_of_the_table_add_up_to_what_the_week_missed() -> None:
    hours = timedelta(hours=1)
    rows = [_share(10 * n, 0.5 if 0 < n <= 6 or 12 < n <= 18 else 0.001) for n in range(-12, 30)]
    rows[2] |= _late(-100, 700) | {"ttft_seconds_count": 5000.0}
    often = [
        incident(
            id=name * 12,
            key=name,
            alert=alert,
            **{"started_at": start, "firing_at": start},
            **dict.fromkeys(("last_true_at", "resolved_at"), start + hours),
        )
        for name, alert, start in (
            ("a", "BatchDrift", BEGAN),
            ("b", "Custom", BEGAN + 2 * hours),
        )
    ]
    report = reported(cells=cells(*rows), incidents=often)
    (pool,) = report.pools
    apart = report.outside
    assert apart is not None and pool.missed.low is not None and apart.missed.low is not None
    of_causes = sum(row.missed.low or 0.0 for row in report.moved)
    assert of_causes + apart.missed.low == pytest.approx(pool.missed.low)
    assert words.moved_cells(report)[-1] == (
        "outside of incidents, most on p Wed 00:50–01:00",
        "727 requests missed",
        "no page",
        "700 missed there",
    )


def test_blind_says_what_could_be_missed_and_where() -> None:
    rows = cells(
        cell(10, verdict_seconds=300.0, idle=300.0),
        cell(40),  # nobody watched for 20 minutes in between
    )
    report = reported(cells=rows)
    blind = report.blind
    assert blind.server_minutes == 40.0
    assert blind.by_reason == {"idle": pytest.approx(5 / 40), "no data": pytest.approx(20 / 40)}
    seen = "BLIND nothing would have been noticed on s0:8000 Wed 02:50–03:10 (nobody watched)"
    assert f"{seen} lengths ×2 would go unnoticed on s0:8000" in flat(report)
    beyond = {"verdict_seconds": 0.0, "load outside the baseline": 600.0}
    idle = {"verdict_seconds": 0.0, "idle": 600.0}
    rows = cells(*(cell(10 * n, **(beyond if n < 13 else idle)) for n in range(1, 40)))
    known = dict.fromkeys((f"{name}_tokens_usual_ratio" for name in ("prompt", "generation")), 1.1)
    found = reported(cells=rows.with_columns(**known)).blind
    assert "once its servers have their speed again" in blind_texts(found, 2, "", ["p"])[0]
    (text,) = blind_texts(found, 2)
    assert text == (
        "a slower engine would have gone unnoticed on s0:8000 Wed 02:40–04:40 (load outside the "
        "baseline); if such load stays, take a new baseline: driftwatch baseline accept p"
    )
    (text,) = blind_texts(
        reported(cells=rows.filter(pl.col("idle") > 0).with_columns(**known)).blind, 1
    )
    assert text == "speed judged in 0 % of server-minutes"
