"""The fleet: every target, worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from driftwatch.errors import UsageError
from driftwatch.incidents.incident import Incident
from driftwatch.numbers import clean, cut
from driftwatch.pipeline.unknown_reasons import reasons
from driftwatch.web.answers import first_lines_of, untaken
from driftwatch.web.fleet import (
    RANK,
    STALE,
    STATES,
    UNKNOWN,
    Entry,
    Fleet,
    target_state,
    worst_incidents,
)
from driftwatch.web.page import Page, Paged, View, Visit, address, part_of, pool_path, target_path

PATH = "/fleet"
_REASONS, _REASON = 5, 160


class FleetQuery(Paged):
    """What of the fleet is listed."""

    q: Annotated[str, Field(max_length=200)] = ""  # part of a target's or pool's name
    state: str = ""  # one of the states, or unknown


def load(visit: Visit) -> View:
    """The part of the fleet that the query asks for."""
    query: FleetQuery = visit.query
    if query.state and query.state != "unknown" and query.state not in RANK:
        raise UsageError(
            f"there is no state {clean(query.state)[:40]!r}",
            help_text=f"one of: {', '.join(STATES)}; unknown: {' and '.join(UNKNOWN)}",
        )
    fleet = visit.web.fleet.current(visit.store)
    incidents = visit.store.open_now()
    entries = entries_of(fleet, incidents, visit.now)
    listed = sorted(filter(_wanted(query), entries), key=lambda one: RANK[one.state])
    rows, part = part_of(listed, query, PATH)
    counts = Counter(one.state for one in entries)
    whys: Counter[str] = Counter()
    for why, number in Counter(one.why for one in entries if one.why).items():
        whys[cut(clean(why), _REASON)] += number
    return View.of(
        "Fleet",
        end=fleet.end,
        is_stale=fleet.is_stale(visit.now),
        targets=len(entries),
        states=[
            _count(state, counts[state], address(PATH, FleetQuery(), state=state))
            for state in STATES
            if counts[state]
        ],
        unknown=_by_reason(whys),
        untaken=first_lines_of(visit.store.with_pages(untaken(incidents))),
        rows=[fleet_row(one, fleet) for one in rows],
        part=part,
        query=query,
        is_narrowed=query.model_copy(update={"page": 1, "size": 50}) != FleetQuery(),
    )


def _count(name: str, targets: int, path: str) -> dict[str, Any]:
    return {"name": name, "targets": targets, "path": path}


def _by_reason(whys: Counter[str]) -> list[dict[str, Any]]:
    """Targets of unknown state, by reason."""
    path = address(PATH, FleetQuery(), state="unknown")
    ordered = sorted(whys.items(), key=lambda pair: (-pair[1], pair[0]))
    counts = [_count(why, n, path) for why, n in ordered[:_REASONS]]
    if rest := sum(n for _, n in ordered[_REASONS:]):
        counts.append(_count("other reasons", rest, path))
    return counts


def entries_of(fleet: Fleet, incidents: Iterable[Incident], now: datetime) -> list[Entry]:
    """Every target with its state, in order; ``incidents``: the open ones."""
    is_stale = fleet.end is not None and fleet.is_stale(now)
    entries = list(fleet.entries)
    if is_stale:
        entries = [one._replace(state="no data", why=STALE) for one in entries]
    for key, incident in worst_incidents(incidents, fleet.by_text).items():
        if (at := fleet.places.get(key)) is not None:
            state, of_state, why = target_state(entries[at].row, incident, is_stale=is_stale)
            entries[at] = entries[at]._replace(state=state, incident=of_state, why=why)
    return entries


def _wanted(query: FleetQuery) -> Callable[[Entry], bool]:
    words = query.q.lower()

    def wanted(one: Entry) -> bool:
        if query.state == "unknown" and one.why is None:
            return False
        if query.state not in ("", "unknown", one.state):
            return False
        pool = one.target.pool or "default"
        return not words or words in one.key.text.lower() or words in pool.lower()

    return wanted


def in_target(row: Mapping[str, Any]) -> float | None:
    """Share of requests of ten minutes in target, the worse of both; None = unknown."""
    both = [row[f"{name}_in_target_10m_ratio"] for name in ("ttft", "tpot")]
    return min((one for one in both if one is not None), default=None)


def fleet_row(one: Entry, fleet: Fleet) -> dict[str, Any]:
    """One target as a row of the table; a measurement that is unknown has its reason."""
    row = fleet.rows.row(one.at, named=True) if fleet.rows.width else {}
    reason_of = {} if one.state == "no data" else reasons(row)
    silent = one.why or "unknown"

    def measured(column: str, value: float | None, upper: float | None = None) -> dict[str, Any]:
        why = None if value is not None else cut(clean(reason_of.get(column, silent)), _REASON)
        is_bound = value is not None and upper is not None and upper > value
        return {"value": value, "reason": why, "upper": upper if is_bound else None}

    incident, share = one.incident, in_target(one.row)
    worse = "tpot" if share is not None and row["ttft_in_target_10m_ratio"] != share else "ttft"
    upper = row.get(f"{worse}_in_target_10m_upper_ratio")
    pool = one.target.pool or "default"
    names = ("speed_at_equal_load_ratio", "binding_margin_ratio")
    speed, margin = (measured(name, row.get(name)) for name in names)
    return {
        "target": one.key.text,
        "target_path": target_path(one.key.text),
        "pool": pool,
        "pool_path": pool_path(pool),
        "state": one.state,
        "why": one.why and cut(clean(one.why), _REASON),
        # of its incident; null: it has none
        "since": incident and incident.started_at,
        "incident": incident and incident.id,
        "alert": incident and incident.alert,
        "severity": incident and incident.severity,
        "taken_by": incident and incident.acknowledged_by,
        "speed_at_equal_load_ratio": speed,
        # of the requests of 10 min, the worse of both
        "in_target_ratio": measured("slo_missed", share, upper),
        "limit": row.get("binding_limit"),
        "margin_ratio": margin,
    }


PAGE = Page(PATH, "Fleet", "fleet.html", load, FleetQuery, is_placed=True, api="/targets")
