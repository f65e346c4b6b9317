"""Log lines of a tick: what people are told, and what must not happen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from driftwatch.model import Transition
from driftwatch.pipeline.question import TargetAdvice


def note_told(
    log: Any,
    happened: Iterable[Transition],
    replayed: Iterable[TargetAdvice],
    verifications_failed: Iterable[str],
) -> None:
    """Log what a tick told people, and the tracebacks of what failed on the way."""
    for answer in replayed:
        if answer.failed is not None:
            log.error("replay failed", target=answer.target.key.text, why=answer.failed)
    for traceback in verifications_failed:
        log.error("verification failed", why=traceback)
    for transition in happened:
        page = transition.incident.page or {}
        log.info(
            transition.event,
            id=transition.incident.id,
            rule=transition.incident.rule,
            summary=page.get("summary"),
        )
