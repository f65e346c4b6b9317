"""The incidents of a week, as they stood at its end, by what caused them, and the ground that they
cover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl

from driftwatch.incidents.incident import Incident
from driftwatch.model import TargetKey
from driftwatch.numbers import clean, utc_text
from driftwatch.report.material import Material

_DRIFTS = ("traffic", "speed", "stuck")


def targets_of(material: Material) -> list[TargetKey]:
    """Every target that has a cell in the week, in order."""
    named = material.cells.select("instance", "engine").unique().sort("instance", "engine")
    return [TargetKey(instance, engine) for instance, engine in named.iter_rows()]


def namer(material: Material) -> Callable[[Incident], str]:
    """What an incident's target or pool is called."""
    keys = set(targets_of(material))
    for incident in material.incidents:
        if incident.target.get("instance"):
            keys.add(key_of(incident))
    names = short_names(keys)

    def name(incident: Incident) -> str:
        if incident.target.get("instance"):
            return names[key_of(incident)]
        return clean(incident.target.get("pool") or incident.key)

    return name


def key_of(incident: Incident) -> TargetKey:
    """The target of a target's incident."""
    return TargetKey(incident.target["instance"], incident.target.get("engine", "0"))


def fired_in(material: Material, since: datetime, until: datetime) -> list[Incident]:
    """Incidents that fired in a stretch, in order of time."""
    fired = [one for one in material.incidents if one.firing_at and since <= one.firing_at < until]
    return sorted(fired, key=lambda one: (one.firing_at or one.started_at, one.key))


def of_week(material: Material) -> list[Incident]:
    """Incidents that fired before the week's end and were open in some of it."""
    incidents = [
        one
        for one in material.incidents
        if one.firing_at is not None
        and one.firing_at < material.until
        and (one.resolved_at is None or one.resolved_at > material.since)
    ]
    return sorted(incidents, key=lambda one: (one.started_at, one.key))


def is_open(incident: Incident, at: datetime) -> bool:
    """Whether it fired then and was not over."""
    return (
        incident.firing_at is not None
        and incident.firing_at < at
        and (incident.resolved_at is None or incident.resolved_at >= at)
    )


def drifts(incident: Incident) -> bool:
    """Whether it is a row of the drift table."""
    return incident.severity == "page" or (
        incident.severity == "ticket" and family_of(incident) in _DRIFTS
    )


def family_of(incident: Incident) -> str:
    """Which kind of drift its rule calls it; the alert's name where the rule does not say."""
    return (incident.page and incident.page.family) or incident.alert


def advised_knob(incident: Incident) -> str | None:
    """The setting that its page advises to change; None: it advises none."""
    advice = None if incident.page is None else incident.page.advice
    return None if advice is None else advice.knob


def ground(material: Material, incidents: Sequence[Incident]) -> pl.DataFrame:
    """The cells that incidents cover, each once: their targets, while they were true.

    A pool's incident covers its whole pool: which of its targets came and went is not kept.
    """
    touched = [pl.lit(False)]
    for one in incidents:
        began = max(one.started_at, material.since)
        ended = material.until
        if one.resolved_at is not None and one.resolved_at < ended:
            # what keeps an incident firing is not its cost
            ended = min(one.last_true_at, one.resolved_at)
        inside = (pl.col("end") > began) & (
            pl.col("end").dt.offset_by("-10m") < max(ended, began.replace(microsecond=1))
        )
        if one.target.get("instance"):
            key = key_of(one)
            mine = (pl.col("instance") == key.instance) & (pl.col("engine") == key.engine)
        else:
            mine = pl.col("pool") == one.target.get("pool", "")
        touched.append(mine & inside)
    return material.cells.filter(pl.any_horizontal(touched))


def incident_rows(material: Material) -> list[dict[str, Any]]:
    """The incidents of the week as JSON values, pages and tickets first."""
    name = namer(material)
    rank = {"page": 0, "ticket": 1, "notice": 2}
    incidents = sorted(of_week(material), key=lambda i: (rank[i.severity], i.started_at, i.key))
    rows = []
    for one in incidents:
        still = is_open(one, material.until)
        page = one.page
        ended = None if still or one.resolved_at is None else one.resolved_at
        advice = None if page is None else page.advice
        mark = material.marks.get(one.id)
        rows.append(
            {
                "id": one.id,
                "severity": one.severity,
                "alert": one.alert,
                "rule": one.rule,
                "subject": name(one),
                "pool": one.target.get("pool"),
                "started_at": utc_text(one.started_at),
                "firing_at": None if one.firing_at is None else utc_text(one.firing_at),
                "resolved_at": None if ended is None else utc_text(ended),
                "open": still,
                "true_seconds": one.true_seconds,
                "leaf": None if page is None else page.leaf,
                "action": None if advice is None else advice.action,
                "summary": None if page is None else page.summary,
                "acknowledged_by": one.acknowledged_by,
                "silenced": one.silenced_by is not None,
                "useful": None if mark is None else mark.useful,
                "useful_reason": "nobody marked it" if mark is None else None,
                "marked_by": None if mark is None else mark.by,
                "marked_because": None if mark is None else mark.because or None,
            }
        )
    return rows


def notice_counts(material: Material) -> list[dict[str, Any]]:
    """Notices of the week as JSON values: a row an alert and pool, the most frequent first."""
    counted: dict[tuple[str, str], list[Incident]] = {}
    for one in of_week(material):
        if one.severity == "notice":
            counted.setdefault((one.alert, one.target.get("pool", "")), []).append(one)
    rows = [
        {
            "alert": alert,
            "pool": pool,
            "notices": len(notices),
            "servers": len({key_of(one) for one in notices if one.target.get("instance")}) or None,
            "first": utc_text(notices[0].started_at),
            "last": utc_text(notices[-1].started_at),
        }
        for (alert, pool), notices in counted.items()
    ]
    return sorted(rows, key=lambda row: (-row["notices"], row["alert"], row["pool"]))


def short_names(keys: Iterable[TargetKey]) -> dict[TargetKey, str]:
    """Target → its name: without the port where every server has the same one.

    >>> names = short_names([TargetKey("chat-8b-5:8000", "0"), TargetKey("chat-8b-6:8000", "1")])
    >>> list(names.values())
    ['chat-8b-5', 'chat-8b-6/1']
    """
    distinct = sorted(set(keys))
    hosts = {key: key.instance.rpartition(":") for key in distinct}
    ports = {port for _, _, port in hosts.values()}
    named = {host for host, colon, _ in hosts.values() if colon and host}
    instances = {key.instance for key in distinct}
    alike = len(ports) == 1 and len(named) == len(instances) and len(instances) > 1
    names = {}
    for key in distinct:
        instance = hosts[key][0] if alike else key.instance
        names[key] = clean(instance if key.engine == "0" else f"{instance}/{key.engine}")
    return names


@dataclass(frozen=True, slots=True, eq=False)
class Cause:
    """One thing that went wrong."""

    family: str
    incidents: tuple[Incident, ...]  # by start
    cells: pl.DataFrame  # :data:`driftwatch.report.cells.CELL_SCHEMA`, what they cover


def causes(material: Material) -> list[Cause]:
    """Pages and tickets of the week by cause, in order of their first start.

    What a pool's own page says is of its targets too, who were paged before or after it.
    """
    episodes = [one for one in of_week(material) if drifts(one)]
    pooled = {(family_of(o), o.target.get("pool")) for o in episodes if "instance" not in o.target}
    groups: dict[tuple[str | None, ...], list[Incident]] = {}
    for one in episodes:
        group: tuple[str | None, ...] = (family_of(one), one.target.get("pool"))
        if group[0] != "traffic" and group not in pooled:
            group += (one.target["instance"], one.target.get("engine", "0"))
        groups.setdefault(group, []).append(one)
    return [
        Cause(str(group[0]), tuple(own), ground(material, own)) for group, own in groups.items()
    ]
