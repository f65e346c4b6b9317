"""One pool, one answer: what a page says of a pool's settings, its twins' pages say too. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from driftwatch.model import Finding, Incident, Recommendation, TargetKey, Transition
from driftwatch.notify.page import EVERY, recommendation_of


def answer_of_pool(
    pool: Collection[TargetKey],
    at: datetime,
    told: Mapping[str, Finding],
    firing: Sequence[Transition],
    before: Iterable[Incident],
    settings: Mapping[str, Any],
) -> Recommendation | None:
    """The answer that a twin's page gives already; None where none does.

    An answer holds until the replay would be asked again: the question of a minute later is the
    same, and another answer to it would be chance. A change from another value than is set now has
    been made meanwhile, or was never of this server.

    Args:
        pool: servers that are asked about together; empty = one server by itself.
        at: end of the minute that asks.
        told: incident id → finding of the pages of these minutes that have their answer.
        firing: these pages.
        before: open incidents with their pages.
        settings: today's, by name; an unknown one contradicts nothing.
    """
    for one in firing:
        found = told.get(one.incident.id)
        if found is None or found.target.key not in pool or not at - EVERY < one.at <= at:
            continue
        if _holds(found.recommendation, settings):
            return found.recommendation
    for incident in before:
        page = incident.page
        if page is None or incident.state != "firing" or _server(incident) not in pool:
            continue
        document = page.get("recommendation")
        answer = None if document is None else recommendation_of(document)
        decided = datetime.fromisoformat(page["times"]["evaluated_at"])
        if _holds(answer, settings) and at - EVERY < decided <= at:
            return answer
    return None


def _holds(answer: Recommendation | None, settings: Mapping[str, Any]) -> bool:
    """Whether an answer was computed, and changes the settings from what they are now."""
    if answer is None or answer.basis is None:
        return False
    for move in answer.moves:
        today = settings.get(move.knob)
        if today is not None and move.from_value is not None and today != move.from_value:
            return False
    return True


def _server(incident: Incident) -> TargetKey | None:
    labels = incident.target
    if not labels.get("instance"):
        return None
    return TargetKey(labels["instance"], labels.get("engine", "0"))
