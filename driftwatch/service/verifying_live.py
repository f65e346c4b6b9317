"""Verifications beside a tick: taken up from the store, and written with what the tick decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from driftwatch.model import Incident, TargetKey
from driftwatch.service.past_minutes import SeenMinutes, StoredMinutes
from driftwatch.service.plan import Plan
from driftwatch.service.replayed_rows import kept_advices
from driftwatch.service.state import Outcome, State
from driftwatch.service.verifying import Advised, Verifying, step, with_peaks
from driftwatch.service.verifying_store import (
    StoredAdvice,
    advised_in,
    kept_verifications,
    surroundings,
    verifying_from,
    verifying_memory,
)
from driftwatch.signals.minutes import minutes
from driftwatch.store.advised import KeptVerification
from driftwatch.store.store import Store
from driftwatch.verify.documents import to_document
from driftwatch.verify.verification import Verification


@dataclass(frozen=True, slots=True)
class Changes:
    """What a tick says of verifications, to be committed with it.

    Attributes:
        state: after the tick.
        found: opened, looked at or closed.
        kept: the same as rows of the store.
        memory: what the next process must know.
    """

    state: Verifying
    found: tuple[Verification, ...]
    kept: list[KeptVerification]
    memory: Mapping[str, bytes]

    def noted(self, incidents: Mapping[str, Incident]) -> dict[str, Incident]:
        """Open incidents, with the verification of the change that their page had advised."""
        about = {one.incident_id: one for one in self.found if one.incident_id is not None}
        return {
            key: replace(
                incident,
                page={**incident.page, "verification": to_document(about[incident.id])},
            )
            if incident.id in about and incident.page is not None
            else incident
            for key, incident in incidents.items()
        }


class Verifier:
    """Verifications of one store.

    Args:
        store: with what the last process left.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._state = verifying_from(store)
        self._written: Verifying | None = self._state
        self._past = StoredMinutes(store)

    def after(self, outcome: Outcome, state: State, plan: Plan) -> Changes:
        """What the minutes of a tick say; nothing is kept before :meth:`committed`."""
        if outcome.rows.is_empty():
            return Changes(self._state, (), [], {})
        past = SeenMinutes(minutes(outcome.rows), self._past)
        stored = StoredAdvice(self._store, lambda since: self._store.incidents(since=since))
        own = kept_advices(outcome.replayed)

        def advised(key: TargetKey, pool: str, since: datetime, until: datetime) -> list[Advised]:
            of_tick = [one for one in advised_in(own, key, pool) if since <= one.at < until]
            return [*stored(key, pool, since, until), *of_tick]

        following, found = step(
            self._state,
            with_peaks(outcome.rows, state.scrapes),
            surroundings(plan, outcome.targets or state.targets, past, advised),
        )
        memory = verifying_memory(self._written, following)
        return Changes(following, found, kept_verifications(found), memory)

    def committed(self, changes: Changes) -> None:
        """The tick is in the store: the next one goes on from there."""
        self._state = self._written = changes.state
