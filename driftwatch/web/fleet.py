"""The fleet, a row a pool, and a pool, a row a server: worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any

import polars as pl
from markupsafe import Markup
from pydantic import AfterValidator, Field

from driftwatch.incidents.incident import Incident
from driftwatch.model import TargetKey
from driftwatch.numbers import clean, cut, moment, percent, plural
from driftwatch.plots.plot import Panel, Plot, Series, panels, sparkline
from driftwatch.plots.scales import Axis
from driftwatch.store.latest import SLOT, SLOTS, UNKNOWN, PoolNow, ServerNow, Trace, slot_of
from driftwatch.web.database import STATES, incident_state, is_old
from driftwatch.web.incidents import line_of, servers_of
from driftwatch.web.page import (
    POOL,
    Api,
    NotFound,
    Page,
    Paged,
    Shown,
    Slice,
    Visit,
    paged,
    pool_path,
    search,
)
from driftwatch.web.plots import GREY, incident_spans
from driftwatch.web.signals import SPEED

PATH = "/fleet"
STALE = "driftwatch run wrote no minute in the last 5 min"
_OF_INCIDENTS = ("firing", "acknowledged", "silenced")
_MOST = 200  # baselines
Values = Sequence[float | None]


def _state(text: str) -> str:
    if text and text not in (*STATES, "unknown"):
        raise ValueError(f"one of: {', '.join(STATES)}; unknown: {' and '.join(UNKNOWN)}")
    return text


class FleetQuery(Paged):
    """Without a name or state pools are listed, else the servers that fit."""

    q: Annotated[str, Field(max_length=200)] = ""  # part of a server's or pool's name
    state: Annotated[str, AfterValidator(_state)] = ""  # one of the states, or unknown


class PoolRow:
    """A pool with its open incidents, worst first."""

    def __init__(
        self, now: PoolNow, trace: str, incidents: Sequence[Incident], *, is_stale: bool
    ) -> None:
        self.now, self.incidents = now, incidents
        self._trace = trace
        # what was sent as a page, or would be but for a silence, says more than the minute
        self.incident = next((one for one in incidents if one.is_firing), None)
        states = Counter[str]({"no data": now.servers} if is_stale else now.states)
        if (first := self.incident) is not None and first.severity == "page":
            self.state = incident_state(first)
            self.count = min(len(servers_of(first)), now.servers)
        else:
            self.state = min(states, key=STATES.index, default="no data")
            self.count = states[self.state]
        self.why = (STALE if is_stale else now.why) if self.state in UNKNOWN else None

    @property
    def rank(self) -> tuple[int, float, float, str]:
        """Worst first."""
        now = self.now
        missed = 1.0 if now.in_target is None else now.in_target
        return STATES.index(self.state), missed, now.speed or 1.0, now.pool

    @property
    def lines(self) -> tuple[Markup, Markup]:
        """Requests in target, and the speed of its slowest server, over the last 24 h."""
        trace = Trace.read(self._trace)
        return (
            _target_line("requests in target", trace.in_target, self.now.required),
            _speed_line("speed of the slowest server", trace.speed),
        )


def _target_line(what: str, values: Values, required: float | None) -> Markup:
    low = min(0.8, *_known(values), 1.0)
    return sparkline(_alt(what, values), values, low, 1.0, required)


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
    if query.q or query.state:
        return _servers(visit)
    incidents, pools = visit.store.open_now(), visit.store.pools_now()
    of_pool: dict[str, list[Incident]] = {}
    for one in incidents:
        of_pool.setdefault(one.pool, []).append(one)
    end = max((one.at for one, _ in pools), default=None)
    is_stale = is_old(end, visit.now)
    every = sorted(
        (PoolRow(one, line, of_pool.get(one.pool, ()), is_stale=is_stale) for one, line in pools),
        key=lambda one: one.rank,
    )
    rows, part = paged(query, PATH, lambda size, at: (every[at : at + size], len(every)))
    shown = visit.store.with_pages(one.incident for one in rows if one.incident is not None)
    return {
        "title": _finding(every),
        "end": end,
        "is_stale": is_stale,
        "servers": sum(one.now.servers for one in every),
        "unknown": _unknown(every),
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


def _unknown(rows: Iterable[PoolRow]) -> list[tuple[str, int]]:
    """Reason → servers of unknown state, the commonest first."""
    counts: Counter[str] = Counter()
    for one in rows:
        if unknown := sum(one.now.states.get(state, 0) for state in UNKNOWN):
            counts[cut(one.now.why or "unknown", 160)] += unknown
    return counts.most_common(5)


def _servers(visit: Visit) -> Shown:
    end = visit.store.newest_minute()
    rows, part, of = _listed(visit, PATH)
    return {
        "title": f"{plural(part.rows, 'server')}, worst first",
        "end": end,
        "is_stale": is_old(end, visit.now),
        "pools": None,
        "rows": rows,
        "of": of,
        "part": part,
        "query": visit.query,
        "every_state": STATES,
    }


def _listed(
    visit: Visit, path: str
) -> tuple[Sequence[ServerNow], Slice, Mapping[TargetKey, Incident]]:
    """The servers that the query asks for, which part it is, and whose page they are on."""
    query: FleetQuery = visit.query
    of, only = _incidents_of(visit.store.open_now()), None
    if query.state in _OF_INCIDENTS:
        only = [key for key, one in of.items() if incident_state(one) == query.state]
    state = "" if only is not None else query.state
    read = partial(visit.store.servers, text=query.q, state=state, only=only, first=[*of])
    return *paged(query, path, read), of


def _incidents_of(incidents: Iterable[Incident]) -> dict[TargetKey, Incident]:
    """Server → its worst open page; ``incidents``: worst first."""
    of: dict[TargetKey, Incident] = {}
    for one in incidents:
        if one.severity == "page" and one.is_firing:
            for key in servers_of(one):
                of.setdefault(key, one)
    return of


def load_pool(visit: Visit) -> Shown:
    """The pool and a part of its servers.

    Raises NotFound: no server is in a pool of that name.
    """
    name, store = visit.path["pool"], visit.store
    if not (found := store.pools_now(name)):
        raise NotFound(f"There is no pool {cut(clean(name), 80)}.", search(PATH, name))
    ((now, trace),) = found
    incidents, is_stale = store.open_now(name), is_old(now.at, visit.now)
    of = _incidents_of(incidents)
    read = partial(store.servers, pool=name, first=[*of])
    rows, part = paged(visit.query, pool_path(name), read)
    day = store.incidents_between(name, (now.at - timedelta(days=1), now.at), 50)
    return {
        "title": f"Pool {cut(clean(name), 80)}",
        "row": PoolRow(now, trace, incidents, is_stale=is_stale),
        "pool": now,
        "end": now.at,
        "is_stale": is_stale,
        "plot": _day(Trace.read(trace), now, day),
        "day": day,
        "incidents": store.with_pages([one for one in incidents if one.is_firing][:20]),
        "baselines": store.pool_baselines(name, _MOST),
        "rows": rows,
        "of": of,
        "server_lines": _server_lines(visit, rows, now.at),
        "part": part,
    }


def _day(trace: Trace, now: PoolNow, incidents: Iterable[Incident]) -> Plot:
    """The last 24 h of a pool, from its first minute on."""
    targets, speeds, step = trace.in_target, trace.speed, SLOT.total_seconds()
    ends = [trace.first.timestamp() + step * at for at in range(len(targets) + 1)]
    pairs = zip(ends, targets, speeds, strict=False)
    first = next((at for at, *both in pairs if both != [None, None]), ends[0])
    until = now.at.timestamp()

    def steps(values: Values, name: str) -> Series:
        percents = [None if one is None else 100 * one for one in values]
        return Series("steps", name, ends, [*percents, percents[-1]])

    required = [] if now.required is None else [100 * now.required]
    high = 100 * max([1.05, *_known(speeds)])
    worst = (
        percent(min(_known(some))) if _known(some) else "unknown" for some in (targets, speeds)
    )
    return panels(
        f"Worst half hour of the 24 h to {moment(now.at, None)}: {next(worst)} of requests in "
        f"target, the slowest server at {next(worst)} of its baseline's speed",
        [
            Panel(
                Axis("requests in target, %", low=0.0, high=100.0),
                [
                    Series("level", "share that the target asks for", y=required, colour=2),
                    steps(targets, "half hour, mean"),
                ],
            ),
            Panel(
                Axis("speed of the slowest, % of its baseline", high=high),
                [
                    Series("level", "speed of its baseline", y=[100.0], colour=GREY),
                    steps(speeds, ""),
                ],
            ),
        ],
        Axis("", low=min(first, until - 3600), high=until, is_time=True),
        around=[*incident_spans(incidents, first, until)],
    )


def targets(visit: Visit) -> Mapping[str, Any]:
    """Servers as of their newest minute, no data where that is old; those of open pages first."""
    rows, part, _ = _listed(visit, "/targets")
    return {"rows": [_as_of(one, visit.now).document() for one in rows], "part": part}


def _as_of(one: ServerNow, now: datetime) -> ServerNow:
    """The server; of an old minute nothing is known but when it ended."""
    if not is_old(one.at, now):
        return one
    unknown = dict.fromkeys(("in_target", "in_target_at_most", "speed", "limit", "margin"))
    return one.model_copy(update={"state": "no data", "since": one.at, "why": STALE, **unknown})


PAGE = Page(PATH, "Fleet", "fleet.html", load, FleetQuery, is_placed=True)
POOL_PAGE = Page(POOL, "Pool", "pool.html", load_pool, Paged)
API = Api("/targets", targets, FleetQuery)
