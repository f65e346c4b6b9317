"""A pool: its servers, the one answer for all, what is not judged yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from driftwatch.baselines.rows import baseline_of_row
from driftwatch.detect.baselines import Baseline
from driftwatch.model import TargetKey
from driftwatch.notify.minute_line import earliest_of
from driftwatch.notify.numbers import clean, cut
from driftwatch.pipeline.unknown_reasons import reasons
from driftwatch.web.fleet_minutes import LOOKED_BACK, Fleet
from driftwatch.web.fleet_states import RANK, STATES, Entry
from driftwatch.web.open_answers import (
    answer_of,
    fired,
    links_of,
    of_pool,
    pending_of,
)
from driftwatch.web.page import NotFound, Page, Paged, View, Visit, part_of
from driftwatch.web.pages.fleet import entries_of, fleet_row
from driftwatch.web.paths import POOL, grafana_link, near, pool_link, pool_path

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


def _row_of(one: Entry, fleet: Fleet) -> Mapping[str, Any]:
    """The newest minute of a target; empty where ten minutes have none."""
    has_minute = fleet.rows.width and one.row["end"] is not None
    return fleet.rows.row(one.at, named=True) if has_minute else {}


def _baselines(visit: Visit, pool: str) -> Iterator[dict[str, Any]]:
    """Baselines of the pool and of its servers; ``lacking``: why one does not judge the speed."""
    for row in visit.store.pool_baselines(pool, _BASELINES):
        one = baseline_of_row(row)
        yield {
            "of": _subject(one),
            "since": one.since,
            "until": one.until,
            "age_seconds": max(0.0, (visit.now - one.until).total_seconds()),
            "accepted_by": one.accepted_by,
            "accepted_at": one.accepted_at,
            "why": cut(one.why, 200),
            "lacking": None if one.model is not None else one.arming or "no load model",
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


# all that the texts of what is not judged are made of: servers alike in them have the same ones
_DECIDING = (
    *("end", "coverage_missing_inputs", "slower_at_equal_load", "speed_unknown_reason"),
    *("speed_missing_minutes", "slo_missed", "slo_ttft_seconds", "slo_tpot_seconds"),
    *("ttft_in_target_10m_ratio", "tpot_in_target_10m_ratio", "binding_limit"),
    *("waiting_capacity_requests", "kv_cache_usage_ratio", "max_num_seqs"),
    *("max_num_batched_tokens", "binding_running_requests"),
)
# of these only whether they are known counts, and of those that decide no more than that
_KNOWN_OR_NOT = ("ttft_in_target_10m_ratio", "tpot_in_target_10m_ratio", "kv_cache_usage_ratio")


def _not_judged(entries: Iterable[Entry], fleet: Fleet) -> Iterator[dict[str, Any]]:
    """What is unknown of how many servers; the most of them first."""
    names = [name for name in _DECIDING if name in fleet.rows.columns]
    table = fleet.rows.select(
        pl.col(name).is_null() if name in _KNOWN_OR_NOT else pl.col(name) for name in names
    ).rows()
    counts: Counter[tuple[str, str]] = Counter()
    texts: dict[object, tuple[tuple[str, str], ...]] = {}
    for one in entries:
        deciding = table[one.at] if table else ()
        if deciding not in texts:
            texts[deciding] = tuple(_unknowns(one, _row_of(one, fleet)))
        counts.update(texts[deciding])
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    for (what, reason), servers in ordered[:_REASONS]:
        yield {"what": what, "reason": reason, "servers": servers}
    if rest := sum(n for _, n in ordered[_REASONS:]):
        yield {"what": "other", "reason": "other reasons", "servers": rest}


def _unknowns(one: Entry, row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not row:
        yield "nothing", cut(clean(one.why or _NOBODY), _REASON_LENGTH)
        return
    why = reasons(row)
    if row.get("slower_at_equal_load") is None:
        reason = row.get("speed_unknown_reason") or why.get("slower_at_equal_load", "unknown")
        if (earliest := earliest_of(row, row["end"])) is not None:
            reason += f", earliest {earliest:%H:%M} UTC"
        yield "speed", cut(clean(reason), _REASON_LENGTH)
    if row.get("slo_missed") is None:
        yield "latency targets", cut(clean(why.get("slo_missed", "unknown")), _REASON_LENGTH)
    if row.get("binding_limit") is None:
        yield "limits", cut(clean(why.get("binding_limit", "unknown")), _REASON_LENGTH)


PAGE = Page(POOL, "Pool", "pool.html", load, PoolQuery)
