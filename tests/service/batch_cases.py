"""A fleet of several pools, and what a database holds of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import sqlalchemy as sa
from service_cases import FrameSource, NarrowSource

from driftwatch.collect.recordings import open_recording
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.store.store import Store
from driftwatch.store.tables import metadata

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
RECORDED = ("run_cap", "run_main", "run_slow", "run_cap")
# what of them depends on who ticked
_OF_A_PROCESS = {"batch"}


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


def told(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Every finding, page and answer that the database holds, in an order that all have."""
    found = {}
    with store._reading() as connection:
        for name in ("incidents", "advice", "verifications"):
            table = metadata.tables[name]
            columns = [column for column in table.c if column.name not in _OF_A_PROCESS]
            query = sa.select(*columns).order_by(*columns[:2])
            found[name] = [dict(row) for row in connection.execute(query).mappings()]
        payloads, deliveries = metadata.tables["payloads"], metadata.tables["deliveries"]
        d = deliveries.c
        query = sa.select(d.kind, d.subject, d.event, d.number, d.receiver, d.status)
        query = query.add_columns(payloads.c.document).outerjoin_from(deliveries, payloads)
        rows = connection.execute(query.order_by(d.subject, d.event, d.number)).mappings()
        found["deliveries"] = [dict(row) for row in rows if row["kind"] == "incident"]
    return found


def minutes_of(store: Store) -> pl.DataFrame:
    """Every minute that the database holds."""
    return store.past(BEGIN - timedelta(days=1), BEGIN + timedelta(days=2))
