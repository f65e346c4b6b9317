"""A whole service of 10,000 servers that begin to queue in the same minute."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
from tick_sources import START, Tables

from driftwatch.clock import ManualClock
from driftwatch.collect.schema import SCRAPE_SCHEMA, Collected
from driftwatch.model import Target, TargetKey
from driftwatch.receivers.sender import Sender
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.receivers import Receiver
from driftwatch.service.run import Service
from driftwatch.store.store import Store

SCRAPES_A_MINUTE = 2
CALM_MINUTES = 4  # the first ticks meet every series for the first time
RULES = """\
groups:
  - name: storm
    rules:
      - alert: Storm
        when: waiting_requests >= 10000
        for: 0s
        severity: page
        group: {wait: 30s}
        annotations: {summary: requests wait}
"""


class Fleet:
    """Scrapes of servers in pools, each with every series of a recorded page.

    ``servers``, ``pool_servers``: how many there are, and in a pool.

    Attributes:
        queues_from: from when all of them have a queue; None = never.
    """

    name, settle_seconds = "fleet", 0.0

    def __init__(self, servers: int, pool_servers: int) -> None:
        names = [f"host-{n:05}:8000" for n in range(servers)]
        self._tables = Tables(names)
        self._targets = {
            TargetKey(name, "0"): Target(
                TargetKey(name, "0"), {"namespace": f"pool-{n // pool_servers}", "model_name": "m"}
            )
            for n, name in enumerate(names)
        }
        self.queues_from: datetime | None = None

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Scrapes with since <= time < until."""
        step = 60 // SCRAPES_A_MINUTE
        at, frames = START, [pl.DataFrame(schema=SCRAPE_SCHEMA)]
        while at < until:
            if at >= since:
                frames.append(self._at(at))
            at += timedelta(seconds=step)
        return Collected(pl.concat(frames).sort("instance", "engine", "time"), self._targets)

    def _at(self, at: datetime) -> pl.DataFrame:
        table = self._tables.at(int((at - START).total_seconds() // 15))
        if self.queues_from is None or at < self.queues_from:
            return table
        return table.with_columns(waiting_requests=pl.lit(20_000.0))

    def close(self) -> None:
        """Nothing is open."""


def service_of(
    fleet: Fleet, store: Store, clock: ManualClock, senders: Mapping[str, Sender], folder: Path
) -> Service:
    """A service with the shipped rules and one that all servers break at once."""
    rules = folder / "storm.yaml"
    rules.write_text(RULES)
    receivers = [Receiver(name, ("page",), sender) for name, sender in senders.items()]
    plan = plan_of_rules([rules])
    return Service([fleet], plan, store, receivers, clock, interval_seconds=60.0)


def minute(number: int) -> datetime:
    """The end of a minute of the fleet's time."""
    return START.astimezone(UTC) + timedelta(minutes=number)
