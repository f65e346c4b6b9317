"""Questions about recorded real servers, as a page asks them."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import polars as pl

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.model import Target
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import Moment, question_for
from driftwatch.pipeline.roster import TickInput
from driftwatch.pipeline.state import State
from driftwatch.pipeline.tick import evaluate
from driftwatch.recommend.advice import Question
from driftwatch.service.configuration import plan_of_rules
from driftwatch.signals.minutes import minutes
from driftwatch.store.store import Store


@cache
def recorded_rows(recording: Path) -> tuple[pl.DataFrame, Target, Plan]:
    """Evidence rows of every minute, the one target, and a plan without a configuration."""
    plan = plan_of_rules(())
    source = RecordingSource(recording)
    since, until = source.span()
    collected = source.collect(since, until)
    _, outcome = evaluate(State(), TickInput({"": collected}, until), plan, Store.in_memory())
    return outcome.rows, next(iter(collected.targets.values())), plan


def question_at(recording: Path, minute: int) -> Question:
    """What is asked that many minutes after the first."""
    rows, target, plan = recorded_rows(recording)
    first = rows["end"].min()
    assert isinstance(first, datetime)
    at = first + timedelta(minutes=minute)
    known = rows.filter(pl.col("end") <= at)
    return question_for(Moment(target, at, minutes(known), known.row(-1, named=True)), plan)
