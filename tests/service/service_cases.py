"""Sources and plans for tests of the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import polars as pl

from driftwatch.collect.schema import Collected
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


def shipped_plan(simulations: int = 0) -> Plan:
    """The shipped rules; nothing is replayed for a page (seconds each) where nobody looks at it."""
    return replace(plan_of_rules(()), simulations=simulations)
