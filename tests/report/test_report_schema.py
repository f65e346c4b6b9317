"""The report's published schema describes every field that a report has."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from report_cases import WEEK, cell, cells, incident, page, verification
from schema_cases import SCHEMA, problems

from driftwatch.detect.trend.days import DAY_SCHEMA
from driftwatch.model import Slo, TargetKey
from driftwatch.report.days import kept_days
from driftwatch.report.document import week_document
from driftwatch.report.forms import as_json_text
from driftwatch.report.material import (
    AdviceGiven,
    Marked,
    Material,
    Price,
    Proposed,
    Reference,
    Region,
    RuleSet,
    SilencedTime,
)


def full_week() -> dict[str, Any]:
    """A week in which every list of the report has an entry, as JSON has it."""
    busy = [
        cell(
            end=WEEK.start + timedelta(minutes=10 * number),
            ttft_seconds_count=100.0,
            ttft_over_low=1.0,
            ttft_over_high=2.0,
            generation_tokens_total=60_000.0,
            duration_seconds=600.0,
            forward_passes=1000.0,
            itl_seconds_count=5000.0,
            itl_seconds_sum=50.0,
            speed_at_equal_load_ratio=1.0,
            restarted=number == 7,
            no_data_seconds=300.0,
            max_num_seqs=48.0,
            max_num_batched_tokens=2048.0,
        )
        for number in range(1, 433)
    ]
    day = dict.fromkeys(DAY_SCHEMA) | {
        "instance": "s0:8000",
        "engine": "0",
        "pool": "p",
        "day": WEEK.start,
        "minutes": 1440.0,
        "finished_requests": 10.0,
        "prompt_tokens_mean": 500.0,
    }
    undetermined = page(diagnosis={"leaf": "undetermined", "missing": ["slo_missed"]})
    material = Material(
        week=WEEK,
        until=WEEK.end,
        cells=cells(*busy),
        last_cells=cells(*busy[:6]),
        baseline_cells=cells(*busy[:60]),
        days=kept_days(pl.DataFrame([day], schema=DAY_SCHEMA)),
        incidents=[
            incident(),
            incident(id="b" * 12, key="b", alert="LengthDrift", severity="notice"),
            incident(id="c" * 12, key="c", severity="ticket", resolved_at=None, page=undetermined),
            incident(id="d" * 12, key="d", silenced_by="e" * 12),
            incident(id="f" * 12, key="f", inhibited_by="BatchDrift", firing_at=None),
        ],
        verifications=[verification()],
        advice=[
            AdviceGiven(TargetKey("s0:8000", "0"), "p", WEEK.start, {"action": "insufficient"})
        ],
        references=[Reference("p", None, "tuned_for", {"prompt_tokens_mean": 400.0})],
        proposed=[Proposed("3c1f9a02", "s0:8000", WEEK.start, WEEK.end)],
        silences=[SilencedTime("e" * 12, "pool=p", "Ana", "load test")],
        marks={"abcdef012345": Marked(False, "Ana", "a load test")},
        slos={"p": Slo(1.0, 0.05)},
        rules=RuleSet("0" * 64, 24, 1),
        price=Price(2.5, "EUR"),
        regions=[Region("eu", None, 1, 2, WEEK.end, RuleSet("x", 1, 0)), Region("us", "down")],
    )
    told: dict[str, Any] = json.loads(as_json_text(week_document(material)))
    return told


def lists_of(part: Any, place: str = "$") -> dict[str, list[Any]]:
    """Every list of the document by its place."""
    if isinstance(part, dict):
        return {
            k: v for key, one in part.items() for k, v in lists_of(one, f"{place}.{key}").items()
        }
    if isinstance(part, list):
        inner = lists_of(part[0], f"{place}[]") if part else {}
        return {place: part, **inner}
    return {}


def test_a_full_week_has_no_field_that_the_schema_does_not_describe() -> None:
    told = full_week()
    assert problems(told) == []
    # of an empty list nothing was compared; these are ids
    empty = [place for place, entries in lists_of(told).items() if not entries]
    assert empty == ["$.drift[].consequences"]


def test_an_empty_week_fits() -> None:
    told = week_document(Material(week=WEEK, until=WEEK.end))
    assert problems(json.loads(as_json_text(told))) == []


def _without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda told: told["cost"].pop(name)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_without("money"), "$.cost: 'money' is a required property"),
        (lambda told: told["pages"].update(loud=1), "$.pages: Additional properties"),
        (lambda told: told["week"].update(until="2026-11-16"), "$.week.until: '2026-11-16' does"),
        (lambda told: told["drift"][0].update(open="no"), "$.drift[0].open: 'no' is not of type"),
        (lambda told: told.update(schema_version=2), "$.schema_version: 1 was expected"),
    ],
)
def test_a_document_of_another_form_is_noticed(
    change: Callable[[dict[str, Any]], Any], problem: str
) -> None:
    told = copy.deepcopy(full_week())
    change(told)
    (found,) = problems(told)
    assert found.startswith(problem)


def test_a_reader_may_meet_fields_that_are_newer() -> None:
    parts = json.loads(SCHEMA.read_text(encoding="utf-8"))
    shut = [n for n, p in parts["$defs"].items() if p.get("additionalProperties", True) is not True]
    assert shut == [] and parts["additionalProperties"] is True
