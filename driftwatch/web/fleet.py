"""The fleet, a row a pool, and a pool, a row a server: worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Literal

import polars as pl
from markupsafe import Markup
from pydantic import Field

from driftwatch.incidents.incident import Incident
from driftwatch.model import TargetKey
from driftwatch.numbers import clean, cut, percent, plural
from driftwatch.plots.plot import sparkline
from driftwatch.store.latest import (
    MINUTE_STATES,
    SLOT,
    SLOTS,
    UNKNOWN,
    MinuteState,
    PoolNow,
    ServerNow,
    Trace,
    slot_of,
)
from driftwatch.web.database import STATES
from driftwatch.web.incidents import line_of, servers_of
from driftwatch.web.page import (
    POOL,
    NotFound,
    Page,
    Paged,
    Shown,
    Visit,
    paged,
    pool_path,
    search,
)
from driftwatch.web.signals import SPEED

PATH = "/fleet"
_MOST_INCIDENTS, _MOST_BASELINES = 20, 200
Values = Sequence[float | None]


class FleetQuery(Paged):
    """Without a name or state the page lists pools, else the servers that fit."""

    q: Annotated[str, Field(max_length=200)] = ""  # part of a server's or pool's name
    state: Literal[MinuteState, ""] = ""


class PoolRow:
    """A pool with its open incidents, worst first."""

    def __init__(self, now: PoolNow, trace: str, incidents: Sequence[Incident]) -> None:
        self.now, self.incidents = now, incidents
        self._trace = trace
        # a page counts for more than the newest minute, also while a silence holds it back
        self.incident = next((one for one in incidents if one.is_firing), None)
        self.state: str
        if (first := self.incident) is not None and first.severity == "page":
            self.state = first.state_word
            self.count = min(len(servers_of(first)), now.servers)
        else:
            state: MinuteState = min(now.states, key=STATES.index, default="no data")
            self.state, self.count = state, now.states.get(state, 0)
        self.why = now.why if self.state in UNKNOWN else None

    @property
    def rank(self) -> tuple[int, float, float, str]:
        """Worst first."""
        now = self.now
        missed = 1.0 if now.in_target is None else now.in_target
        return STATES.index(self.state), missed, now.speed or 1.0, now.pool

    @property
    def lines(self) -> tuple[Markup, Markup]:
        """Requests in target, and the speed of its slowest server, over 24 h."""
        trace = Trace.read(self._trace)
        return (
            _target_line("requests in target", trace.in_target, self.now.required),
            _speed_line("speed of the slowest server", trace.speed),
        )


def _target_line(what: str, values: Values, required: float | None) -> Markup:
    return sparkline(_alt(what, values), values, min(0.8, *_known(values), 1.0), 1.0, required)


def _speed_line(what: str, values: Values) -> Markup:
    low, high = min(0.7, *_known(values), 1.0), max(1.1, *_known(values), 1.0)
    return sparkline(_alt(what, values), values, low, high, 1.0)


def _known(values: Values) -> list[float]:
    return [one for one in values if one is not None]


def _alt(what: str, values: Values) -> str:
    known = _known(values)
    unknown = len(values) - len(known)
    span = f"{percent(min(known))} to {percent(max(known))}" if known else "unknown"
    gap = f", unknown in {unknown} of {len(values)} half hours" if unknown and known else ""
    return f"24 h of {what}: {span}{gap}"


def _server_lines(
    visit: Visit, servers: Sequence[ServerNow], until: datetime
) -> dict[TargetKey, tuple[Markup, Markup]]:
    """Server → share of its minutes in target, and its speed, over the last 24 h."""
    first = slot_of(until) - (SLOTS - 1) * SLOT
    keys = [one.key for one in servers]
    rows = visit.store.past(first, until, keys, ("slo_missed", SPEED))
    past = (pl.col("end") - first).dt.total_microseconds() / 1e6
    slot = ((past / SLOT.total_seconds()).ceil() - 1).cast(pl.Int64)
    halves = rows.group_by("instance", "engine", slot=slot).agg(
        1 - pl.col("slo_missed").mean(), pl.col(SPEED).mean()
    )
    values = {key: ([None] * SLOTS, [None] * SLOTS) for key in keys}
    for instance, engine, at, *both in halves.iter_rows():
        for line, value in zip(values[TargetKey(instance, engine)], both, strict=True):
            line[at] = value
    return {
        key: (_target_line("minutes in target", one, None), _speed_line("its speed", other))
        for key, (one, other) in values.items()
    }


def load(visit: Visit) -> Shown:
    """The pools, or the servers that the query asks for."""
    query: FleetQuery = visit.query
    shown: Shown = {"query": query, "every_state": MINUTE_STATES, "end": None, "pools": None}
    if query.q or query.state:
        read = partial(visit.store.servers, text=query.q, state=query.state)
        rows, part = paged(query, PATH, read)
        return {
            **shown,
            "title": f"{plural(part.rows, 'server')}, worst first",
            "end": visit.store.newest_minute(),
            "rows": rows,
            "part": part,
            "of": _incidents_of(visit.store.open_now()),
        }
    incidents, pools = visit.store.open_now(), visit.store.pools_now()
    of_pool: dict[str, list[Incident]] = {}
    for one in incidents:
        of_pool.setdefault(one.pool, []).append(one)
    every = sorted(
        (PoolRow(one, line, of_pool.get(one.pool, ())) for one, line in pools),
        key=lambda one: one.rank,
    )
    pool_rows, part = paged(query, PATH, lambda size, at: (every[at : at + size], len(every)))
    return {
        **shown,
        "title": _finding(every),
        "end": max((one.at for one, _ in pools), default=None),
        "servers": sum(one.now.servers for one in every),
        "pools": pool_rows,
        "lines": _lines(visit, pool_rows),
        "part": part,
    }


def _lines(visit: Visit, rows: Iterable[PoolRow]) -> dict[str, str]:
    """Incident → line 1 of its page."""
    shown = visit.store.with_pages(one.incident for one in rows if one.incident is not None)
    return {one.id: line_of(one) for one in shown}


def _finding(rows: Sequence[PoolRow]) -> str:
    """``3 pools: 1 firing, 2 in target``; worst first."""
    if len(rows) < 2:
        return f"1 pool: {rows[0].state}" if rows else "No server yet"
    counts = Counter(one.state for one in rows)
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    return f"{plural(len(rows), 'pool')}: {states}"


def _incidents_of(incidents: Iterable[Incident]) -> dict[TargetKey, Incident]:
    """Server → its worst open page; ``incidents``: worst first."""
    of: dict[TargetKey, Incident] = {}
    for one in incidents:
        if one.severity == "page" and one.is_firing:
            for key in servers_of(one):
                of.setdefault(key, one)
    return of


def load_pool(visit: Visit) -> Shown:
    """The pool and one part of its servers.

    Raises NotFound: no server is in a pool of that name.
    """
    name, store = visit.path["pool"], visit.store
    if not (found := store.pools_now(name)):
        raise NotFound(f"There is no pool {cut(clean(name), 80)}.", search(PATH, name))
    ((now, trace),) = found
    incidents = store.open_now(name)
    rows, part = paged(visit.query, pool_path(name), partial(store.servers, pool=name))
    row = PoolRow(now, trace, incidents)
    shown = store.with_pages([one for one in incidents if one.is_firing][:_MOST_INCIDENTS])
    page = shown[0].page if shown else None
    return {
        "title": f"Pool {cut(clean(name), 80)}",
        "row": row,
        "end": now.at,
        "lines": _lines(visit, [row]),
        "incidents": shown,
        "line_at": page and page.times.evaluated_at,  # of line 1
        "baselines": store.pool_baselines(name, _MOST_BASELINES),
        "rows": rows,
        "of": _incidents_of(incidents),
        "server_lines": _server_lines(visit, rows, now.at),
        "part": part,
    }


PAGE = Page(PATH, "Fleet", "fleet.html", load, FleetQuery, is_placed=True)
POOL_PAGE = Page(POOL, "Pool", "pool.html", load_pool, Paged)
