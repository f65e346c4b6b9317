"""One pool, one answer: what a page says of a pool's settings, its twins' pages say too. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from driftwatch.model import Finding, Incident, Recommendation, TargetKey, Transition
from driftwatch.notify.page import EVERY, recommendation_of


def answer_of_pool(
    pool: Collection[TargetKey],
    at: datetime,
    told: Mapping[str, Finding],
    firing: Sequence[Transition],
    before: Iterable[Incident],
) -> Recommendation | None:
    """The answer that a twin's page gives already; None where none does.

    An answer holds until the replay would be asked again: the question of a minute later is the
    same, and another answer to it would be chance.

    Args:
        pool: servers that are asked about together; empty = one server by itself.
        at: end of the minute that asks.
        told: incident id → finding of the pages of these minutes that have their answer.
        firing: these pages.
        before: open incidents with their pages.
    """
    for one in firing:
        found = told.get(one.incident.id)
        if found is None or found.target.key not in pool or not at - EVERY < one.at <= at:
            continue
        if found.recommendation is not None and found.recommendation.basis is not None:
            return found.recommendation
    for incident in before:
        page = incident.page
        if page is None or incident.state != "firing" or _server(incident) not in pool:
            continue
        said = page.get("recommendation")
        decided = datetime.fromisoformat(page["times"]["evaluated_at"])
        if said is not None and said.get("basis") is not None and at - EVERY < decided <= at:
            return recommendation_of(said)
    return None


def _server(incident: Incident) -> TargetKey | None:
    labels = incident.target
    if not labels.get("instance"):
        return None
    return TargetKey(labels["instance"], labels.get("engine", "0"))
