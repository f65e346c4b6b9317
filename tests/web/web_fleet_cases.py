"""A fleet of any size in a store: its targets, one minute of each, and incidents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
from made_incidents import incident_of

from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Slo, Target, TargetKey
from driftwatch.pipeline.latest import latest_of
from driftwatch.pipeline.plan import Pool
from driftwatch.service.configuration import plan_of_rules
from driftwatch.store import Store, TickRecord
from driftwatch.store.minute_columns import STORED_SCHEMA

END = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
# of a server whose requests are in target
GOOD: Mapping[str, Any] = {
    "scrapes": 4.0,
    "duration_seconds": 60.0,
    "slo_missed": False,
    "slower_at_equal_load": False,
    "speed_at_equal_load_ratio": 1.0,
    "binding_limit": "none",
    "binding_margin_ratio": 0.5,
    "ttft_seconds_buckets": [90.0, 100.0, 100.0],
    "ttft_seconds_edges": [0.5, 1.0, float("inf")],
    "ttft_seconds_sum": 30.0,
    "ttft_seconds_count": 100.0,
    "ttft_in_target_10m_ratio": 1.0,
    "ttft_in_target_10m_upper_ratio": 1.0,
}
_SHARES = tuple(
    f"{name}_in_target_10m_{end}" for name in ("ttft", "tpot") for end in ("ratio", "upper_ratio")
)

EVIDENCE = STORED_SCHEMA | dict.fromkeys(_SHARES, pl.Float64)


def fleet_database(
    path: Path | str,
    rows: Sequence[Mapping[str, Any]],
    incidents: Sequence[Incident] = (),
    *,
    end: datetime = END,
) -> None:
    """Write a fleet; a row has ``instance``, may have ``labels``, and columns unlike GOOD's; one
    with ``scrapes`` None has no minute.
    """
    minutes = [
        {"engine": "0", "end": end, "pool": "p", **GOOD, **row}
        for row in rows
        if row.get("scrapes", 4.0) is not None
    ]
    evidence = pl.DataFrame(
        [{name: one.get(name) for name in EVIDENCE} for one in minutes], EVIDENCE
    )
    keys = {TargetKey(row["instance"], "0"): row.get("pool", "p") for row in rows}
    listed = {key: Target(key, {}, pool) for key, pool in keys.items()}
    over = [Transition(one, "resolved", end) for one in incidents if one.resolved_at]
    plan = replace(plan_of_rules(()), pools=(Pool("p", slo=Slo(1.0, None, 0.95)),))
    with Store.open(path) as store:
        store.commit_tick(
            TickRecord(
                since=end - timedelta(minutes=1),
                until=end,
                minutes=evidence.select(*STORED_SCHEMA),
                incidents=[one for one in incidents if one.resolved_at is None],
                transitions=over,
                latest=latest_of(evidence, listed, plan, {}, end),
            )
        )
        for one in incidents:
            if (held := one.acknowledgement) is not None:
                store.acknowledge(one.id, held.by, held.at)


def fired(digit: str, instance: str, *, pool: str = "p", **changes: Any) -> Incident:
    """A page that fires on a server, of a rule of its own."""
    at = END - timedelta(minutes=20)
    return incident_of(
        digit, **{"rule": f"R{digit}", "pool": pool, "servers": [instance], "at": at, **changes}
    )
