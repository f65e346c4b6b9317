"""What caused what, and that the report says the same as the pages did."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from report_cases import WEEK, cell, cells, incident, page

from driftwatch.model import Reason, Recommendation, Slo
from driftwatch.notify.page import Amount
from driftwatch.report.document import week_document
from driftwatch.report.forms import as_html
from driftwatch.report.material import Material
from driftwatch.report.text import top_screen

BEGAN = incident().started_at
ENDED = BEGAN + timedelta(minutes=61)


def material(**values: Any) -> Material:
    usual = {"until": WEEK.end, "cells": cells(cell()), "slos": {"p": Slo(1.0, 0.05)}}
    return Material(week=WEEK, **{**usual, **values})


def at(minutes: float, **values: Any) -> dict[str, Any]:
    """Ten minutes that end so long after the hang began."""
    return cell(end=BEGAN.replace(minute=40) + timedelta(minutes=minutes), **values)


def hang(**values: Any) -> Any:
    return incident(
        **{
            "id": "aaaaaaaaaaaa",
            "key": "hang",
            "alert": "EngineStuck",
            "rule": "EngineStuck",
            "last_true_at": ENDED,
            "resolved_at": ENDED,
            **values,
        }
    )


HUNG = [
    at(10 * n, stuck_seconds=600.0, lost_seconds=600.0, lost_gpu_seconds=600.0) for n in range(1, 7)
]


def test_what_waits_after_a_hang_is_a_row_of_its_own() -> None:
    ratio = {"prompt_tokens_mean_ratio": Amount(value=1.6, unit="1")}
    began = ENDED + timedelta(minutes=3)
    times = dict.fromkeys(("last_true_at", "resolved_at"), began + timedelta(minutes=9))
    waits = incident(
        key="backlog", started_at=began, firing_at=began, page=page(evidence=ratio), **times
    )
    late = [at(70, queued_seconds=300.0, ttft_over_low=80.0, ttft_over_high=80.0), at(90)]
    document = week_document(material(cells=cells(*HUNG, *late), incidents=[hang(), waits]))
    assert {row["family"]: row["incidents"] for row in document["drift"]} == {
        "stuck": [hang().id],
        "traffic": [waits.id],
    }
    stuck = next(row for row in document["drift"] if row["family"] == "stuck")
    assert stuck["figure"] == "no token for 60 min"
    assert "1.00 GPU-hours lost" in as_html(document)


def test_a_restart_within_an_hour_is_what_was_done() -> None:
    back = at(70, restarted=True)
    (row,) = week_document(material(cells=cells(*HUNG, back), incidents=[hang()]))["drift"]
    assert row["done"] == "restarted"
    (row,) = week_document(material(cells=cells(*HUNG), incidents=[hang()]))["drift"]
    assert row["done"] == "no change found"


def test_a_ticket_that_asks_for_nothing_is_no_decision() -> None:
    """Its page said that there is nothing to do; the report does not ask to tune."""
    stale = incident(
        alert="RetuneAdvised",
        severity="ticket",
        resolved_at=None,
        page=page(
            severity="ticket",
            alert="RetuneAdvised",
            advice=Recommendation("no_action", Reason("x", "all in target")),
        ),
    )
    assert week_document(material(incidents=[stale]))["for_you"] == []


def test_more_requests_than_the_configured_cap_are_a_decision() -> None:
    beyond = [at(10 * n, max_num_seqs=32.0, running_requests=70.0 + 4 * n) for n in (1, 2)]
    (decision,) = week_document(material(cells=cells(*beyond)))["for_you"]
    assert (decision["kind"], decision["text"]) == (
        "setting",
        "max_num_seqs 32 is configured, but 78 requests ran at once: correct serving.max_num_seqs",
    )
    # one stretch of ten minutes may lie across a change of it, and an inferred cap is a lower bound
    assert week_document(material(cells=cells(*beyond[:1])))["for_you"] == []
    inferred = [{**one, "max_num_seqs_inferred": True} for one in beyond]
    assert week_document(material(cells=cells(*inferred)))["for_you"] == []


def test_pages_beyond_the_budget_are_called_so() -> None:
    three = [incident(id=digit * 12, key=digit) for digit in "abc"]
    # somebody was paged for the pool, not for each of its servers
    spoken_for = incident(id="d" * 12, key="d", part_of="c")
    pages = week_document(material(incidents=[*three, spoken_for]))
    assert pages["pages"]["pages"] == 3 and pages["pages"]["over_budget"]
    flat = " ".join(" ".join(top_screen(pages)).split())
    assert "PAGES 3 (last week 0); none marked, above the budget of 0.057 a week" in flat


def test_a_week_that_is_not_over_has_a_budget_so_far_and_no_data_of_the_future() -> None:
    now = WEEK.start + timedelta(minutes=14)
    span = WEEK.start, now.replace(minute=20)  # minutes that were packed
    told = week_document(material(cells=cells(cell()), span=span, until=now))
    assert told["week"]["data_to"] == told["week"]["until"] == "2026-11-16T00:14:00Z"
    assert re.search(r"budget [\d.]+ so far", " ".join(top_screen(told)))


def test_notices_are_counted_by_alert_and_pool() -> None:
    many = [
        incident(
            id=f"{number:012d}",
            key=f"k{number}",
            alert="LengthDrift",
            severity="notice",
            target={"pool": "p", "instance": f"s{number % 3}:8000", "engine": "0"},
        )
        for number in range(80)
    ]
    document = week_document(material(incidents=many))
    (row,) = document["notices"]
    assert (row["alert"], row["notices"], row["servers"]) == ("LengthDrift", 80, 3)
    assert as_html(document).count("LengthDrift") == 1
