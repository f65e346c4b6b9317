"""Incidents of targets that are part of an incident of their pool."""

from __future__ import annotations

from collections.abc import Mapping

from driftwatch.incidents.incident import Incident
from driftwatch.model import TargetKey


def members_of(incidents: Mapping[str, Incident]) -> dict[str, list[Incident]]:
    """Key of a pool's incident → the open incidents of its targets."""
    members: dict[str, list[Incident]] = {}
    for one in incidents.values():
        if one.part_of is not None:
            members.setdefault(one.part_of, []).append(one)
    return members


def instance_of(incident: Incident) -> str | None:
    """The incident's instance; None for a pool."""
    return incident.target.get("instance") or None


def target_of(incident: Incident) -> TargetKey:
    """The incident's target.

    Raises KeyError: it is about a pool.
    """
    return TargetKey(incident.target["instance"], incident.target.get("engine", "0"))
