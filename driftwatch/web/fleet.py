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

from driftwatch.detect.baselines import Baseline
from driftwatch.incidents.incident import Incident
from driftwatch.model import TargetKey
from driftwatch.numbers import clean, cut, percent, plural
from driftwatch.plots.plot import Panel, Plot, Series, panels, sparkline
from driftwatch.plots.scales import Axis
from driftwatch.store.latest import SLOT, SLOTS, UNKNOWN, PoolNow, ServerNow, Trace, slot_of
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.web.database import STATES, WantedServers, incident_state
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
    part_of,
    pool_path,
    search,
)
from driftwatch.web.plots import incident_spans

PATH = "/fleet"
# the newest minute of a service that runs is younger
OLD_AFTER = timedelta(minutes=5)
STALE = "driftwatch run wrote no minute in the last 5 min"
_LINE_SCHEMA = {
    name: STORED_SCHEMA[name] for name in ("end", "slo_missed", "speed_at_equal_load_ratio")
}
_OF_INCIDENTS = ("firing", "acknowledged", "silenced")
_BASELINES = 200


def _state(text: str) -> str:
    if text and text not in (*STATES, "unknown"):
        raise ValueError(f"one of: {', '.join(STATES)}; unknown: {' and '.join(UNKNOWN)}")
    return text


class FleetQuery(Paged):
    """Without a name or state pools are listed, else the servers that fit."""

    q: Annotated[str, Field(max_length=200)] = ""  # part of a server's or pool's name
    state: Annotated[str, AfterValidator(_state)] = ""  # one of the states, or unknown


class PoolRow:
    """A pool with its open incidents."""

    def __init__(
        self, now: PoolNow, trace: str, incidents: Sequence[Incident], *, is_stale: bool
    ) -> None:
        self.now, self.incidents, self.is_stale = now, incidents, is_stale
        self._trace = trace
        # what was sent as a page, or would be but for a silence, says more than the minute
        self.incident = next((one for one in incidents if one.is_firing), None)
        states = Counter[str]({"no data": now.servers} if is_stale else now.states)
        if (first := self.incident) is not None and first.severity == "page":
            concerned = min(len(servers_of(first)), now.servers)
            self.state, self.count = incident_state(first), concerned
        else:
            self.state = min(states, key=STATES.index, default="no data")
            self.count = states[self.state]

    @property
    def rank(self) -> tuple[int, float, float, str]:
        """Worst first."""
        now = self.now
        missed = 1.0 if now.in_target is None else now.in_target
        return STATES.index(self.state), missed, now.speed or 1.0, now.pool

    @property
    def why(self) -> str | None:
        """Why its state is unknown."""
        if self.state not in UNKNOWN:
            return None
        return STALE if self.is_stale else self.now.why

    @property
    def lines(self) -> tuple[Markup, Markup]:
        """Requests in target, and the speed of its slowest server, over the last 24 h."""
        trace = Trace.read(self._trace)
        return (
            target_line("requests in target", trace.in_target, self.now.required),
            speed_line("speed of the slowest server", trace.speed),
        )


def target_line(what: str, values: Sequence[float | None], required: float | None) -> Markup:
    """A sparkline of shares in target."""
    low = min((one for one in values if one is not None), default=1.0)
    return sparkline(_alt(what, values), values, min(0.8, low), 1.0, required)


def speed_line(what: str, values: Sequence[float | None]) -> Markup:
    """A sparkline of speeds at equal load."""
    known = [one for one in values if one is not None]
    low, high = min(0.7, *known, 1.0), max(1.1, *known, 1.0)
    return sparkline(_alt(what, values), values, low, high, 1.0)


def _alt(what: str, values: Sequence[float | None]) -> str:
    known = [one for one in values if one is not None]
    highest = f" to {percent(max(known))}" if known else ""
    return f"24 h of {what}: {_least(values)}{highest}"


def _least(values: Sequence[float | None]) -> str:
    known = [one for one in values if one is not None]
    return percent(min(known)) if known else "an unknown share"


def _server_lines(
    visit: Visit, servers: Sequence[ServerNow], until: datetime
) -> dict[TargetKey, tuple[Markup, Markup]]:
    """Server → share of its minutes in target, and its speed, over the last 24 h."""
    first = slot_of(until) - (SLOTS - 1) * SLOT
    keys = [one.key for one in servers]
    rows = visit.store.rows_of(keys, (first, until), _LINE_SCHEMA)
    past = (pl.col("end") - first).dt.total_microseconds() / 1e6
    slot = ((past / SLOT.total_seconds()).ceil() - 1).cast(pl.Int64)
    halves = rows.group_by("instance", "engine", slot=slot).agg(
        in_target=1 - pl.col("slo_missed").mean(), speed=pl.col("speed_at_equal_load_ratio").mean()
    )
    values: dict[TargetKey, tuple[list[float | None], list[float | None]]] = {
        key: ([None] * SLOTS, [None] * SLOTS) for key in keys
    }
    for instance, engine, at, in_target, speed in halves.iter_rows():
        both = values[TargetKey(instance, engine)]
        both[0][at], both[1][at] = in_target, speed
    return {
        key: (target_line("minutes in target", both[0], None), speed_line("its speed", both[1]))
        for key, both in values.items()
    }


def load(visit: Visit) -> Shown:
    """The pools, or the servers that the query asks for."""
    query: FleetQuery = visit.query
    if query.q or query.state:
        return _servers(visit)
    incidents = visit.store.open_now()
    of_pool: dict[str, list[Incident]] = {}
    for one in incidents:
        of_pool.setdefault(one.pool, []).append(one)
    pools = visit.store.fleet_now()
    end = max((one.at for one, _ in pools), default=None)
    is_stale = is_old(end, visit.now)
    every = [
        PoolRow(one, trace, of_pool.get(one.pool, ()), is_stale=is_stale) for one, trace in pools
    ]
    rows, part = part_of(sorted(every, key=lambda one: one.rank), query, PATH)
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


def is_old(end: datetime | None, now: datetime) -> bool:
    """Whether the newest minute says nothing of now."""
    return end is None or now - end > OLD_AFTER


def _finding(rows: Sequence[PoolRow]) -> str:
    """``3 pools: 1 firing, 2 in target``; worst first."""
    if not rows:
        return "No server yet"
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
        "title": "Servers",
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
    of, only = incidents_of(visit.store.open_now()), None
    if query.state in _OF_INCIDENTS:
        only = [key for key, one in of.items() if incident_state(one) == query.state]
    state = "" if only is not None else query.state
    wanted = WantedServers(text=query.q, state=state, only=only, first=[*of])
    return *server_part(visit, wanted, path), of


def server_part(
    visit: Visit, wanted: WantedServers, path: str
) -> tuple[Sequence[ServerNow], Slice]:
    """One part of the servers, and which it is."""
    return paged(visit.query, path, partial(visit.store.servers, wanted))


def incidents_of(incidents: Iterable[Incident]) -> dict[TargetKey, Incident]:
    """Server → its worst open page; ``incidents``: worst first."""
    of: dict[TargetKey, Incident] = {}
    for one in incidents:
        if one.severity == "page" and one.is_firing:
            for key in servers_of(one):
                of.setdefault(key, one)
    return of


class PoolQuery(Paged):
    """Which part of the servers is listed."""


def load_pool(visit: Visit) -> Shown:
    """The pool and a part of its servers.

    Raises NotFound: no server is in a pool of that name.
    """
    name, store = visit.path["pool"], visit.store
    found = store.pool_now(name)
    if found is None:
        raise NotFound(f"There is no pool {cut(clean(name), 80)}.", search(PATH, name))
    now, trace = found
    incidents, is_stale = store.open_now(name), is_old(now.at, visit.now)
    row = PoolRow(now, trace, incidents, is_stale=is_stale)
    of = incidents_of(incidents)
    rows, part = server_part(visit, WantedServers(pool=name, first=[*of]), pool_path(name))
    day = store.incidents_between(name, (now.at - timedelta(days=1), now.at), 50)
    shown = store.with_pages([one for one in incidents if one.is_firing][:20])
    return {
        "title": f"Pool {cut(clean(name), 80)}",
        "row": row,
        "pool": now,
        "end": now.at,
        "is_stale": is_stale,
        "plot": _day(Trace.read(trace), now, day),
        "day": day,
        "incident": next(
            (one for one in shown if row.incident and one.id == row.incident.id), None
        ),
        "incidents": shown,
        "baselines": _baselines(visit, name),
        "rows": rows,
        "of": of,
        "server_lines": _server_lines(visit, rows, now.at),
        "part": part,
    }


def _day(trace: Trace, now: PoolNow, incidents: Iterable[Incident]) -> Plot:
    """The last 24 h of a pool, from its first minute on."""
    targets, speeds = trace.in_target, trace.speed
    known = [
        at for at, pair in enumerate(zip(targets, speeds, strict=True)) if pair != (None, None)
    ]
    start, step = trace.first.timestamp(), SLOT.total_seconds()
    first = start + step * min(known, default=0)
    ends = [start + step * at for at in range(len(targets))]
    until = now.at.timestamp()

    def steps(values: Sequence[float | None], name: str) -> Series:
        percents = [None if one is None else 100 * one for one in values]
        return Series("steps", name, [*ends, ends[-1] + step], [*percents, percents[-1]])

    required = [] if now.required is None else [100 * now.required]
    high = 100 * max([1.05, *(one for one in speeds if one is not None)])
    low = min([100 * one for one in targets if one is not None] + required, default=0.0)
    return panels(
        f"Worst half hour of the last 24 h: {_least(targets)} of requests in target, "
        f"the slowest server at {_least(speeds)} of its baseline's speed",
        [
            Panel(
                Axis("requests in target, %", low=max(0.0, low - 5), high=100.0),
                [
                    Series("level", "share that the target asks for", y=required, colour=2),
                    steps(targets, "half hour, mean"),
                ],
            ),
            Panel(
                Axis("speed of the slowest, % of its baseline", high=high),
                [Series("level", "speed of its baseline", y=[100.0], colour=4), steps(speeds, "")],
            ),
        ],
        Axis("", low=min(first, until - 3600), high=until, is_time=True),
        around=[*incident_spans(incidents, first, until)],
    )


def _baselines(visit: Visit, pool: str) -> list[tuple[Baseline, str | None, int]]:
    """The baselines of the pool and of its servers: one of each kind, why it does not judge the
    speed, and how many they are.
    """
    kinds: dict[tuple[Any, ...], list[Baseline]] = {}
    for one in visit.store.pool_baselines(pool, _BASELINES):
        lacking = None if one.load_model is not None else one.arming or "no load model"
        kind = (one.since, one.until, one.accepted_by, one.instance is None, lacking)
        kinds.setdefault(kind, []).append(one)
    return [(some[0], kind[-1], len(some)) for kind, some in kinds.items()]


def targets(visit: Visit) -> Mapping[str, Any]:
    """Servers as of their newest minute; those of open pages first."""
    rows, part, _ = _listed(visit, "/targets")
    return {"rows": [one.document() for one in rows], "part": part}


PAGE = Page(PATH, "Fleet", "fleet.html", load, FleetQuery, is_placed=True)
POOL_PAGE = Page(POOL, "Pool", "pool.html", load_pool, PoolQuery)
API = Api("/targets", targets, FleetQuery)
