"""Verifications and the store: what was advised, what a restart needs, and news."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from driftwatch.baselines.in_force import fingerprint
from driftwatch.documents import Codec, to_json
from driftwatch.errors import DocumentError, UsageError
from driftwatch.incidents.follow_up import follow_up
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import TargetKey
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import Outcome, State
from driftwatch.pipeline.stored_state import advice_rows
from driftwatch.service.changes import Running
from driftwatch.service.verifications import (
    OpenVerification,
    PastAdvice,
    Started,
    Surroundings,
    VerificationState,
    step,
)
from driftwatch.signals.minutes import minutes
from driftwatch.store.advice import AdviceRow
from driftwatch.store.store import Store
from driftwatch.verify.verification import VERIFICATION, Verification

MEMORY = "tick.verifying"


@dataclass(frozen=True, slots=True)
class VerificationMemory:
    """The state as it is stored."""

    running: tuple[tuple[TargetKey, Running], ...]
    started: tuple[tuple[TargetKey, Started], ...]
    opened: tuple[tuple[TargetKey, OpenVerification], ...]


_CODEC = Codec(VerificationMemory, 3)


def verification_memory(
    before: VerificationState | None, state: VerificationState
) -> dict[str, bytes]:
    """What the next process needs; nothing where it was written last."""
    if before == state:
        return {}
    every: Any = (state.running, state.started, state.opened)
    memory = VerificationMemory(*(tuple(sorted(each.items())) for each in every))
    return {MEMORY: to_json(_CODEC.document(memory)).encode()}


def verification_state_from(store: Store) -> VerificationState:
    """What the last process left; nothing in a store of an earlier release, or without a tick."""
    stored = store.remembered(MEMORY)
    try:
        memory = None if stored is None else _CODEC.value(json.loads(stored))
    except DocumentError:
        memory = None
    if memory is None:
        return VerificationState()
    return VerificationState(dict(memory.running), dict(memory.started), dict(memory.opened))


def answers_for(rows: Iterable[AdviceRow], key: TargetKey, pool: str) -> list[PastAdvice]:
    """Stored answers that are about a target or another of its pool."""
    return [
        PastAdvice(
            one.instance,
            one.engine,
            one.pool,
            one.at,
            _with_targets(one.document),
            one.incident_id,
        )
        for one in rows
        if (one.instance, one.engine) == key or one.pool == pool
    ]


def _with_targets(document: Mapping[str, Any]) -> dict[str, Any]:
    """The recommendation, its forecast with the targets and the load that it was made for."""
    recommendation = dict(document.get("recommendation") or {})
    if recommendation.get("forecast"):
        load = "offered_requests_per_second"
        beside = {"slo": document.get("slo"), load: document.get(load)}
        recommendation["forecast"] = {**recommendation["forecast"], **beside}
    return recommendation


@dataclass(frozen=True, slots=True)
class VerificationNews:
    """What a tick says of verifications, to be committed with it."""

    state: VerificationState
    verifications: tuple[Verification, ...] = ()  # opened, looked at or closed
    memory: dict[str, bytes] = field(default_factory=dict)
    # the verdict on a change that an incident's page had advised, the first one of each incident
    transitions: tuple[Transition, ...] = ()
    failed: tuple[str, ...] = ()

    def on_pages(self, incidents: Mapping[str, Incident]) -> dict[str, Incident]:
        """Open incidents, with the verification of the change that their page had advised."""
        return {key: _on_page(one, self.verifications) for key, one in incidents.items()}


# of several changes that one page had advised (its pool's servers) the page says the gravest
_GRAVEST = ("open", "INCONCLUSIVE", "PASS", "FAIL")


def _grave(document: Mapping[str, Any]) -> int:
    return _GRAVEST.index(document["verdict"])


def _on_page(incident: Incident, verifications: Iterable[Verification]) -> Incident:
    if incident.page is None:
        return incident
    there = incident.page.get("verification")
    about = [VERIFICATION.document(v) for v in verifications if v.incident_id == incident.id]
    about = [one for one in about if there is None or _grave(one) >= _grave(there)]
    if not about:
        return incident
    return replace(incident, page={**incident.page, "verification": max(about, key=_grave)})


def _follow_up(incident: Incident, verifications: Sequence[Verification]) -> Transition | None:
    """The verdict that people are told of; None where they were told of one before."""
    before = (incident.page or {}).get("verification")
    after = _on_page(incident, verifications)
    if after.page is None or (before is not None and before["verdict"] != "open"):
        return None
    at = datetime.fromisoformat(after.page["verification"]["closed_at"])
    return Transition(replace(after, page=follow_up(after.page, "verified", at)), "verified", at)


class Verifier:
    """The verifications of one store, tick by tick."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._state = verification_state_from(store)
        self._plan: Plan | None = None  # by which settings the state was read

    def after(self, outcome: Outcome, state: State, plan: Plan) -> VerificationNews:
        """What the minutes of a tick say; nothing is kept before :meth:`committed`.

        Args:
            outcome: of the tick; ``state`` is that after it.
        """
        if outcome.rows.is_empty():
            return VerificationNews(self._state)
        if plan is not self._plan:
            self._plan, self._state = plan, replace(self._state, read={})
        own, failed = advice_rows(outcome.advices), list[str]()

        def advised(
            key: TargetKey, pool: str, since: datetime, until: datetime
        ) -> list[PastAdvice]:
            of_tick = (one for one in own if since <= one.at < until)
            return answers_for([*self._store.advices(since, until), *of_tick], key, pool)

        try:
            around = Surroundings(
                PastMinutes(minutes(outcome.rows), self._store),
                advised,
                outcome.targets or state.targets,
                lambda target: fingerprint(target, plan),
                plan.slo_of,
                failed.append,
            )
            rows = outcome.rows.hstack(outcome.minutes.select("running_requests_max"))
            following, verifications = step(self._state, rows, around)
            transitions = self._follow_ups(verifications, state, outcome)
        except Exception:  # noqa: BLE001 - pages do not wait for verifications
            return VerificationNews(self._state, failed=(*failed, traceback.format_exc()))
        memory = verification_memory(self._state, following)
        return VerificationNews(following, verifications, memory, transitions, tuple(failed))

    def _follow_ups(
        self, verifications: Sequence[Verification], state: State, outcome: Outcome
    ) -> tuple[Transition, ...]:
        closed: dict[str, list[Verification]] = {}
        for one in verifications:
            if one.closed_at is not None and one.incident_id is not None:
                closed.setdefault(one.incident_id, []).append(one)
        changed = [t.incident for t in outcome.transitions if t.event in ("firing", "resolved")]
        here = {one.id: one for one in (*changed, *state.incidents.values())}
        transitions = []
        for id_, verdicts in sorted(closed.items()):
            with suppress(UsageError):  # one that was forgotten since
                incident = here.get(id_) or self._store.incident(id_)
                transitions.append(_follow_up(incident, verdicts))
        return tuple(one for one in transitions if one is not None)

    def committed(self, news: VerificationNews) -> None:
        """The tick is in the store: the next one goes on from there."""
        self._state = news.state
