"""A pool: its servers, the one answer for all, what is not judged yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from driftwatch.detect.baselines import Baseline
from driftwatch.model import TargetKey
from driftwatch.numbers import clean, cut
from driftwatch.pipeline.unknown_reasons import reasons
from driftwatch.web.answers import (
    answer_of,
    fired,
    links_of,
    of_pool,
    pending_of,
)
from driftwatch.web.fleet import LOOKED_BACK, RANK, STATES, Entry, Fleet
from driftwatch.web.page import (
    POOL,
    NotFound,
    Page,
    Paged,
    View,
    Visit,
    grafana_link,
    near,
    part_of,
    pool_link,
    pool_path,
)
from driftwatch.web.pages.fleet import entries_of, fleet_row

_BASELINES, _REASONS, _REASON_LENGTH = 20, 8, 160
_NOBODY = "no scrape in these minutes"


class PoolQuery(Paged):
    """Which part of the servers is listed."""


def load(visit: Visit) -> View:
    """The pool and a part of its servers.

    Raises NotFound: no target is in a pool of that name.
    """
    name, fleet = visit.path["pool"], visit.web.fleet.current(visit.store)
    incidents = visit.store.open_now()
    if name not in fleet.pools:
        raise _no_pool(name, fleet)
    every = entries_of(fleet, incidents, visit.now)
    entries = [every[at] for at in fleet.pools[name]]
    entries.sort(key=lambda one: (RANK[one.state], one.key))
    listed, part = part_of(entries, visit.query, pool_path(name))
    mine = of_pool(incidents, name)
    counts = Counter(one.state for one in entries)
    until = fleet.end
    return View.of(
        f"Pool {cut(clean(name), 80)}",
        pool=name,
        servers=len(entries),
        states=[{"state": one, "servers": counts[one]} for one in STATES if counts[one]],
        until=until,
        is_stale=fleet.is_stale(visit.now),
        answer=answer_of(visit.store.with_pages(fired(mine)[:1])),
        incidents=links_of(mine),
        pending=pending_of(mine),
        without_baseline=_without_baseline(entries, fleet),
        baselines=list(_baselines(visit, name)),
        not_judged=list(_not_judged(entries, fleet)),
        rows=[fleet_row(one, fleet) for one in listed],
        part=part,
        grafana=None
        if until is None
        else grafana_link(visit.web.settings.grafana, name, until - LOOKED_BACK, until),
    )


def _no_pool(name: str, fleet: Fleet) -> NotFound:
    text = f"There is no pool {cut(clean(name), 80)}."
    return NotFound(text, tuple(pool_link(one) for one in near(name, [*fleet.pools])))


def _baselines(visit: Visit, pool: str) -> Iterator[dict[str, Any]]:
    """Baselines of the pool and of its servers; ``lacking``: why one does not judge the speed."""
    for one in visit.store.pool_baselines(pool, _BASELINES):
        yield {
            "of": _subject(one),
            "since": one.since,
            "until": one.until,
            "age_seconds": max(0.0, (visit.now - one.until).total_seconds()),
            "accepted_by": one.accepted_by,
            "accepted_at": one.accepted_at,
            "why": cut(one.why, 200),
            "lacking": None if one.load_model is not None else one.arming or "no load model",
        }


def _subject(one: Baseline) -> str:
    if one.instance is None:
        return "the whole pool"
    return clean(TargetKey(one.instance, one.engine or "0").text)


def _without_baseline(entries: Sequence[Entry], fleet: Fleet) -> int:
    if not fleet.rows.width:
        return len(entries)
    names = fleet.rows["speed_reference"]
    return sum((names[one.at] or "provisional").startswith("provisional") for one in entries)


# what is judged of a server → the column that says how
_JUDGED = {
    "speed": "slower_at_equal_load",
    "latency targets": "slo_missed",
    "limits": "binding_limit",
}


def _not_judged(entries: Iterable[Entry], fleet: Fleet) -> Iterator[dict[str, Any]]:
    """What is unknown of how many servers, the most of them first; the reason is the first's."""
    unknown: dict[tuple[str, str | None], list[Entry]] = {}
    for one in entries:
        if one.row["end"] is None:
            unknown.setdefault(("nothing", one.why or _NOBODY), []).append(one)
            continue
        for what, column in _JUDGED.items():
            if one.row[column] is None:
                why = one.row["speed_unknown_reason"] if what == "speed" else None
                unknown.setdefault((what, why), []).append(one)
    ordered = sorted(unknown.items(), key=lambda pair: -len(pair[1]))
    for (what, why), servers in ordered[:_REASONS]:
        reason = why or _reason(what, servers[0], fleet)
        yield {"what": what, "reason": cut(clean(reason), _REASON_LENGTH), "servers": len(servers)}
    if rest := sum(len(servers) for _, servers in ordered[_REASONS:]):
        yield {"what": "other", "reason": "other reasons", "servers": rest}


def _reason(what: str, one: Entry, fleet: Fleet) -> str:
    return reasons(fleet.rows.row(one.at, named=True)).get(_JUDGED[what], "unknown")


PAGE = Page(POOL, "Pool", "pool.html", load, PoolQuery)
