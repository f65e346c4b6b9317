"""A small fleet's recording, and a week's material made by hand where no recording has it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
from made_incidents import of_labels
from small_page import small_page

from driftwatch.collect.recordings import open_recording
from driftwatch.collect.schema import Recording
from driftwatch.fleet.generate import generate_compact
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.incidents.incident import Incident
from driftwatch.model import Advice, KnobMove, Reason, Slo, TargetKey
from driftwatch.notify.page import Page, Phrases
from driftwatch.notify.phrases import fill
from driftwatch.recommend.advice import Answer
from driftwatch.report.cells import CELL_SCHEMA, REASONS
from driftwatch.report.make import report_of
from driftwatch.report.material import Material
from driftwatch.report.report import Report
from driftwatch.report.week import Week
from driftwatch.report.words import top_screen
from driftwatch.rulebook.book import load_rulebook
from driftwatch.rulebook.values import PageForm
from driftwatch.store.actions import NOT_USEFUL, USEFUL, Mark
from driftwatch.store.history import TargetAdvice
from driftwatch.verify.verification import Change, Effect, Verification

FORMS = {rule.alert: rule.page for rule in load_rulebook().rules}
WEEK = Week(2026, 47)
FLEET_WEEK = Week(2026, 10)  # of the recording
SLO = Slo(ttft_seconds=0.1, tpot_seconds=0.01, share=0.95)
SCENARIO = {
    "name": "report-day",
    "title": "three hours of two servers",
    "duration": "3h",
    "start": "2026-03-02T14:00:00Z",
    "scrape": {"interval": "30s"},
    "pool": {
        "name": "chat-8b",
        "replicas": 2,
        "slo": {"ttft_seconds": 0.1, "tpot_seconds": 0.01},
    },
    "traffic": {"requests_per_second": 2.5},
    "faults": [{"kind": "wedge", "at": "90m", "until": "2h", "replicas": [1]}],
    "truth": {"effects": []},
}


def fleet_recording(folder: Path) -> Recording:
    generate_compact(Scenario.model_validate(SCENARIO), 7, folder)
    return open_recording(folder)


_ZERO = (*REASONS, "slow_seconds", "lost_seconds", "lost_gpu_seconds", "stuck_seconds")


def cell(minutes: float = 10, **values: Any) -> dict[str, Any]:
    """Ten minutes that end so long after Wednesday 02:40, with a verdict and nothing wrong."""
    return {
        "instance": "s0:8000",
        "engine": "0",
        "pool": "p",
        "end": BEGAN.replace(minute=40) + timedelta(minutes=minutes),
        "seconds": 600.0,
        "duration_seconds": 600.0,
        **dict.fromkeys(_ZERO, 0.0),
        "verdict_seconds": 600.0,
        **values,
    }


BEGAN = datetime(2026, 11, 18, 2, 45, tzinfo=UTC)


def cells(*rows: Mapping[str, Any]) -> pl.DataFrame:
    names = ("instance", "engine", "end")
    return pl.DataFrame(list(rows), schema=CELL_SCHEMA, orient="row").sort(names)


def incident(**values: Any) -> Incident:
    """A page of a server, four hours on Wednesday."""
    said: dict[str, Any] = {
        "id": "abcdef012345",
        "rule": values.get("alert", "BatchDrift"),
        "target": {"pool": "p", "instance": "s0:8000", "engine": "0"},
        "started_at": BEGAN,
        "firing_at": BEGAN,
        "resolved_at": BEGAN + timedelta(hours=4),
        **values,
    }
    of_page = {"alert": said["rule"], "severity": said.get("severity", "page")}
    said.setdefault("page", page(**of_page))
    return of_labels(at=said.pop("last_true_at", BEGAN + timedelta(hours=4)), **said)


def page(**values: Any) -> Page:
    """What a report reads of a page."""
    made = small_page(**{"alert": "BatchDrift", "labels": {"pool": "p"}, **values})
    form = FORMS.get(made.alert, PageForm())
    problem = tuple(fill(made, form.says)) or (f"{made.alert} is true",)
    update = {"family": form.family, "phrases": Phrases(problem=problem)}
    return made.model_copy(update=update)


def verification(**values: Any) -> Verification:
    """A larger token budget that worked."""
    at = datetime(2026, 11, 18, 7, 0, tzinfo=UTC)
    said: dict[str, Any] = {
        "id": "v1",
        "instance": "s0:8000",
        "engine": "0",
        "pool": "p",
        "change": Change("knobs", at, {"max_num_batched_tokens": ("512", "2048")}),
        "opened_at": at,
        "closed_at": at + timedelta(hours=1),
        "verdict": "PASS",
        "effects": (
            Effect("in_target_ratio", 0.013, 1.0, 0.95, 1.0, 0.99, "1"),
            Effect("ttft_seconds_mean", 1.8, 0.06, -1.8, -1.6, 0.08, "seconds"),
        ),
        "forecast": {"in_target_ratio": 0.99},
        **values,
    }
    return Verification(**said)


def given(
    pool: str, at: datetime, moves: tuple[KnobMove, ...], incident_id: str | None = None
) -> TargetAdvice:
    """An advice to change settings."""
    answer = Answer(at=at, advice=Advice(action="change", reason=Reason("x", "y"), moves=moves))
    return TargetAdvice(TargetKey("s0:8000", "0"), pool, at, answer, incident_id)


def marked(useful: bool) -> Mark:
    """Ana's mark of a page."""
    return Mark("", USEFUL if useful else NOT_USEFUL, BEGAN, "Ana")


def reported(**values: Any) -> Report:
    """The report of a week: a cell of a pool ``p`` with targets, and what is given."""
    usual = {"until": WEEK.end, "cells": cells(cell()), "slos": {"p": Slo(1.0, 0.05)}}
    return report_of(Material(week=WEEK, **{**usual, **values}))


def flat(report: Report) -> str:
    """The top screen as one line: where it is wrapped does not matter."""
    return " ".join(" ".join(top_screen(report)).split())
