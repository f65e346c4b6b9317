"""A fleet of several pools, and processes that share it: with kills, stops and comers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import sqlalchemy as sa
from service_cases import FrameSource, NarrowSource

from driftwatch.clock import ManualClock
from driftwatch.collect.recordings import open_recording
from driftwatch.database_place import PostgresPlace, place_of
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.receivers.webhook import WebhookSender
from driftwatch.service.leadership import Leadership
from driftwatch.service.membership import Membership
from driftwatch.service.receivers import Receiver
from driftwatch.service.run import Service
from driftwatch.store.lease import Leases
from driftwatch.store.store import Store
from driftwatch.store.tables import metadata
from driftwatch.testing.postgres_server import PostgresServer

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
TICK = timedelta(seconds=30)
SHARDS = 8
_LEASE_SECONDS = 60.0
# what has no byte of a process, of a row's number or of when it was sent in it
COMPARED: Mapping[str, tuple[str, ...]] = {
    "incidents": (
        *("id", "key", "rule", "alert", "severity", "target", "state", "started_at", "firing_at"),
        *("last_true_at", "resolved_at", "page", "true_seconds", "false_seconds", "part_of"),
        *("inhibited_by", "extent", "extent_at"),
    ),
    "transitions": ("incident_id", "event", "at"),
    "advice": ("id", "instance", "engine", "pool", "at", "incident_id", "document"),
    "verifications": ("id", "instance", "pool", "opened_at", "closed_at", "verdict", "document"),
}


def fleet_of(recordings: Iterable[Path], *, narrows: bool = False) -> FrameSource:
    """Each recording as a pool, the first of two servers, each begun a little later."""
    frames, targets = [], {}
    for number, path in enumerate(recordings):
        source = open_recording(path)
        scrapes = source.collect(*source.span()).scrapes
        source.close()
        first = scrapes["time"].min()
        assert isinstance(first, datetime)
        of_one = scrapes.filter(pl.col("instance") == scrapes["instance"][0])
        for copy in range(1 if number else 2):
            begin = BEGIN + timedelta(seconds=3 * number + copy)
            name = f"p{number}-{copy}:8000"
            frames.append(
                of_one.with_columns(
                    instance=pl.lit(name), time=pl.col("time") - first + pl.lit(begin)
                ).with_columns(pl.col("time").cast(scrapes.schema["time"]))
            )
            key = TargetKey(name, "0")
            targets[key] = Target(key, {"instance": name, "pool": f"pool-{number}"})
    kind = NarrowSource if narrows else FrameSource
    return kind(pl.concat(frames).sort("instance", "engine", "time"), targets)


def pools_of(plan: Plan, fleet: FrameSource) -> Plan:
    """The plan with a configured pool for each ``pool`` label."""
    names = sorted({target.labels["pool"] for target in fleet.targets.values()})
    pools = tuple(Pool(name, {"pool": name}) for name in names)
    return replace(plan, pools=pools, external_url="http://driftwatch.test")


class Process:
    """One driftwatch run that shares the shards."""

    def __init__(self, name: str, url: str, make: Callable[..., Service]) -> None:
        place = place_of(url)
        assert isinstance(place, PostgresPlace)
        self.name = name
        self.store = Store.open(url, migrate=False)
        self.leadership = Leadership(Leases(place, _LEASE_SECONDS), _LEASE_SECONDS)
        self.membership = Membership(
            *(Leases(place, _LEASE_SECONDS), name, SHARDS, _LEASE_SECONDS),
            lambda: datetime.now(UTC),
        )
        self.membership.join()
        self.service = make(
            self.store, membership=self.membership, may_send=self.leadership.may_act
        )

    def beat(self) -> None:
        """What its thread does every few seconds."""
        self.membership.beat()
        if self.leadership.lease is None and self.leadership.campaign():
            self.service.lead(self.leadership.lease)

    def tick(self) -> None:
        """One tick and its deliveries."""
        self.service.tick_once()
        if self.leadership.may_act():
            self.service.deliver_once()

    def vanish(self) -> None:
        """End without a word to the database."""
        self.service._collecting.end()
        self.leadership._leases.close()
        self.membership._leases.close()
        self.store.close()

    def stop(self) -> None:
        """End as by SIGTERM."""
        self.service.stop()
        self.membership.end()
        self.leadership.end()
        self.store.close()


class Processes:
    """Those that are alive, on one database and clock."""

    def __init__(
        self, server: PostgresServer, url: str, clock: ManualClock, make: Callable[..., Service]
    ) -> None:
        self._server, self._url, self.clock, self._make = server, url, clock, make
        self._database = url.partition("@/")[2].partition("?")[0]
        self.alive: dict[str, Process] = {}
        self.stopped: dict[str, Process] = {}

    def start(self, name: str) -> None:
        self.alive[name] = Process(name, self._url, self._make)

    def kill(self, name: str) -> None:
        """As by SIGKILL, some time ago: it gives nothing back."""
        gone = self.alive.pop(name)
        gone.vanish()
        self._expire(gone)

    def pause(self, name: str) -> None:
        """As by SIGSTOP, for longer than its leases last."""
        self.stopped[name] = self.alive.pop(name)
        self._expire(self.stopped[name])

    def go_on(self, name: str) -> Process:
        """As by SIGCONT; it still believes in its leases."""
        self.alive[name] = self.stopped.pop(name)
        return self.alive[name]

    def end(self, name: str) -> None:
        """As by SIGTERM."""
        self.alive.pop(name).stop()

    def tick(self) -> None:
        """One interval: everybody beats, everybody ticks."""
        self.clock.advance(TICK)
        for _ in range(2):  # who gives back in the first tick is taken over before the second
            for one in list(self.alive.values()):
                one.beat()
            for one in list(self.alive.values()):
                one.tick()

    def close(self) -> None:
        for name in list(self.stopped):
            self.go_on(name)
        for name in list(self.alive):
            self.end(name)

    def _expire(self, gone: Process) -> None:
        past = "expires_at = clock_timestamp() - interval '1 second'"
        held = f"holder = '{gone.name}' OR (name = 'tick' AND fence = {gone.leadership.fence})"
        self._server.query(f"UPDATE leases SET {past} WHERE {held}", self._database)
        self._server.query(f"UPDATE members SET {past} WHERE name = '{gone.name}'", self._database)


def service_of(
    fleet: FrameSource, plan: Plan, clock: ManualClock, hook: str
) -> Callable[..., Service]:
    """Makes a service of the fleet, that pages to one webhook."""

    def make(store: Store, **more: Any) -> Service:
        receiver = Receiver("oncall", ("page", "ticket"), WebhookSender("oncall", hook))
        return Service([fleet], plan, store, [receiver], clock, **more)

    return make


def told(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Every finding, page and answer that the database holds, in an order that all have."""
    found = {}
    with store._reading() as connection:
        for name, columns in COMPARED.items():
            table = metadata.tables[name]
            query = sa.select(*(table.c[column] for column in columns)).order_by(
                *(table.c[column] for column in columns[:2])
            )
            found[name] = [dict(row) for row in connection.execute(query).mappings()]
        payloads, deliveries = metadata.tables["payloads"], metadata.tables["deliveries"]
        d = deliveries.c
        query = sa.select(d.kind, d.subject, d.event, d.number, d.receiver, d.reason, d.status)
        query = query.add_columns(payloads.c.document).outerjoin_from(deliveries, payloads)
        rows = connection.execute(query.order_by(d.subject, d.event, d.number)).mappings()
        found["deliveries"] = [dict(row) for row in rows if row["kind"] == "incident"]
    return found


def minutes_of(store: Store) -> pl.DataFrame:
    """Every minute that the database holds."""
    return store.past(BEGIN - timedelta(days=1), BEGIN + timedelta(days=2))
