"""Routes: which receivers an incident is sent to, why, and what follows. Pure.

The first of these that names a receiver decides: the rule's ``receivers``, the first of the flat
list ``routes`` whose matchers all match, the pool's ``receivers``, the severities that receivers
take, ``fallback_receiver``. What none of them routes nobody is told of:
:attr:`Routed.reaches_nobody`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from driftwatch.incidents.silence import labels_of
from driftwatch.matchers import Matcher
from driftwatch.model import Incident, Severity

DecidedBy = Literal["rule", "route", "pool", "severity", "fallback", "nobody"]

# until somebody acknowledges it; a ticket and a notice wait
DEFAULT_REPEAT_SECONDS: Mapping[Severity, float | None] = {
    "page": 4 * 3_600.0,
    "ticket": None,
    "notice": None,
}
# whose past set a threshold: of a default one
_DEFAULT_THRESHOLD = "shipped"
# so long a server is not judged by what is usual for it
_FIRST_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a receiver takes."""

    receiver: str  # its name
    # of what no rule, route or pool routes; a notice goes to those alone that have it here
    severities: tuple[Severity, ...] = ("page", "ticket")


@dataclass(frozen=True, slots=True)
class Route:
    """Which incidents go to which receivers, whatever severities these take."""

    receivers: tuple[str, ...]
    matchers: tuple[Matcher, ...] = ()  # all must match; none of them = every incident
    # seconds between two pages until it is acknowledged; 0 = none, None = as the severity has it
    repeat_seconds: float | None = None

    @property
    def conditions(self) -> str:
        """The matchers as text."""
        return " ".join(one.text for one in self.matchers) or "every incident"

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether every matcher matches."""
        return all(matcher.matches(labels) for matcher in self.matchers)


@dataclass(frozen=True, slots=True)
class Routed:
    """Who is told of an incident."""

    receivers: tuple[str, ...]  # told at once, by name
    why: str  # what decided, in words
    repeat_seconds: float | None = None  # between two pages until acknowledged, None = no repeat
    decided_by: DecidedBy = "severity"
    route: int | None = None  # number of the route that decided, from 1

    @property
    def reaches_nobody(self) -> bool:
        """No receiver could be found for a page or ticket; a notice may go to nobody."""
        return self.decided_by == "nobody"


@dataclass(frozen=True, slots=True)
class Routes:
    """The configuration's routing."""

    subscriptions: tuple[Subscription, ...] = ()  # every receiver there is
    routes: tuple[Route, ...] = ()  # the first whose matchers match
    of_rules: Mapping[str, Collection[str]] = field(default_factory=dict)  # rule id → receivers
    of_pools: Mapping[str, Collection[str]] = field(default_factory=dict)  # pool → receivers
    fallback: str | None = None  # gets pages and tickets that nothing else routes
    watched_since: datetime | None = None  # when the first minute was evaluated, None = long ago

    @property
    def names(self) -> tuple[str, ...]:
        """Every receiver there is."""
        return tuple(one.receiver for one in self.subscriptions)

    def of(self, incident: Incident) -> Routed:
        """Who is told of an incident; of a notice its page is read."""
        routed = self.of_labels(labels_of(incident), incident.severity)
        if self._is_too_early(incident):
            return Routed((), "no notice of the first day is sent whose thresholds are a default")
        return routed

    def _is_too_early(self, incident: Incident) -> bool:
        return (
            incident.severity == "notice"
            and self.watched_since is not None
            and (incident.firing_at or incident.started_at) < self.watched_since + _FIRST_DAY
            and has_default_thresholds(incident.page)
        )

    def of_labels(self, labels: Mapping[str, str], severity: Severity) -> Routed:
        """Who is told of an incident with these labels (rule, alert, severity, the target's)."""
        by_route = (
            self.of_route(number, severity)
            for number, route in enumerate(self.routes, 1)
            if route.takes(labels)
        )
        return (
            self.of_rule(labels.get("rule", ""), severity)
            or next((one for one in by_route if one is not None), None)
            or self.of_pool(labels.get("pool", ""), severity)
            or self.of_severity(severity)
        )

    def of_rule(self, rule: str, severity: Severity) -> Routed | None:
        """Who its rule names; None where it names nobody that exists."""
        names = self._existing(self.of_rules.get(rule, ()))
        return self._routed(names, severity, f"receivers of rule {rule}", "rule") if names else None

    def of_route(self, number: int, severity: Severity) -> Routed | None:
        """Who a route names, by its number from 1; None where nobody of them exists."""
        route = self.routes[number - 1]
        names = self._existing(route.receivers)
        why = f"route {number}: {route.conditions}"
        return self._routed(names, severity, why, "route", number) if names else None

    def of_pool(self, pool: str, severity: Severity) -> Routed | None:
        """Who the pool names; None where it names nobody that exists."""
        names = self._existing(self.of_pools.get(pool, ()))
        return self._routed(names, severity, f"receivers of pool {pool}", "pool") if names else None

    def of_severity(self, severity: Severity) -> Routed:
        """Who takes the severity, else the fallback, else nobody."""
        taking = tuple(one.receiver for one in self.subscriptions if severity in one.severities)
        if taking or severity == "notice":
            return self._routed(taking, severity, f"receivers that take {severity}s", "severity")
        if names := self._existing(() if self.fallback is None else (self.fallback,)):
            why = f"fallback_receiver: no receiver takes {severity}s"
            return self._routed(names, severity, why, "fallback")
        why = f"no receiver takes {severity}s, and there is no fallback_receiver"
        return Routed((), why, decided_by="nobody")

    def _existing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those that exist, each once: a rule may name receivers of another configuration."""
        every = self.names
        return tuple(dict.fromkeys(name for name in names if name in every))

    def _routed(
        self,
        names: tuple[str, ...],
        severity: Severity,
        why: str,
        decided_by: DecidedBy,
        number: int | None = None,
    ) -> Routed:
        if severity == "notice":
            taking = {one.receiver for one in self.subscriptions if severity in one.severities}
            names = tuple(name for name in names if name in taking)
        route = None if number is None else self.routes[number - 1]
        repeat = DEFAULT_REPEAT_SECONDS[severity]
        if route is not None and route.repeat_seconds is not None:
            repeat = route.repeat_seconds or None
        return Routed(names, why, repeat, decided_by, number)


def has_default_thresholds(page: Mapping[str, Any] | None) -> bool:
    """Whether every threshold that the page was judged by is a shipped one, no past's."""
    evidence = (page or {}).get("evidence") or {}
    values = [
        str(entry.get("value"))
        for name, entry in evidence.items()
        if name.endswith("_calibration") and entry.get("value") is not None
    ]
    return bool(values) and all(value.startswith(_DEFAULT_THRESHOLD) for value in values)
