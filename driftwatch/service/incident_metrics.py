"""Open incidents as gauges on driftwatch's own ``/metrics``: how many, and which.

Before the first complete tick there is none of them; after it 0 is said where none is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from prometheus_client import Metric
from prometheus_client.registry import Collector

from driftwatch.model import Incident, IncidentState, Severity

OPEN = "driftwatch_incidents_open"
ONE = "driftwatch_incident"
# In a storm the page must stay small: the others are counted in OPEN and stand in the database.
MOST_INCIDENTS = 1_000

_SEVERITIES: tuple[str, ...] = get_args(Severity)
_STATES = tuple(state for state in get_args(IncidentState) if state != "resolved")
# what of an incident's target is a label of its own; a pool's incident has no instance
_OF_TARGET = ("pool", "instance", "engine")
_LABELS = ("rule", *_OF_TARGET, "severity", "state")


@dataclass(frozen=True, slots=True)
class _Known:
    """What one tick left open."""

    count: Counter[tuple[str, str]]
    shown: tuple[tuple[str, ...], ...]


class IncidentMetrics(Collector):
    """A collector of prometheus_client over the incidents that the last tick left open."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    def note(self, incidents: Iterable[Incident]) -> None:
        """Take the incidents of a complete tick; resolved ones are left out."""
        still = sorted((i for i in incidents if i.state != "resolved"), key=_urgency)
        count: Counter[tuple[str, str]] = Counter(
            (incident.severity, incident.state) for incident in still
        )
        # a rule's own labels may make two alike; a page with a series twice is refused as a whole
        shown = dict.fromkeys(_values(incident) for incident in still[:MOST_INCIDENTS])
        # one assignment: a scrape sees the tick before or this one
        self._known = _Known(count, tuple(shown))

    def describe(self) -> Iterable[Metric]:
        """Both families, empty."""
        return _families(None)

    def collect(self) -> Iterable[Metric]:
        """Both families; empty while no tick was completed."""
        return _families(self._known)


def _families(known: _Known | None) -> Iterable[Metric]:
    number = Metric(OPEN, "Open incidents.", "gauge")
    each = Metric(ONE, "1 for each open incident.", "gauge")
    if known is not None:
        for severity in _SEVERITIES:
            for state in _STATES:
                labels = {"severity": severity, "state": state}
                number.add_sample(OPEN, labels, float(known.count[severity, state]))
        for values in known.shown:
            each.add_sample(ONE, dict(zip(_LABELS, values, strict=True)), 1.0)
    yield number
    yield each


def _urgency(incident: Incident) -> tuple[int, bool, str]:
    """Pages first, what fires before what is pending; the rest in an order that stays."""
    return _SEVERITIES.index(incident.severity), incident.state != "firing", incident.key


def _values(incident: Incident) -> tuple[str, ...]:
    """Of :data:`_LABELS`; none but the state changes while it is open."""
    of_target = (incident.target.get(name, "") for name in _OF_TARGET)
    return (incident.rule, *of_target, incident.severity, incident.state)
