"""Incidents of a week by what caused them: a hang's backlog belongs to the hang. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from driftwatch.model import Incident
from driftwatch.report.cells import CELL_LENGTH
from driftwatch.report.incidents import drifts, family_of, ground, key_of, of_week
from driftwatch.report.material import Material

_CELL = CELL_LENGTH


@dataclass(frozen=True, slots=True, eq=False)
class Cause:
    """One thing that went wrong, with every incident that it explains."""

    family: str  # of its own incidents
    incidents: tuple[Incident, ...]  # its own, by start
    consequences: tuple[Incident, ...]  # of other families: the backlog of a hang
    cells: pl.DataFrame  # :data:`driftwatch.report.cells.CELL_SCHEMA`, what all of them cover

    @property
    def every(self) -> tuple[Incident, ...]:
        """Its own and their consequences."""
        return (*self.incidents, *self.consequences)


def causes(material: Material) -> list[Cause]:
    """Pages and tickets of the week by cause, in order of their first start.

    What a pool's own page says is of its targets too, who were paged before or after it.
    """
    episodes = [one for one in of_week(material) if drifts(one)]
    pooled = {(family_of(one), _pool(one)) for one in episodes if not _is_of_target(one)}
    backlogs = _backlogs(material, episodes)
    own: dict[tuple[str, ...], list[Incident]] = {}
    consequences: dict[tuple[str, ...], list[Incident]] = {}
    for one in episodes:
        if (hang := _hang_of(material, one, backlogs)) is not None:
            consequences.setdefault(_group(hang, pooled), []).append(one)
        else:
            own.setdefault(_group(one, pooled), []).append(one)
    every = []
    for group, incidents in own.items():
        others = consequences.get(group, [])
        covered = [ground(material, [*incidents, *others])]
        covered += [
            _cells_of(material, *backlogs[one.id]) for one in incidents if one.id in backlogs
        ]
        cells = pl.concat(covered).unique(["instance", "engine", "end"], maintain_order=True)
        cells = cells.sort("instance", "engine", "end")
        every.append(Cause(group[0], tuple(incidents), tuple(others), cells))
    return every


def _is_of_target(incident: Incident) -> bool:
    return bool(incident.target.get("instance"))


def _pool(incident: Incident) -> str:
    return incident.target.get("pool", "")


def _group(incident: Incident, pooled: set[tuple[str, str]]) -> tuple[str, ...]:
    family, pool = family_of(incident), _pool(incident)
    if family == "traffic" or (family, pool) in pooled:
        return family, "pool", pool
    return family, "target", incident.target["instance"], incident.target.get("engine", "0")


_Backlogs = Mapping[str, tuple[Incident, datetime]]  # hang's id → it, and the end of its backlog


def _backlogs(material: Material, episodes: Sequence[Incident]) -> _Backlogs:
    hangs = [one for one in episodes if family_of(one) == "stuck" and _is_of_target(one)]
    return {one.id: (one, _backlog_end(material, one)) for one in hangs}


def _backlog_end(material: Material, hang: Incident) -> datetime:
    """End of the last ten minutes in a row after a hang in which requests waited."""
    end = material.until if hang.resolved_at is None else min(hang.resolved_at, material.until)
    key = key_of(hang)
    after = material.cells.filter(
        (pl.col("instance") == key.instance)
        & (pl.col("engine") == key.engine)
        & (pl.col("end") > end)
    )
    for cell_end, queued in after.select("end", "queued_seconds").iter_rows():
        if not queued or cell_end - end > _CELL:
            break
        end = cell_end
    return end


def _hang_of(material: Material, incident: Incident, backlogs: _Backlogs) -> Incident | None:
    """The hang whose backlog an incident of traffic is: it began while requests waited for it."""
    if family_of(incident) != "traffic":
        return None
    for hang, until in backlogs.values():
        if not hang.started_at <= incident.started_at < until or _pool(hang) != _pool(incident):
            continue
        if _is_of_target(incident):
            if key_of(incident) == key_of(hang):
                return hang
        elif _waits_only_on(material, incident, backlogs):
            return hang
    return None


def _waits_only_on(material: Material, incident: Incident, backlogs: _Backlogs) -> bool:
    """Whether in a pool's incident requests waited on servers that had hung, and on no other."""
    waited = ground(material, [incident]).filter(pl.col("queued_seconds") > 0)
    hung = {key_of(one) for one, _ in backlogs.values() if one.started_at <= incident.started_at}
    targets = set(waited.select("instance", "engine").iter_rows())
    return targets <= {(key.instance, key.engine) for key in hung} and bool(targets)


def _cells_of(material: Material, hang: Incident, until: datetime) -> pl.DataFrame:
    key = key_of(hang)
    return material.cells.filter(
        (pl.col("instance") == key.instance)
        & (pl.col("engine") == key.engine)
        & (pl.col("end") > hang.started_at)
        & (pl.col("end") < until + _CELL)
    )
