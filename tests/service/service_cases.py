"""Sources and plans for tests of the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache

import polars as pl

from driftwatch.collect.schema import KEY, Collected, Own
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.service.configuration import plan_of_rules


class FrameSource:
    """Scrapes that are already there, handed out by time."""

    settle_seconds = 0.0

    def __init__(self, frame: pl.DataFrame, targets: Mapping[TargetKey, Target]) -> None:
        self.name = "frame"
        self.frame = frame
        self.targets = targets
        self.asked: list[tuple[datetime, datetime]] = []

    def collect(self, since: datetime, until: datetime) -> Collected:
        self.asked.append((since, until))
        inside = pl.col("time").is_between(since, until, closed="left")
        return Collected(self.frame.filter(inside), self.targets)

    def close(self) -> None:
        pass


class NarrowSource(FrameSource):
    """One that is asked for the scrapes of some targets."""

    narrows = True

    def collect(self, since: datetime, until: datetime, own: Own | None = None) -> Collected:
        every = super().collect(since, until)
        if own is None:
            return every
        rows = [tuple(key) for key in own(self.targets)]
        keys = pl.DataFrame(rows, dict.fromkeys(KEY, pl.String), orient="row")
        scrapes = every.scrapes.join(keys, on=KEY, how="semi", maintain_order="left")
        return replace(every, scrapes=scrapes)


@cache
def shipped_plan(simulations: int = 0) -> Plan:
    """The shipped rules; nothing is replayed for a page (seconds each) where nobody looks at it."""
    return replace(plan_of_rules(()), simulations=simulations)
