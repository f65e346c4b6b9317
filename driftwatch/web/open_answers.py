"""What open incidents say of a pool or a target: one answer, and links to the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from driftwatch.model import Incident, TargetKey
from driftwatch.notify.numbers import clean
from driftwatch.web.fleet import RANK, incident_state
from driftwatch.web.page import Link
from driftwatch.web.pages.incident import (
    Line,
    incident_link,
    incident_path,
    page_texts,
    without_state,
)

_MOST, _MOST_UNTAKEN = 20, 3


@dataclass(frozen=True, slots=True)
class OpenAnswer:
    """The first line and the advice of an open incident."""

    state: str
    text: str
    lines: list[Line]
    since: datetime
    holder: str | None  # who has it
    path: str


def of_pool(incidents: Iterable[Incident], pool: str) -> list[Incident]:
    """Open incidents of a pool, and of its targets that nobody speaks for: worst first.

    What is of the whole pool goes before what is of one server.
    """
    own = [one for one in incidents if one.target.get("pool") == pool and one.part_of is None]
    return sorted(own, key=_worst_first)


def of_target(incidents: Iterable[Incident], key: TargetKey, pool: str) -> list[Incident]:
    """Open incidents of a target and of its whole pool, worst first."""
    return [
        one for one in of_pool(incidents, pool) if "instance" not in one.target or _key(one) == key
    ] + sorted(
        (one for one in incidents if one.part_of is not None and _key(one) == key),
        key=_worst_first,
    )


def fired(incidents: Iterable[Incident]) -> list[Incident]:
    """Those that do not wait any more."""
    return [one for one in incidents if one.state != "pending"]


def answer_of(incidents: Sequence[Incident]) -> OpenAnswer | None:
    """What the worst of them says; None without one that has a page."""
    first = next((one for one in incidents if one.page is not None), None)
    if first is None or first.page is None:
        return None
    summary, lines, _ = page_texts(first)
    return OpenAnswer(
        state=incident_state(first),
        text=without_state(summary, first.page),
        lines=lines,
        since=first.started_at,
        holder=first.acknowledged_by and clean(first.acknowledged_by),
        path=incident_path(first.id),
    )


def links_of(incidents: Sequence[Incident]) -> tuple[Link, ...]:
    """Links to at most twenty of those that fired."""
    return tuple(incident_link(one) for one in fired(incidents)[:_MOST])


def untaken(incidents: Iterable[Incident]) -> list[Incident]:
    """At most three that fire and that nobody has, the oldest first."""
    firing = (one for one in incidents if incident_state(one) == "firing" and one.part_of is None)
    return sorted(firing, key=lambda one: (one.started_at, one.id))[:_MOST_UNTAKEN]


def first_lines_of(incidents: Iterable[Incident]) -> tuple[Link, ...]:
    """Line 1 of their pages, of those that have one."""
    return tuple(
        Link(text=without_state(page_texts(one)[0], one.page), path=incident_path(one.id))
        for one in incidents
        if one.page is not None
    )


def pending_of(incidents: Sequence[Incident]) -> int:
    """How many wait, for their time or because of another one."""
    return sum(one.state == "pending" for one in incidents)


def _key(incident: Incident) -> TargetKey | None:
    instance = incident.target.get("instance")
    return None if instance is None else TargetKey(instance, incident.target.get("engine", "0"))


def _worst_first(incident: Incident) -> tuple[int, bool, datetime, str]:
    own = "instance" in incident.target
    return RANK[incident_state(incident)], own, incident.started_at, incident.id
