"""One minute of the life cycle without changing its input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.life_cycle import Observation, step


def advance(
    before: Mapping[str, Incident], minute_end: datetime, observations: Iterable[Observation]
) -> tuple[dict[str, Incident], tuple[Transition, ...]]:
    after = dict(before)
    transitions = step(after, minute_end, observations)
    return {key: after[key] for key in sorted(after)}, tuple(transitions)
