"""Mutes: the time intervals in which the pages of a rule or of a pool are held back. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from driftwatch.model import Incident
from driftwatch.settings.time_intervals import NamedIntervals


@dataclass(frozen=True, slots=True)
class Mutes:
    """Which time intervals hold back which pages."""

    intervals: Mapping[str, NamedIntervals] = field(default_factory=dict)  # by name
    of_rules: Mapping[str, Collection[str]] = field(default_factory=dict)  # rule id → names
    of_pools: Mapping[str, Collection[str]] = field(default_factory=dict)  # pool → names

    def muted_by(self, incident: Incident, at: datetime) -> str | None:
        """Name of the interval that holds the incident's page back then: of its rule, else of its
        pool; None without one.
        """
        of_rule = self.of_rules.get(incident.rule, ())
        of_pool = self.of_pools.get(incident.target.get("pool", ""), ())
        for name in (*of_rule, *of_pool):
            if name in self.intervals and self.intervals[name].contains(at):
                return name
        return None


NOTHING_MUTED = Mutes()
