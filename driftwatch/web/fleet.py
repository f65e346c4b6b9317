"""The page of the fleet, with a row per pool, and of a pool, with a row per server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Literal

import polars as pl
from markupsafe import Markup
from pydantic import Field

from driftwatch.incidents.incident import Incident
from driftwatch.model import Slo, TargetKey
from driftwatch.numbers import clean, cut, percent, plural
from driftwatch.plots.plot import Value, sparkline
from driftwatch.store.latest import (
    SLOT,
    SLOTS,
    UNKNOWN,
    MinuteState,
    PoolNow,
    ServerNow,
    Trace,
    slot_of,
)
from driftwatch.web.database import STATES, OpenState
from driftwatch.web.incidents import line_of, servers_of
from driftwatch.web.page import POOL, NotFound, Page, Paged, Shown, Visit, paged, pool_path, search
from driftwatch.web.signals import SPEED, missed

PATH = "/fleet"
_MOST_INCIDENTS = 20


class FleetQuery(Paged):
    """Which servers are listed; without a name or state the fleet's page lists pools."""

    q: Annotated[str, Field(max_length=200)] = ""  # part of a server's or pool's name
    state: Literal[OpenState, MinuteState, ""] = ""


def listed_servers(visit: Visit, path: str, incidents: Sequence[Incident], pool: str = "") -> Shown:
    """One part of the servers that the query asks for, worst first, with the open pages on them.

    ``incidents``: the open ones of the pool, or of all, worst first.
    """
    query, named = visit.query, dict[TargetKey, Incident]()
    for one in incidents:
        if one.severity == "page" and one.is_firing:
            for key in servers_of(one):
                named.setdefault(key, one)
    servers = partial(visit.store.servers, pool=pool, text=query.q, state=query.state, named=named)
    rows, part = paged(query, path, servers)
    return {"rows": rows, "part": part, "named": named, "query": query, "every_state": STATES}


class PoolRow:
    """A pool with its open incidents, worst first."""

    def __init__(self, now: PoolNow, trace: str, incidents: Sequence[Incident]) -> None:
        self.now, self.incidents, self._trace = now, incidents, trace
        # an open page, silenced or not, is worse than any newest minute
        self.incident = next((one for one in incidents if one.is_firing), None)
        worst: MinuteState = min(now.states, key=STATES.index, default="no data")
        self.state: str = worst
        self.count = now.states.get(worst, 0)
        if (first := self.incident) is not None and first.severity == "page":
            self.state = first.state_word
            self.count = min(len(servers_of(first)), now.servers)
        self.why = now.why if self.state in UNKNOWN else None

    @property
    def rank(self) -> tuple[int, float, float, str]:
        """Worst first."""
        now = self.now
        in_target = 1.0 if now.in_target is None else now.in_target
        return STATES.index(self.state), in_target, now.speed or 1.0, now.pool

    @property
    def lines(self) -> tuple[Markup, Markup]:
        """Requests in target, and the speed of its slowest server, over 24 h."""
        trace = Trace.read(self._trace)
        speed = _line("speed of the slowest server", trace.speed, 1.0, _SPEEDS)
        return _line(_IN_TARGET, trace.in_target, self.now.required, _SHARES), speed


_IN_TARGET, _SHARES, _SPEEDS = "requests in target", (0.8, 1.0), (0.7, 1.1)


def _line(what: str, values: Sequence[Value], level: Value, ends: tuple[float, float]) -> Markup:
    """Sparkline over :data:`SLOTS` half hours; ``level``: grey; ``ends``: of the axis, at least."""
    known = [one for one in values if one is not None]
    unknown = len(values) - len(known)
    span = f"{percent(min(known))} to {percent(max(known))}" if known else "unknown"
    gap = f", unknown in {unknown} of {len(values)} half hours" if unknown and known else ""
    low, high = min(ends[0], *known, 1.0), max(ends[1], *known, 1.0)
    return sparkline(f"24 h of {what}: {span}{gap}", values, low, high, level)


def _server_lines(
    visit: Visit, servers: Sequence[ServerNow], until: datetime, slo: Slo | None
) -> dict[TargetKey, tuple[Markup, Markup]]:
    """Server → share of its requests in target, and its speed, over the last 24 h."""
    first = slot_of(until) - (SLOTS - 1) * SLOT
    keys, width = [one.key for one in servers], int(SLOT.total_seconds())
    rows = visit.store.past(first, until, keys)
    halves = missed(rows, width, slo, ("instance", "engine")).select(
        "instance",
        "engine",
        (pl.col("end") - first).dt.total_seconds() // width - 1,
        1 - pl.max_horizontal("ttft", "tpot"),
        SPEED,
    )
    values = {key: ([None] * SLOTS, [None] * SLOTS) for key in keys}
    for instance, engine, at, *both in halves.iter_rows():
        for line, value in zip(values[TargetKey(instance, engine)], both, strict=True):
            line[at] = value
    level = None if slo is None else slo.share
    return {
        key: (_line(_IN_TARGET, one, level, _SHARES), _line("its speed", other, 1.0, _SPEEDS))
        for key, (one, other) in values.items()
    }


def load(visit: Visit) -> Shown:
    """The pools, or the servers that the query asks for."""
    query, incidents = visit.query, visit.store.open_now(visit.now)
    if query.q or query.state:
        listed = listed_servers(visit, PATH, incidents)
        title = f"{plural(listed['part'].rows, 'server')}, worst first"
        return {**listed, "title": title, "end": visit.store.newest_minute(), "pools": None}
    of_pool: dict[str, list[Incident]] = {}
    for one in incidents:
        of_pool.setdefault(one.pool, []).append(one)
    pools = visit.store.pools_now()
    every = [PoolRow(one, line, of_pool.get(one.pool, ())) for one, line in pools]
    every.sort(key=lambda one: one.rank)
    rows, part = paged(query, PATH, lambda size, at: (every[at : at + size], len(every)))
    shown = visit.store.with_pages(one.incident for one in rows if one.incident is not None)
    return {
        "title": _finding(every),
        "end": max((one.at for one, _ in pools), default=None),
        "servers": sum(one.now.servers for one in every),
        "pools": rows,
        "lines": {one.id: line_of(one) for one in shown},
        "part": part,
        "query": query,
        "every_state": STATES,
    }


def _finding(rows: Sequence[PoolRow]) -> str:
    """``3 pools: 1 firing, 2 in target``; worst first."""
    if len(rows) < 2:
        return f"1 pool: {rows[0].state}" if rows else "No server yet"
    counts = Counter(one.state for one in rows)
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    return f"{plural(len(rows), 'pool')}: {states}"


def load_pool(visit: Visit) -> Shown:
    """The pool and one part of its servers.

    Raises NotFound: no server is in a pool of that name.
    """
    name, store = visit.path["pool"], visit.store
    if not (found := store.pools_now(name)):
        raise NotFound(f"There is no pool {cut(clean(name), 80)}.", search(PATH, name))
    ((now, trace),) = found
    row = PoolRow(now, trace, store.open_now(visit.now, name))
    listed = listed_servers(visit, pool_path(name), row.incidents, name)
    shown = store.with_pages([one for one in row.incidents if one.is_firing][:_MOST_INCIDENTS])
    first = shown[0] if shown and shown[0].severity == "page" else None
    return {
        **listed,
        "title": f"Pool {cut(clean(name), 80)}",
        "row": row,
        "end": now.at,
        "first": first,  # the page whose line 1 is the heading
        "others": shown if first is None else shown[1:],
        "baselines": store.pool_baselines(name),
        "server_lines": _server_lines(visit, listed["rows"], now.at, store.slo_of(name)),
    }


PAGE = Page(PATH, "Fleet", "fleet.html", load, FleetQuery)
POOL_PAGE = Page(POOL, "Pool", "pool.html", load_pool, FleetQuery)
