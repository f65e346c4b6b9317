"""What one word says of each target, worst first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from driftwatch.model import Incident, Target, TargetKey

# Worst first: the rank of a state is its place.
STATES = (
    *("firing", "no data", "taken", "silenced", "target missed", "slower", "limit full"),
    *("ticket", "pending", "not judged", "notice", "in target", "as its baseline"),
)
RANK = {state: rank for rank, state in enumerate(STATES)}
UNKNOWN = ("no data", "not judged")
# What a state is made of, and a list is sorted by.
SUMMARY = (
    *("end", "scrapes", "coverage_missing_inputs", "slo_missed", "slower_at_equal_load"),
    *("binding_limit", "speed_unknown_reason", "speed_at_equal_load_ratio"),
    *("ttft_in_target_10m_ratio", "tpot_in_target_10m_ratio", "binding_margin_ratio"),
)
# Of these one minute says more than an incident that is milder.
_MILD = ("ticket", "pending", "notice")
_STALE = "driftwatch run wrote no minute in the last 5 min"
_SILENT = "nothing scraped in the last 10 min"


class Entry(NamedTuple):
    """A target before it is drawn."""

    key: TargetKey
    target: Target
    state: str
    incident: Incident | None  # whose hands it is in, None = nobody's
    why: str | None  # why its state is unknown, None = it is not
    row: Mapping[str, Any]  # :data:`SUMMARY` of its newest minute
    at: int  # its place among the targets


class TargetState(NamedTuple):
    """One target's state."""

    state: str
    incident: Incident | None  # what it is in the hands of, None = it has none
    reason: str | None  # why it is unknown, None = it is not


def incident_state(incident: Incident) -> str:
    """The word of an open incident."""
    if incident.state == "pending":
        return "pending"
    if incident.severity != "page":
        return incident.severity
    if incident.acknowledged_at is not None:
        return "taken"
    return "silenced" if incident.is_quiet else "firing"


def worst_incidents(
    incidents: Iterable[Incident], by_text: Mapping[str, TargetKey]
) -> dict[TargetKey, Incident]:
    """Target → its worst open incident, its own or that of its pool; ``by_text``: every target."""
    every = list(incidents)
    speakers = {one.key: one for one in every}
    worst: dict[TargetKey, Incident] = {}
    for one in every:
        for key in _concerned(one, by_text):
            # what is part of a pool's incident is in the hands of who has that
            speaks = speakers.get(one.part_of or "", one)
            before = worst.get(key)
            if before is None or _order(speaks) < _order(before):
                worst[key] = speaks
    return worst


def concerning(incidents: Iterable[Incident], key: TargetKey) -> set[str]:
    """Ids of those that are about a target: its own, and those of its pool that name it."""
    every, alone = list(incidents), {key.text: key}
    mine = [one for one in every if key in _concerned(one, alone)]
    speaking = {one.part_of for one in mine} - {None}
    return {one.id for one in mine} | {one.id for one in every if one.key in speaking}


def _order(incident: Incident) -> tuple[int, str, str]:
    return RANK[incident_state(incident)], incident.started_at.isoformat(), incident.id


def _concerned(incident: Incident, by_text: Mapping[str, TargetKey]) -> Iterator[TargetKey]:
    instance = incident.target.get("instance")
    if instance is not None:
        yield TargetKey(instance, incident.target.get("engine", "0"))
        return
    named = ((incident.page or {}).get("concerned") or {}).get("first") or ()
    yield from (by_text[text] for text in named if text in by_text)


def target_state(
    row: Mapping[str, Any], incident: Incident | None, *, is_stale: bool
) -> TargetState:
    """The state of one target; ``row``: of :attr:`driftwatch.web.fleet_minutes.Fleet.rows`.

    ``is_stale``: its minute is old: what it says is not so now.
    """
    of_minute, reason = ("no data", _STALE) if is_stale else _of_minute(row)
    if incident is None:
        return TargetState(of_minute, None, reason)
    of_incident = incident_state(incident)
    if of_incident in _MILD and RANK[of_minute] < RANK[of_incident]:
        return TargetState(of_minute, incident, reason)
    return TargetState(of_incident, incident, None)


def _of_minute(row: Mapping[str, Any]) -> tuple[str, str | None]:
    if row["end"] is None or not row["scrapes"]:
        missing = row["coverage_missing_inputs"]
        return "no data", f"gone: {missing}" if missing else _SILENT
    if row["slo_missed"]:
        return "target missed", None
    if row["slower_at_equal_load"]:
        return "slower", None
    if row["binding_limit"] not in (None, "none"):
        return "limit full", None
    if row["slo_missed"] is False:
        return "in target", None
    if row["slower_at_equal_load"] is False:
        return "as its baseline", None
    return "not judged", row["speed_unknown_reason"] or "neither targets nor a baseline"
