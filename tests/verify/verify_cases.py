"""Minutes of the real recordings, stretches of them, and verifications by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import polars as pl
from filled import filled

from driftwatch.service.configuration import plan_of_rules
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.store.store import Store
from driftwatch.verify.matching import comparable, with_traffic
from driftwatch.verify.verification import Change, Verification

AT = datetime(2026, 11, 18, 5, tzinfo=UTC)
DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "vllm-0.32"


@cache
def run(name: str) -> Store:
    """A store with a recording, its minutes alone."""
    return filled(DATA / name, replace(plan_of_rules(()), rules=()))


def minutes_of(name: str) -> pl.DataFrame:
    """Its one target's minutes."""
    store = run(name)
    reach = store.minutes_reach()
    assert reach is not None
    return store.past(*reach).select(*MINUTE_SCHEMA)


def verifications_of(store: Store) -> list[Verification]:
    """All of them."""
    first, last = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
    return store.verifications(first, last)


def between(minutes: pl.DataFrame, first: float, last: float) -> pl.DataFrame:
    """Comparable minutes from the recording's ``first`` to its ``last`` minute."""
    start = minutes["end"][0] - timedelta(minutes=1)
    told = with_traffic(minutes)
    inside = (pl.col("end") > start + timedelta(minutes=first)) & (
        pl.col("end") <= start + timedelta(minutes=last)
    )
    return comparable(told.filter(inside))


def restart_of(minutes: pl.DataFrame) -> datetime:
    """End of the minute with the one restart."""
    (at,) = minutes.filter("restarted")["end"]
    assert isinstance(at, datetime)
    return at


def opened(at: datetime, **what: tuple[str, str]) -> Verification:
    """An open one."""
    change = Change("knobs", at, what or {"max_num_seqs": ("8", "64")})
    return Verification(
        id="v", instance="host:8000", engine="0", pool="pool", change=change, opened_at=at
    )
