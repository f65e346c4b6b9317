"""A pool of servers as a real page shows them, for the tests of doctor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
from service_cases import shipped_plan

from driftwatch.collect.pages import PageParser
from driftwatch.doctor.rules import Check, Checkup
from driftwatch.model import Serving, Setting, Slo, Target, TargetKey
from driftwatch.pipeline.plan import Plan, Pool, TunedFor

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
COMPLETE = Pool(
    "chat",
    serving=Serving(
        max_num_seqs=Setting(64, "config"), max_num_batched_tokens=Setting(1024, "config")
    ),
    slo=Slo(ttft_seconds=1.0, tpot_seconds=0.05),
    tuned_for=TunedFor(128, 64),
)


def page_text(shared_data: Path, change: str = "", by: str = "") -> str:
    text = (shared_data / "vllm-0.32/metrics_during_load.txt").read_text()
    if change:
        assert re.search(change, text, flags=re.M)
        text = re.sub(change, by, text, flags=re.M)
    return text


def scrapes_of(pages: Mapping[str, str], at: datetime = NOW) -> pl.DataFrame:
    """One scrape of each instance."""
    parser = PageParser()
    return pl.concat(
        [parser.parse(instance, at, text.encode()).scrapes for instance, text in pages.items()]
    )


def plan_with(pool: Pool = COMPLETE) -> Plan:
    return replace(shipped_plan(), pools=(pool,))


def targets_of(plan: Plan, *instances: str, **labels: str) -> Mapping[TargetKey, Target]:
    keys = [TargetKey(instance, "0") for instance in instances]
    return plan.assign({key: Target(key, {"model_name": "m", **labels}) for key in keys})


def trouble(found: Checkup) -> list[Check]:
    return [c for c in found.checks if c.status in ("MISSING", "WRONG", "WARNING")]


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)
