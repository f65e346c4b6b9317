"""Pages and tickets that no receiver gets: each once in the log, the open ones as a number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from driftwatch.incidents.routing import Routes
from driftwatch.model import Incident, Transition


def log_unrouted(
    routes: Routes,
    transitions: Iterable[Transition],
    open_incidents: Mapping[str, Incident],
    log: Any,
) -> int:
    """How many open incidents fire and reach nobody; those that fired just now are logged.

    ``transitions``: of this tick; ``open_incidents``: key → incident after it.
    """
    for transition in transitions:
        if transition.event == "firing":
            routed = routes.of(transition.incident)
            if routed.reaches_nobody:
                incident = transition.incident
                log.error("reaches nobody", id=incident.id, rule=incident.rule, why=routed.why)
    firing = [one for one in open_incidents.values() if one.state == "firing"]
    return sum(routes.of(one).reaches_nobody for one in firing)
