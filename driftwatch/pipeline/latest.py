"""Servers and pools in the newest minute, from a tick's evidence rows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from driftwatch.collect.schema import KEY, TIME
from driftwatch.model import Slo, Target, TargetKey
from driftwatch.notify.minute_line import speed_line
from driftwatch.numbers import clean, cut, percent
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.pipeline.unknown_reasons import why_slo_unknown
from driftwatch.store.latest import (
    UNKNOWN,
    Latest,
    PoolNow,
    ServerNow,
    Trace,
    slot_of,
)
from driftwatch.store.store import Store

_POOL = TypeAdapter(Pool)
_KEY = list(KEY)
_SHARES = tuple(
    f"{name}_in_target_10m_{end}" for name in ("ttft", "tpot") for end in ("ratio", "upper_ratio")
)
_COLUMNS = (
    *("end", "scrapes", "coverage_missing_inputs", "slo_missed", "slower_at_equal_load"),
    *("binding_limit", "binding_margin_ratio", "speed_at_equal_load_ratio"),
    *("speed_unknown_reason", "ttft_seconds_count", *_SHARES),
)
_LONGEST = 200
NOT_SCRAPED = "nothing scraped in the last minute"
NOTHING_TO_JUDGE_BY = "no latency targets and no baseline to judge by"


def latest_of(
    rows: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    before: Mapping[str, Trace],
    at: datetime,
) -> Latest:
    """Every server and pool at ``at``, the end of the newest minute.

    ``rows``: evidence rows of new minutes, each target's in order; ``targets``: as known after
    them; ``before``: each pool's last 24 h at the previous tick.
    """
    at = at.astimezone(UTC)
    known = rows.select(*_KEY, "pool", *_COLUMNS) if rows.width else _NO_ROWS
    known = known.with_columns(state=_STATE)
    began = known.group_by(_KEY).agg(since=_SINCE)
    newest = known.filter(pl.col("end") == at).join(began, on=_KEY)
    of = {TargetKey(row["instance"], row["engine"]): row for row in newest.iter_rows(named=True)}
    pool_of = {key: one.pool or "default" for key, one in targets.items()}
    pools = {pool_of[key]: plan.pool_of(one) for key, one in targets.items()}
    servers: dict[str, list[tuple[ServerNow, float]]] = {pool: [] for pool in sorted(pools)}
    for key, pool in pool_of.items():
        row = of.get(key, _NOT_SCRAPED_ROW)
        servers[pool].append(
            (_server(targets[key], pool, row, at), row["ttft_seconds_count"] or 0.0)
        )
    sums = _sums(known)
    now = []
    for name, some in servers.items():
        trace = before.get(name) or Trace(first=slot_of(at))
        trace = trace.with_minutes(sums.get(name, {}), at)
        now.append((_pool(name, some, at, pools[name]), trace))
    first = known["end"].min()
    since = first if isinstance(first, datetime) else at
    return Latest(since, at, [one for some in servers.values() for one, _ in some], now)


_FLAGS = ("slo_missed", "slower_at_equal_load")
_TYPES: dict[str, Any] = {"end": TIME, "scrapes": pl.Float64, **dict.fromkeys(_FLAGS, pl.Boolean)}
_NO_ROWS = pl.DataFrame(schema={**dict.fromkeys((*_KEY, "pool", *_COLUMNS), pl.Null), **_TYPES})
_NOT_SCRAPED_ROW: Mapping[str, Any] = {**dict.fromkeys((*_COLUMNS, "since")), "state": "no data"}
# the worst state that applies to a server in one minute
_STATE = (
    pl.when(pl.col("scrapes").fill_null(0.0) <= 0)
    .then(pl.lit("no data"))
    .when(pl.col("slo_missed"))
    .then(pl.lit("target missed"))
    .when(pl.col("slower_at_equal_load"))
    .then(pl.lit("slower"))
    .when(pl.col("binding_limit") != "none")
    .then(pl.lit("limit full"))
    .when(pl.col("slo_missed").is_not_null())
    .then(pl.lit("in target"))
    .when(pl.col("slower_at_equal_load").is_not_null())
    .then(pl.lit("as its baseline"))
    .otherwise(pl.lit("not judged"))
)
# end of the first minute of a server's last unbroken state; over its minutes in order
_OTHER = pl.col("end").filter(pl.col("state") != pl.col("state").last()).max()
_SINCE = pl.col("end").filter((pl.col("end") > _OTHER).fill_null(value=True)).min()


def _server(target: Target, pool: str, row: Mapping[str, Any], at: datetime) -> ServerNow:
    state, why = row["state"], _why(row)
    low, high = _in_target(row)
    speed = row["speed_at_equal_load_ratio"]
    is_silent = state == "no data"
    return ServerNow.model_construct(
        instance=target.key.instance,
        engine=target.key.engine,
        pool=pool,
        labels=target.labels,
        state=state,
        since=row["since"] or at,
        at=at,
        why=_bounded(why),
        in_target=low,
        in_target_at_most=high if low is not None and high is not None and high > low else None,
        speed=speed,
        speed_why=None if speed is not None or is_silent else _bounded(speed_line(row)),
        limit=row["binding_limit"],
        margin=row["binding_margin_ratio"],
    )


def _bounded(text: str | None) -> str | None:
    return None if text is None else cut(clean(text), _LONGEST)


def _why(row: Mapping[str, Any]) -> str | None:
    """Why a server's state is unknown in one minute; None if it is known."""
    if row["state"] == "no data":
        missing = row["coverage_missing_inputs"]
        return f"gone: {missing}" if missing else NOT_SCRAPED
    if row["state"] != "not judged":
        return None
    for name in ("ttft", "tpot"):
        low, high = (row[f"{name}_in_target_10m_{end}"] for end in ("ratio", "upper_ratio"))
        if low is not None and high is not None and low < high:
            between = f"{percent(low)} to {percent(high)} of requests met {name.upper()}"
            return f"{between}: too wide to tell whether that is enough"
    return speed_line(row) if row["speed_unknown_reason"] else NOTHING_TO_JUDGE_BY


def _in_target(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Bounds of the share of requests in target, for the latency that is worse."""
    both = [(row[f"{n}_in_target_10m_ratio"], row[f"{n}_in_target_10m_upper_ratio"])
            for n in ("ttft", "tpot")]  # fmt: skip
    return min((one for one in both if one[0] is not None), default=(None, None))


def _pool(
    pool: str,
    servers: Sequence[tuple[ServerNow, float]],
    at: datetime,
    declared: Pool,
) -> PoolNow:
    slo = declared.slo
    has_target = slo.ttft_seconds is not None or slo.tpot_seconds is not None
    every = [one for one, _ in servers]
    judged = [(one.in_target, one.in_target_at_most or one.in_target, n)
              for one, n in servers if one.in_target is not None]  # fmt: skip
    weight = sum(n for *_, n in judged)
    in_target = at_most = None
    if judged:
        in_target, at_most = (
            sum(one[end] * one[2] for one in judged) / weight if weight else judged[0][end]
            for end in (0, 1)
        )
    full = Counter(one.limit for one in every if one.limit not in (None, "none"))
    limit, full_on = full.most_common(1)[0] if full else (None, 0)
    if limit is None and any(one.limit == "none" for one in every):
        limit = "none"
    speeds = [one.speed for one in every if one.speed is not None]
    return PoolNow(
        pool=pool,
        at=at,
        states=dict(Counter(one.state for one in every)),
        why=_commonest(one.why for one in every if one.state in UNKNOWN),
        in_target=in_target,
        in_target_at_most=at_most if at_most != in_target else None,
        in_target_why=None if judged else _no_share(slo),
        required=slo.share if has_target else None,
        declared=_POOL.dump_python(declared, mode="json"),
        speed=min(speeds, default=None),
        speed_why=None if speeds else _commonest(one.speed_why or one.why for one in every),
        limit=limit,
        full_on=full_on,
        margin=min((one.margin for one in every if one.margin is not None), default=None),
    )


def _no_share(slo: Slo) -> str:
    targets = {"slo_ttft_seconds": slo.ttft_seconds, "slo_tpot_seconds": slo.tpot_seconds}
    return why_slo_unknown(targets)


def declared_pools(store: Store) -> dict[str, Pool]:
    """Pool name → its configuration, as the service stored it."""
    every = ((one.pool, one.declared) for one in store.stored_pools())
    return {name: _POOL.validate_python(one) for name, one in every if one is not None}


def _commonest(texts: Iterable[str | None]) -> str | None:
    counts = Counter(text for text in texts if text)
    return counts.most_common(1)[0][0] if counts else None


def _sums(rows: pl.DataFrame) -> dict[str, dict[datetime, tuple[float, float, float, float]]]:
    """Pool → start of a half hour → what :class:`Trace` adds up."""
    if not len(rows):
        return {}
    share = pl.min_horizontal("ttft_in_target_10m_ratio", "tpot_in_target_10m_ratio")
    n = pl.when(share.is_not_null()).then(pl.col("ttft_seconds_count").fill_null(0.0))
    minutes = rows.group_by("pool", "end").agg(
        requests=n.sum(),
        hits=(n * share).sum(),
        speed=pl.col("speed_at_equal_load_ratio").min(),
    )
    sums: dict[str, dict[datetime, tuple[float, float, float, float]]] = {}
    for row in minutes.iter_rows(named=True):
        speed = row["speed"]
        slots = sums.setdefault(row["pool"] or "default", {})
        slot = slot_of(row["end"])
        old = slots.get(slot, (0.0, 0.0, 0.0, 0.0))
        new = (row["requests"], row["hits"], float(speed is not None), speed or 0.0)
        slots[slot] = tuple(a + b for a, b in zip(old, new, strict=True))
    return sums
