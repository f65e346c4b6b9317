"""Which receivers an incident is sent to, and why. Pure.

The first of these that names a receiver decides: the rule's ``receivers``, the pool's
``receivers``, the severities that receivers take. If none of them names a receiver, nobody is told:
:attr:`Routed.reaches_nobody`. A notice goes only to receivers that take notices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from driftwatch.model import Incident, Severity

# until somebody acknowledges it; a ticket and a notice wait
REPEAT_SECONDS: Mapping[Severity, float | None] = {
    "page": 4 * 3_600.0,
    "ticket": None,
    "notice": None,
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a receiver takes."""

    receiver: str  # its name
    # used where no rule or pool names receivers; a notice needs `notice` here
    severities: tuple[Severity, ...] = ("page", "ticket")


@dataclass(frozen=True, slots=True)
class Routed:
    """Who is told of an incident."""

    receivers: tuple[str, ...]  # by name
    why: str  # what decided, in words
    repeat_seconds: float | None = None  # between two pages until acknowledged, None = no repeat
    # no receiver could be found for a page or ticket; a notice may go to nobody
    reaches_nobody: bool = False


@dataclass(frozen=True, slots=True)
class Routes:
    """The configuration's routing."""

    subscriptions: tuple[Subscription, ...] = ()  # every receiver there is
    of_rules: Mapping[str, Collection[str]] = field(default_factory=dict)  # rule id → receivers
    of_pools: Mapping[str, Collection[str]] = field(default_factory=dict)  # pool → receivers

    @property
    def names(self) -> tuple[str, ...]:
        """Every receiver there is."""
        return tuple(one.receiver for one in self.subscriptions)

    def of(self, incident: Incident) -> Routed:
        """Who is told of an incident."""
        severity, pool = incident.severity, incident.target.get("pool", "")
        for names, why in (
            (self.of_rules.get(incident.rule, ()), f"receivers of rule {incident.rule}"),
            (self.of_pools.get(pool, ()), f"receivers of pool {pool}"),
        ):
            if existing := self._existing(names):
                return self._routed(existing, severity, why)
        return self.of_severity(severity)

    def of_severity(self, severity: Severity) -> Routed:
        """Who takes the severity, else nobody."""
        taking = self._taking(severity)
        if taking or severity == "notice":
            return self._routed(taking, severity, f"receivers that take {severity}s")
        return Routed((), f"no receiver takes {severity}s", reaches_nobody=True)

    def _taking(self, severity: Severity) -> tuple[str, ...]:
        return tuple(one.receiver for one in self.subscriptions if severity in one.severities)

    def _existing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those that exist, each once: a rule may name receivers of another configuration."""
        every = self.names
        return tuple(dict.fromkeys(name for name in names if name in every))

    def _routed(self, names: tuple[str, ...], severity: Severity, why: str) -> Routed:
        if severity == "notice":
            names = tuple(name for name in names if name in self._taking(severity))
        return Routed(names, why, REPEAT_SECONDS[severity])
