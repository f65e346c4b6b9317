"""Verifications beside a tick: taken up from the store, and written with what the tick decided."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import polars as pl

from driftwatch.errors import UsageError
from driftwatch.model import Incident, TargetKey, Transition
from driftwatch.notify.follow_up import follow_up
from driftwatch.pipeline.minutes import MinutesInMemory, StoredMinutes
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import Outcome, State
from driftwatch.service.replayed_rows import kept_advices
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
from driftwatch.store.advice import VerificationRow
from driftwatch.store.store import Store
from driftwatch.verify.verification import VERIFICATION, Verification


@dataclass(frozen=True, slots=True)
class Changes:
    """What a tick says of verifications, to be committed with it.

    Attributes:
        state: after the tick.
        found: opened, looked at or closed.
        kept: the same as rows of the store.
        memory: what the next process must know.
        told: follow-ups: the verdict on a change that an incident's page had advised, the first
            one of each incident.
        failed: the traceback of what must not happen, each.
    """

    state: Verifying
    found: tuple[Verification, ...]
    kept: list[VerificationRow]
    memory: Mapping[str, bytes]
    told: tuple[Transition, ...] = ()
    failed: tuple[str, ...] = ()

    def noted(self, incidents: Mapping[str, Incident]) -> dict[str, Incident]:
        """Open incidents, with the verification of the change that their page had advised."""
        return {key: _noted(incident, self.found) for key, incident in incidents.items()}


# of several changes that one page had advised (its pool's servers) the page says the gravest
_GRAVEST = ("open", "INCONCLUSIVE", "PASS", "FAIL")


def _noted(incident: Incident, found: Iterable[Verification]) -> Incident:
    if incident.page is None:
        return incident
    there = incident.page.get("verification")
    about = [VERIFICATION.document(one) for one in found if one.incident_id == incident.id]
    about = [one for one in about if there is None or _grave(one) >= _grave(there)]
    if not about:
        return incident
    return replace(incident, page={**incident.page, "verification": max(about, key=_grave)})


def _grave(document: Mapping[str, Any]) -> int:
    return _GRAVEST.index(document["verdict"])


def _follow_up(incident: Incident, found: Sequence[Verification]) -> Transition | None:
    """The verdict that people are told of; None where they were told of one before."""
    before = (incident.page or {}).get("verification")
    noted = _noted(incident, found)
    if noted.page is None or (before is not None and before["verdict"] != "open"):
        return None
    document = noted.page["verification"]
    at = datetime.fromisoformat(document["closed_at"])
    return Transition(replace(noted, page=follow_up(noted.page, "verified", at)), "verified", at)


_STATES = ("firing", "resolved")


class Verifier:
    """Verifications of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._state = verifying_from(store)
        self._written: Verifying | None = self._state
        self._past = StoredMinutes(store)

    def after(
        self,
        outcome: Outcome,
        state: State,
        plan: Plan,
        earlier: pl.DataFrame | None = None,
    ) -> Changes:
        """What the minutes of a tick say; nothing is kept before :meth:`committed`."""
        if outcome.rows.is_empty():
            return Changes(self._state, (), [], {})
        past = MinutesInMemory(minutes(outcome.rows), self._past)
        stored = StoredAdvice(self._store, lambda since: self._store.incidents(since=since))
        own = kept_advices(outcome.advices)

        def advised(key: TargetKey, pool: str, since: datetime, until: datetime) -> list[Advised]:
            of_tick = [one for one in advised_in(own, key, pool) if since <= one.at < until]
            return [*stored(key, pool, since, until), *of_tick]

        # those of the state are of the last minutes alone
        seen = outcome.scrapes if earlier is None else pl.concat([earlier, outcome.scrapes])
        failed: list[str] = []
        try:
            following, found = step(
                self._state,
                with_peaks(outcome.rows, seen),
                surroundings(plan, outcome.targets or state.targets, past, advised, failed.append),
            )
            told = self._follow_ups(found, state, outcome)
        except Exception:  # noqa: BLE001 - pages do not wait for verifications
            return Changes(self._state, (), [], {}, failed=(*failed, traceback.format_exc()))
        memory = verifying_memory(self._written, following)
        return Changes(following, found, kept_verifications(found), memory, told, tuple(failed))

    def _follow_ups(
        self, found: Sequence[Verification], state: State, outcome: Outcome
    ) -> tuple[Transition, ...]:
        closed: dict[str, list[Verification]] = {}
        for one in found:
            if one.closed_at is not None and one.incident_id is not None:
                closed.setdefault(one.incident_id, []).append(one)
        here = {t.incident.id: t.incident for t in outcome.transitions if t.event in _STATES}
        here |= {one.id: one for one in state.incidents.values()}
        told = []
        for id_, verdicts in sorted(closed.items()):
            incident = here.get(id_) or self._kept(id_)
            if incident is None or incident.page is None:
                continue
            if (transition := _follow_up(incident, verdicts)) is not None:
                told.append(transition)
        return tuple(told)

    def _kept(self, incident_id: str) -> Incident | None:
        try:
            return self._store.incident(incident_id)
        except UsageError:  # forgotten since
            return None

    def committed(self, changes: Changes) -> None:
        """The tick is in the store: the next one goes on from there."""
        self._state = self._written = changes.state
