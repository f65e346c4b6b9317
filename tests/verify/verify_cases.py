"""Minutes of the real recordings, stretches of them, and verifications by hand."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import polars as pl

from driftwatch.collect.recordings import open_recording
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.history import Recorded, recorded
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.verify.matching import comparable, with_traffic
from driftwatch.verify.verification import Change, Verification

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "vllm-0.32"


@cache
def run(name: str) -> Recorded:
    """A recording through the pipeline, its minutes alone."""
    source = open_recording(DATA / name)
    return recorded([source], source.span(), plan_of_rules(()), advise=False)


def minutes_of(name: str) -> pl.DataFrame:
    """Its one target's minutes."""
    return run(name).rows.select(*MINUTE_SCHEMA)


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
    return Verification("v", "host:8000", "0", "pool", change, at)
