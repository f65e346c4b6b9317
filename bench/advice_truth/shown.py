"""What advise() is shown of a case: the pages of its server, as evidence minutes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from advice_truth.cases import Case
from driftwatch.diagnose.evidence_table import evidence_table, rows_of_scrapes
from driftwatch.fleet.generate import generate
from driftwatch.fleet.servers import targets_of
from driftwatch.minutes.rows import minute_grid
from driftwatch.model import Serving, Setting, Slo
from driftwatch.recommend.advice import Question
from driftwatch.recommend.server import Server
from driftwatch.service.configuration import plan_of_rules
from driftwatch.signals.minutes import minutes

_HOUR = timedelta(hours=1)


def question_of(case: Case) -> Question:
    """The question at the time of the page, from the scrapes up to then."""
    scenario = case.scenario
    scrapes = pl.concat([chunk.scrapes for chunk in generate(scenario, case.seed)])
    at = scenario.start + timedelta(seconds=case.asked_at)
    targets = targets_of(scenario)
    rows = _rows(scrapes.filter(pl.col("time") <= at), targets, scenario.start, at)
    past = minutes(rows)
    shown = past.filter(pl.col("end") > at - _HOUR)
    return Question(
        at=at,
        minutes=shown,
        server=_server(case, rows.row(-1, named=True)),
        slo=_slo(case),
        slo_source="configuration",
        reference={},
        evidence=rows.row(-1, named=True),
    )


def _rows(
    scrapes: pl.DataFrame, targets: Mapping[Any, Any], start: datetime, end: datetime
) -> pl.DataFrame:
    plan = plan_of_rules(())
    frames = plan.frames(targets)
    rows = rows_of_scrapes(scrapes, frames.serving, start, end, plan.inputs)
    return evidence_table(rows, minute_grid(frames.serving, start, end), serving=frames.serving)


def _server(case: Case, row: Mapping[str, Any]) -> Server:
    """As a configuration file and the page tell it; nothing of the hidden step-time model."""
    import json

    pool = case.scenario.pool
    serving = pool.serving
    cache = json.loads(row["cache_config"]) if row.get("cache_config") else {}
    return Server(
        serving=Serving(
            max_num_seqs=Setting(serving.max_num_seqs, "config"),
            max_num_batched_tokens=Setting(serving.max_num_batched_tokens, "config")
            if case.knows_budget
            else None,
            max_model_len=Setting(serving.max_model_len, "config"),
        ),
        model=pool.model,
        gpu=pool.gpu,
        gpus=float(pool.gpus_per_replica),
        tensor_parallel=pool.gpus_per_replica,
        weight_bytes=2.0,
        num_gpu_blocks=int(cache["num_gpu_blocks"]) if "num_gpu_blocks" in cache else None,
        block_size=int(cache.get("block_size", 16)),
        gpu_memory_utilization=float(cache.get("gpu_memory_utilization", 0.9)),
        prefix_caching=True,
    )


def _slo(case: Case) -> Slo | None:
    said = case.scenario.pool.slo
    return None if said is None else Slo(said.ttft_seconds, said.tpot_seconds, said.share)
