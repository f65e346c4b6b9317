"""The top screen: golden, and what each of its cells says."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from report_cases import WEEK, cell, cells, incident, page, verification

from driftwatch.errors import UsageError
from driftwatch.model import Reason, Recommendation, Slo, TargetKey
from driftwatch.notify.page import Amount
from driftwatch.report.cells import cells_of
from driftwatch.report.document import week_document
from driftwatch.report.forms import as_html
from driftwatch.report.material import AdviceGiven, Marked, Material, Proposed
from driftwatch.report.text import top_screen
from driftwatch.report.week import week_held, week_named, weeks_held
from driftwatch.store.minute_columns import STORED_SCHEMA

STORY: dict[str, Any] = {
    "week": {
        "title": WEEK.title,
        "from": "2026-11-16T00:00:00Z",
        "to": "2026-11-23T00:00:00Z",
        "until": "2026-11-23T00:00:00Z",
        "data_from": "2026-11-16T00:00:00Z",
        "whole": True,
    },
    "fleet": {"pools": 3, "servers": 46},
    "for_you": [{"subject": "chat-8b", "text": "re-tune max_num_seqs 64 → 128, open 4 d"}],
    "drift": [
        {
            "subject": "rag-8b",
            "figure": "prompts ×2.3",
            "cost": {
                "kind": "requests",
                "requests_over_target_low": 414_200.0,
                "requests_over_target_high": 414_200.0,
                "requests_over_target_reason": None,
                "targets_derived": False,
            },
            "done": "budget 2048",
            "result": "worked, 1 → 100 %",
        },
        {
            "subject": "chat-8b-5",
            "figure": "19 % slower",
            "cost": {"kind": "gpu_hours", "gpu_hours_lost": 0.3, "money": None},
            "done": "drained",
            "result": "speed 100 % again",
        },
    ],
    "pages": {
        "pages": 4,
        "pages_last_week": 6,
        "marked_not_useful": 1,
        "silenced": 0,
        "budget_false_episodes": 1.06,
        "over_budget": False,
    },
    "advice": {
        "weeks": 8,
        "verdicts": {"PASS": 5, "FAIL": 1, "INCONCLUSIVE": 1},
        "open": 0,
        "forecast_errors": {
            "itl_seconds_mean": {"median_ratio": 0.05, "n": 6},
            "ttft_seconds_mean": {"median_ratio": 0.26, "n": 6},
        },
    },
    "blind": {
        "without_verdict_ratio": 0.069,
        "by_reason": {
            "idle": 0.040,
            "out of tuned range": 0.016,
            "arming": 0.009,
            "no data": 0.004,
            "saturated": 0.0,
        },
        "cannot_show_doubled_lengths": {"either": 3},
    },
}


def test_the_top_screen_reads_as_recorded(golden: Callable[[str, str], None]) -> None:
    golden("report/top-screen.txt", "\n".join(top_screen(STORY)) + "\n")


def test_piped_rows_are_whole_and_nothing_is_wrapped() -> None:
    lines = top_screen(STORY, piped=True)
    assert "rag-8b: prompts ×2.3\t414k requests missed\tbudget 2048\tworked, 1 → 100 %" in lines
    assert [line.split("\t")[0] for line in lines[1:]][-3:] == ["PAGES", "ADVICE", "BLIND"]


def test_long_cells_go_on_below_themselves_and_nothing_is_lost() -> None:
    story = copy.deepcopy(STORY)
    story["drift"][0]["done"] = "max_num_seqs 128, max_num_batched_tokens 2048"
    lines = top_screen(story)
    assert max(map(len, lines)) <= 80
    told = "".join(line[48:60] for line in lines[3:7])
    assert "".join(told.split()) == "max_num_seqs128,max_num_batched_tokens2048"


def _flat(document: dict[str, Any]) -> str:
    """The top screen as one line: where it is wrapped does not matter."""
    return " ".join(" ".join(top_screen(document)).split())


def _material(**values: Any) -> Material:
    return Material(
        week=WEEK,
        until=WEEK.end,
        **{"cells": cells(cell()), "slos": {"p": Slo(1.0, 0.05)}, **values},
    )


def test_drift_cost_done_result_of_one_incident() -> None:
    began = incident().started_at
    ratio = {"prompt_tokens_mean_ratio": Amount(value=2.34, unit="1")}
    over = cells(
        cell(end=began + timedelta(minutes=10), ttft_over_low=300.0, ttft_over_high=400.0),
        cell(end=began - timedelta(hours=3), ttft_over_low=9.0, ttft_over_high=9.0),
    )
    document = week_document(
        _material(
            cells=over,
            incidents=[incident(page=page(evidence=ratio))],
            verifications=[verification()],
        )
    )
    (row,) = document["drift"]
    assert (row["subject"], row["figure"]) == ("s0:8000", "prompts ×2.3")
    # a bucket leaves a range, and what was over target before it began is not its cost
    assert row["cost"]["requests_over_target_low"] == 300.0
    assert row["cost"]["requests_over_target_high"] == 400.0
    assert (row["done"], row["result"]) == ("budget 2048", "worked, 1.3 → 100 %")
    assert document["cost"]["requests_over_target_low"] == 309.0
    assert document["advice"]["verdicts"] == {"PASS": 1, "FAIL": 0, "INCONCLUSIVE": 0}
    assert document["advice"]["forecast_errors"]["ttft_seconds_mean"][
        "median_ratio"
    ] == pytest.approx(0.25)


def test_unknown_is_said_and_never_zero() -> None:
    began = incident().started_at
    rows = cells(
        cell(end=began + timedelta(minutes=10), verdict_seconds=0.0, arming_seconds=600.0),
    )
    slow = incident(alert="SlowerAtEqualLoad", rule="SlowerAtEqualLoad")
    document = week_document(_material(cells=rows, slos={}, incidents=[incident(key="a"), slow]))
    costs = {row["family"]: row["cost"] for row in document["drift"]}
    assert costs["traffic"]["requests_over_target_low"] is None
    assert costs["traffic"]["requests_over_target_reason"] == "no SLO"
    assert costs["speed"]["gpu_hours_lost"] is None
    assert costs["speed"]["gpu_hours_lost_reason"] == "no verdict on the speed"
    text = _flat(document)
    assert "waits unknown; no SLO" in text
    assert "unknown: no verdict on" in text
    # GPUs that nobody counted: hours of servers
    lost = cells(
        cell(
            end=began + timedelta(minutes=10),
            slow_seconds=600.0,
            lost_seconds=120.0,
            lost_gpu_seconds=None,
        )
    )
    priced = week_document(_material(cells=lost, incidents=[slow]))
    assert priced["drift"][0]["cost"]["gpu_hours_lost"] is None
    assert "0.03 server-hours lost," in "\n".join(top_screen(priced))


def test_a_loss_on_gpus_that_nobody_counted_is_unknown_in_a_cell_with_fast_minutes_too() -> None:
    minutes = [
        {
            "instance": "s0:8000",
            "engine": "0",
            "pool": "p",
            "end": WEEK.start + timedelta(minutes=1 + at),
            "seconds": 60.0,
            "scrapes": 6,
            "slower_at_equal_load": at == 0,
            "speed_at_equal_load_ratio": 0.75 if at == 0 else 1.0,
        }
        for at in range(2)
    ]
    schema = {**STORED_SCHEMA, "seconds": pl.Float64}
    (found,) = cells_of(pl.DataFrame(minutes, schema=schema), {}).iter_rows(named=True)
    assert found["lost_seconds"] == pytest.approx(15.0)
    assert found["lost_gpu_seconds"] is None
    counted = pl.DataFrame([{**row, "gpu_count": 2.0} for row in minutes], schema=schema)
    assert cells_of(counted, {})["lost_gpu_seconds"].to_list() == [pytest.approx(30.0)]


def test_gpu_hours_lost_are_those_of_slow_cells() -> None:
    began = incident().started_at
    lost = cells(
        cell(
            end=began + timedelta(minutes=10),
            slow_seconds=600.0,
            lost_seconds=114.0,
            lost_gpu_seconds=228.0,
        )
    )
    slow = incident(alert="SlowerAtEqualLoad")
    free = week_document(_material(cells=lost, incidents=[slow]))
    assert free["drift"][0]["cost"]["gpu_hours_lost"] == pytest.approx(228 / 3600)


def test_a_pools_own_page_takes_the_place_of_its_servers_rows() -> None:
    two = [
        incident(id=f"{n}" * 12, key=f"k{n}", alert="SlowerAtEqualLoad", target=target)
        for n, target in enumerate(
            [
                {"pool": "p", "instance": "s0:8000", "engine": "0"},
                {"pool": "p", "instance": "s1:8000", "engine": "0"},
            ]
        )
    ]
    whole = incident(id="9" * 12, key="k9", alert="SlowerAtEqualLoad", target={"pool": "p"})
    alone = week_document(_material(incidents=two))
    together = week_document(_material(incidents=[*two, whole]))
    assert [row["subject"] for row in alone["drift"]] == ["s0", "s1"]
    assert [(row["subject"], len(row["incidents"])) for row in together["drift"]] == [("p", 3)]


def test_open_decisions_come_first_by_kind_and_age() -> None:
    change = Recommendation(
        "change",
        Reason("x", "y"),
        knob="max_num_seqs",
        from_value=64.0,
        from_provenance="config",
        to_value=128.0,
    )
    firing = WEEK.end - timedelta(days=4, hours=2)
    stale = incident(
        alert="RetuneAdvised",
        severity="ticket",
        target={"pool": "chat-8b"},
        firing_at=firing,
        started_at=firing,
        resolved_at=None,
        page=page(severity="ticket", alert="RetuneAdvised", advice=change),
    )
    advised = {"action": "change", "knob": "max_num_batched_tokens", "from_value": 512.0}
    given = AdviceGiven(
        TargetKey("s0:8000", "0"), "p", WEEK.end - timedelta(days=2), {**advised, "to_value": 2048}
    )
    failed = verification(verdict="INCONCLUSIVE", reason="31 of 60 matched minutes", id="v2")
    proposed = Proposed("a1b2c3", "p", WEEK.start, WEEK.start + timedelta(days=1))
    document = week_document(
        _material(incidents=[stale], advice=[given], verifications=[failed], proposed=[proposed])
    )
    assert [d["kind"] for d in document["for_you"]] == [
        "retune",
        "advice",
        "verification",
        "baseline",
    ]
    text = _flat(document)
    assert "FOR YOU chat-8b: re-tune max_num_seqs 64 → 128, open 4 d" in text
    assert "max_num_batched_tokens 512 → 2048 was advised, not made yet" in text
    assert "31 of 60 matched minutes" in text
    assert "driftwatch baseline accept a1b2c3" in text
    # a change of that knob after the advice is what it asked for
    later = verification(change=verification().change, id="v3")
    changed = AdviceGiven(
        given.target, "p", later.change.at - timedelta(hours=1), given.recommendation
    )
    done = week_document(_material(advice=[changed], verifications=[later]))
    assert [d["kind"] for d in done["for_you"]] == []


def test_what_an_open_page_asks_for_is_said_whole_and_since_its_beginning() -> None:
    began = WEEK.end - timedelta(minutes=16)
    stuck = incident(
        alert="EngineStuck",
        started_at=began,
        firing_at=began + timedelta(minutes=2),
        resolved_at=None,
        page=page(
            alert="EngineStuck",
            advice=Recommendation(
                "none",
                Reason("leaf", "do not change a knob; drain it, keep its logs, restart it"),
            ),
            diagnosis=None,
        ),
    )
    document = week_document(_material(incidents=[stuck]))
    (decision,) = document["for_you"]
    assert decision["text"] == (
        "EngineStuck: do not change a knob; drain it, keep its logs, restart it, open 16 min"
    )
    assert document["drift"][0]["result"] == "open 16 min"


def test_servers_that_could_have_a_pin_wait_for_a_person() -> None:
    could = cell(verdict_seconds=0.0, arming_seconds=600.0, baseline_possible=True)
    other = cell(instance="s1:8000")
    document = week_document(_material(cells=cells(could, other)))
    assert "p: 1 of 2 servers have no baseline, and data enough for one" in _flat(document)
    with_one = cell(end=WEEK.start + timedelta(minutes=20), baseline_possible=False)
    assert week_document(_material(cells=cells(could, other, with_one)))["for_you"] == []


def test_the_week_is_told_as_it_stood_at_its_end() -> None:
    late = incident(resolved_at=WEEK.end + timedelta(hours=3))
    document = week_document(
        _material(incidents=[late], verifications=[verification(closed_at=WEEK.end)])
    )
    assert document["drift"][0]["result"] == "not verified yet"
    assert document["incidents"][0]["open"]
    assert document["advice"]["open"] == 1
    assert [d["kind"] for d in document["for_you"]] == ["page"]
    assert document["pages"]["pages"] == 1
    before = incident(
        firing_at=WEEK.start - timedelta(days=2),
        started_at=WEEK.start - timedelta(days=2),
        resolved_at=WEEK.start - timedelta(days=1),
    )
    quiet = week_document(_material(incidents=[before]))
    assert (quiet["pages"]["pages"], quiet["pages"]["pages_last_week"]) == (0, 1)


def test_marks_are_counted_and_what_nobody_marked_stays_unknown() -> None:
    paged = [incident(id=digit * 12, key=digit) for digit in "abcd"]
    held = incident(id="e" * 12, key="e", silenced_by="f")
    ticket = incident(id="9" * 12, key="9", severity="ticket")
    unmarked = week_document(_material(incidents=paged))
    assert unmarked["pages"]["marked_not_useful"] is None
    assert unmarked["pages"]["marked_not_useful_reason"] == "nobody marked one of them"
    assert "4 (last week 0); none marked, " in _flat(unmarked)
    marks = {
        "a" * 12: Marked(False, "Ana", "a load <test>"),
        "b" * 12: Marked(True, "Bob"),
        # nobody was woken by these
        "e" * 12: Marked(False, "Ana"),
        "9" * 12: Marked(False, "Ana"),
    }
    told = week_document(_material(incidents=[*paged, held, ticket], marks=marks))
    assert told["pages"]["marked"] == 2
    assert told["pages"]["marked_not_useful"] == 1
    assert told["pages"]["marked_not_useful_reason"] is None
    assert "1 marked not useful, 1 silenced, " in _flat(told)
    by_id = {one["id"]: one for one in told["incidents"]}
    assert by_id["a" * 12]["useful"] is False
    assert (by_id["c" * 12]["useful"], by_id["c" * 12]["useful_reason"]) == (
        None,
        "nobody marked it",
    )
    html = as_html(told)
    assert "no (Ana: a load &lt;test&gt;)" in html
    assert "<test>" not in html
    useful = week_document(_material(incidents=paged, marks={"b" * 12: Marked(True, "Bob")}))
    assert useful["pages"]["marked_not_useful"] == 0
    assert week_document(_material())["pages"]["marked_not_useful_reason"] == "no page to mark"


def test_a_quiet_week_is_the_top_screen_alone() -> None:
    document = week_document(_material())
    assert document["quiet"]
    lines = top_screen(document)
    assert lines[1:3] == ["FOR YOU  nothing", "MOVED    none"]
    assert "<h2>" not in as_html(document)
    assert document["pools"], "the JSON holds everything all the same"


def test_blind_minutes_by_reason_and_those_nobody_watched() -> None:
    rows = cells(
        cell(verdict_seconds=300.0, idle_seconds=300.0),
        # nobody watched for 20 minutes in between
        cell(end=WEEK.start + timedelta(minutes=40)),
    )
    blind = week_document(_material(cells=rows))["blind"]
    assert blind["server_minutes"] == 40.0
    assert blind["by_reason"]["idle"] == pytest.approx(5 / 40)
    assert blind["by_reason"]["no data"] == pytest.approx(20 / 40)
    assert blind["longest_gap_hours"] == pytest.approx(1 / 3)
    assert blind["cannot_show_doubled_lengths"]["either"] == 1


@pytest.mark.parametrize("text", ["2026-47", "2026-W54", "W47", "2026-W00", "2027-W53"])
def test_a_week_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--week"):
        week_named(text)


@pytest.mark.parametrize(
    ("days", "name"),
    [((0, 8), "2026-W47"), ((-1, 7), "2026-W47"), ((-5, 3), "2026-W46"), ((-4, 4), "2026-W47")],
)
def test_a_stretch_is_reported_by_the_week_that_it_holds(days: tuple[int, int], name: str) -> None:
    first, last = (WEEK.start + timedelta(days=n, seconds=30) for n in days)
    assert week_held(first, last).name == name
    assert sum(share for _, share in weeks_held(first, last)) == pytest.approx(8 / 7)
