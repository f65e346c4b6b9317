"""WHAT MOVED: each cause with its cost, what was done, and whether that worked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.incidents.incident import Incident
from driftwatch.model import TargetKey
from driftwatch.numbers import clean, duration
from driftwatch.report.cells import CELL, HOUR_SECONDS
from driftwatch.report.changes import compared_text, done_text, outcome, rollouts
from driftwatch.report.costs import (
    between,
    gpu_hours_lost,
    in_target,
    missed,
    missing_stretch,
    of_pool,
    total,
    unanswered,
)
from driftwatch.report.incidents import (
    advised_text,
    end_of,
    ended_because,
    family_of,
    keys_of,
    of_week,
    page_lengths,
    problem,
    reported,
    subject_of,
)
from driftwatch.report.lengths import drift_text
from driftwatch.report.material import Material
from driftwatch.report.report import Moved
from driftwatch.report.result import restarts_of, restarts_text, result_of
from driftwatch.verify.verification import Verification

# an engine that is slow or hangs costs GPU time; anything else costs requests
BY_SPEED = ("speed", "stuck")
_MOMENT = timedelta(microseconds=1)


def moved_rows(material: Material) -> tuple[Moved, ...]:
    """A row a cause, the costliest first."""
    rows = [_row(material, family, own) for family, own in _causes(material)]
    return tuple(sorted(rows, key=lambda row: (-_weight(row), row.start, row.subject)))


def cells_of_causes(material: Material) -> pl.DataFrame:
    """The cells that pages and tickets of the week cover, each once."""
    parts = [_cells_of(material, family, own) for family, own in _causes(material)]
    return pl.concat([material.cells.clear(), *parts]).unique([*KEY, "end"])


def _weight(row: Moved) -> float:
    """Which of two costs comes first; GPU-hours and requests are only roughly comparable."""
    return (row.missed.high or 0.0) + HOUR_SECONDS * (row.gpu_hours_lost.high or 0.0)


def _causes(material: Material) -> list[tuple[str, list[Incident]]]:
    """Pages and tickets of the week by cause, with its family, in order of their first start.

    One server that is slow or hangs is another cause than the next one.
    """
    groups: dict[tuple[object, ...], list[Incident]] = {}
    for one in of_week(material):
        if one.severity != "notice":
            family = family_of(one)
            servers = keys_of(one) if family in BY_SPEED and len(keys_of(one)) == 1 else ()
            groups.setdefault((family, one.pool, servers), []).append(one)
    return [(str(group[0]), own) for group, own in groups.items()]


def _row(material: Material, family: str, episodes: Sequence[Incident]) -> Moved:
    pool, cells = episodes[0].pool, _cells_of(material, family, episodes)
    start = min(one.started_at for one in episodes)
    touched = cells["end"].sort().to_list()
    first, last = (touched[0] - CELL, touched[-1]) if touched else (start, start)
    ends = [end_of(one, material) for one in episodes]
    end = None if None in ends else max(one for one in ends if one is not None)
    changed, waited = _verifications(material, episodes), total(cells, "queue_seconds_sum")
    subjects = {subject_of(one) for one in episodes}
    if changed:
        rollout = rollouts(changed)[-1]
        done = done_text(material, changed)
        result, compared = outcome(material, rollout), compared_text(rollout)
    else:
        again = restarts_of(material, episodes)
        done = _done(episodes, again)
        result, compared = result_of(material, family, episodes, again, first)
    return Moved(
        subject=subjects.pop() if len(subjects) == 1 else clean(pool),
        pool=pool,
        family=family,
        what=_what(material, family, episodes, cells),
        start=start,
        end=end,
        counted_from=first,
        counted_to=last,
        missed=missed(material, cells),
        unanswered=unanswered(cells),
        given_up=total(cells, "given_up_requests"),
        gpu_hours_lost=gpu_hours_lost(material, cells),
        waited_hours=None if waited is None else waited / HOUR_SECONDS,
        in_target=in_target(material, between(of_pool(material, pool), first, last)),
        done=done,
        result=result,
        compared=compared,
        incidents=tuple(reported(one, material) for one in episodes),
    )


def _what(
    material: Material, family: str, episodes: Sequence[Incident], cells: pl.DataFrame
) -> str:
    """What moved, in a few words: ``prompts ×2.3``, ``19 % slower``, ``token budget full``."""
    stuck = float(cells["stuck_seconds"].sum())
    if family == "stuck" and stuck:
        return f"no token for {duration(stuck)}"
    if family == "traffic" and len(cells):
        ends = cells["end"].sort()
        drift = drift_text(material, episodes[0].pool, ends[0] - CELL, ends[-1])
        if drift := drift or page_lengths(episodes):
            return drift
    return problem(family, episodes)


def _cells_of(material: Material, family: str, episodes: Sequence[Incident]) -> pl.DataFrame:
    """The cells that incidents cover, each once.

    Of a slow server its own while it was slow, of one that hung also its backlog after that; of
    anything else the pool's, while it missed its targets around it too.
    """
    parts = [material.cells.clear()]
    for one in episodes:
        end = end_of(one, material)
        # what keeps an incident open is not its cost
        stop = material.until if end is None else min(one.last_true_at, end)
        stretches: list[tuple[Sequence[TargetKey], datetime, datetime]] = [
            ((server.key,), server.since, min(server.last_true_at, stop)) for server in one.servers
        ]
        if family not in BY_SPEED:
            stretches = [((), max(one.started_at, material.since), stop)]
        for keys, start, last in stretches:
            mine = of_pool(material, one.pool, keys)
            if family != "speed":
                start, last = missing_stretch(material, mine, start, last)
            parts.append(between(mine, start, max(last, start + _MOMENT)))
    return pl.concat(parts).unique([*KEY, "end"], maintain_order=True)


def _verifications(material: Material, incidents: Sequence[Incident]) -> list[Verification]:
    """Verifications of changes that came after incidents began, on their servers or pools."""
    keys = {key for one in incidents for key in keys_of(one)}
    ids, began = {one.id for one in incidents}, min(one.started_at for one in incidents)
    return [
        one
        for one in material.verifications
        if one.change.at < material.until
        and (
            one.incident_id in ids
            or (TargetKey(one.instance, one.engine) in keys and one.change.at >= began)
        )
    ]


def _done(episodes: Sequence[Incident], again: pl.DataFrame) -> str:
    """Without a known change: restarts, how it ended, or who acknowledged; and what was advised."""
    if not again.is_empty():
        done = f"{restarts_text(again)}; what changed is unknown"
    elif (reason := ended_because(episodes)) is not None:
        return reason
    else:
        by = sorted({one.acknowledged_by for one in episodes if one.acknowledged_by})
        done = f"acknowledged by {clean(by[0])}" if by else "no change found"
    advised = advised_text(episodes[-1])
    return f"{done}; advised: {advised}" if advised else done
