"""From a target and a moment to a question about its knobs: what ``recommend`` and pages ask."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.errors import NoVerdict
from driftwatch.model import Slo, Target
from driftwatch.pipeline.advising_server import server_of
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.pool_traffic import pooled
from driftwatch.recommend.advice import Objective, Question, SloSource
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.simulate.requests import Requests

# As much past as an answer is ever made of, where nobody names a window.
LONGEST = timedelta(hours=1)

__all__ = ["LONGEST", "question_for", "reference_in", "server_of"]


def question_for(
    target: Target,
    plan: Plan,
    at: datetime,
    minutes: pl.DataFrame,
    *,
    row: Mapping[str, Any] | None = None,
    reference: Mapping[str, Any] | None = None,
    gpus: pl.DataFrame | None = None,
    leaf: str | None = None,
    window: timedelta | None = None,
    slo: Slo | None = None,
    objective: Objective = "throughput",
    what_if: Mapping[str, float] | None = None,
    log: Requests | None = None,
    model: str | None = None,
    gpu: str | None = None,
    replicas: int | None = None,
    seed: int = 0,
    beside: pl.DataFrame | None = None,
) -> Question:
    """A question about one target.

    Args:
        target: with its labels.
        plan: pools, settings, targets of latency.
        at: end of the window.
        minutes: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, or stored rows, which have more
            columns; other targets and later minutes are left out.
        row: the evidence row of a window that ends then; None = no evidence.
        reference: ``reference_*`` columns; None = those of ``row``.
        gpus: GPU readings, for the names of their models.
        leaf: where the diagnosis ended; None = not asked.
        window: how far back; None = an hour.
        slo: targets of the command line; None = those of the pool.
        objective: what is better.
        what_if: knob → value asked about besides.
        log: a request log of the window.
        model: name of the model; None = as configured or told.
        gpu: name of the GPU; None = as configured or read.
        replicas: of the pool; None = unknown.
        seed: of everything drawn.
        beside: minutes of its twins (:func:`driftwatch.pipeline.pool_traffic.twins_of`): with them
            the question is that of the pool, the same for each of them; None = its own. A request
            log is of one server.

    Raises:
        NoVerdict: there is no minute of the target before ``at``.
    """
    key = target.key
    own = (pl.col("instance") == key.instance) & (pl.col("engine") == key.engine)
    inside = (pl.col("end") <= at) & (pl.col("end") > at - (window or LONGEST))
    mine = minutes.filter(own & inside).sort("end")
    if mine.is_empty():
        raise NoVerdict(f"{key.text}: no minute before {at:%Y-%m-%d %H:%M} UTC is known")
    server = server_of(target, plan, mine, row=row, gpus=gpus, model=model, gpu=gpu)
    every = mine
    if beside is not None and log is None:
        every = pl.concat([mine, beside.filter(inside & ~own)], how="diagonal")
    used, *others = (one.select(*MINUTE_SCHEMA) for one in pooled(key, every, at).values())
    wanted, source = _targets(target, plan, slo)
    return Question(
        at=at,
        minutes=used,
        beside=tuple(others),
        server=server,
        slo=wanted,
        slo_source=source,
        reference=reference_in(row or {}) if reference is None else reference_in(reference),
        evidence=row or {},
        leaf=leaf,
        objective=objective,
        what_if=what_if or {},
        log=log,
        replicas=replicas,
        seed=seed,
    )


def reference_in(row: Mapping[str, Any]) -> dict[str, Any]:
    """The ``reference_*`` columns that are known in a row."""
    return {k: v for k, v in row.items() if k.startswith("reference_") and v is not None}


def _targets(target: Target, plan: Plan, slo: Slo | None) -> tuple[Slo | None, SloSource]:
    if slo is not None:
        return slo, "command line"
    said = plan.pool_of(target).slo
    if said.ttft_seconds is None and said.tpot_seconds is None:
        return None, "unknown"
    return said, "configuration"
