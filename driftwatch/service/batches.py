"""Batches: a fixed set of pools each; a tick of one is a transaction, whichever process makes it.

A tick asks no source and sends nothing. It evaluates what was gathered, and commits its decisions
together with the planned deliveries. A process keeps only a cache of what the store has.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from driftwatch.collect.schema import KEY, Collected, keys_frame
from driftwatch.detect.references import changes_of
from driftwatch.incidents.follow_up import sent_page
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.planner import MessageAbout, plan_deliveries
from driftwatch.incidents.planner import Plan as DeliveryPlan
from driftwatch.model import Target, TargetKey
from driftwatch.notify.page import Acknowledgement
from driftwatch.pipeline.evaluation import Ask
from driftwatch.pipeline.latest import latest_of
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import target_advice
from driftwatch.pipeline.roster import TickInput
from driftwatch.pipeline.state import Outcome, State
from driftwatch.pipeline.stored_state import memory_of, reports_memory, state_from
from driftwatch.pipeline.tick import evaluate
from driftwatch.pipeline.verifications import VerifiedChanges, verify_changes
from driftwatch.receivers.registry import Receiver, without_ignored
from driftwatch.service.sources import OwnPools
from driftwatch.settings.receivers import BY_LABELS
from driftwatch.store.database import repeated_after_conflict
from driftwatch.store.latest import Latest
from driftwatch.store.progress import BatchProgress
from driftwatch.store.store import Store, TickRecord

# After a restart, simulate advice only for the last ten minutes: a simulation takes a second or
# two, and a tick that takes long looks like a dead process.
SIMULATION_LOOKBACK = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class TickContext:
    """Settings of a tick."""

    plan: Plan
    receivers: Sequence[Receiver]
    ask: Ask = target_advice  # for advice
    # how far back questions are simulated; None = all are
    simulates: timedelta | None = SIMULATION_LOOKBACK


@dataclass(frozen=True, slots=True)
class TickResult:
    """What a tick did."""

    outcome: Outcome
    happened: tuple[Transition, ...]  # events for receivers
    failed: tuple[str, ...]  # tracebacks of verifications


class Batch:
    """One batch as it was at its last commit.

    Args:
        store: whole; the batch reads and writes its part.
        of: how many batches there are.

    Attributes:
        progress: as it was at the last commit.
        state: from which the next tick continues.
    """

    def __init__(self, store: Store, now: datetime, number: int = 0, of: int = 1) -> None:
        self.store = store.of_batch(number, of)
        self.progress = self.store.batch_progress() or BatchProgress(number, of)
        self._in_force = store.baselines_in_force()
        self._traces = store.traces()
        self._plan: Plan | None = None  # of the last tick
        self.state = state_from(self.store, now)

    def is_current(self) -> bool:
        """No other process has committed a tick of it."""
        stored = self.store.batch_progress()
        return stored is None or stored.is_same_commit(self.progress)

    def own_pools(self, plan: Plan) -> OwnPools | None:
        """Its pools; None where it has all."""
        of = self.progress.of
        return None if of == 1 else OwnPools(self.progress.number, of, plan)

    def targets_by_source(self) -> dict[str, dict[TargetKey, Target]]:
        """Its targets by the source that listed them last."""
        found: dict[str, dict[TargetKey, Target]] = {}
        for key, name in self.state.origins.items():
            if key in self.state.targets:
                found.setdefault(name, {})[key] = self.state.targets[key]
        return found

    def tick(self, given: TickInput, now: datetime, context: TickContext) -> TickResult:
        """Evaluate what was gathered, and commit all that it decides, or nothing.

        Raises StoreError: ``tick-lost`` where another tick of the batch was committed meanwhile.
        """
        began, plan = time.monotonic(), context.plan
        before = self._with_current_baselines(self.state)
        ready = replace(
            before,
            collected_until=given.collected_until,
            simulates_after=None if context.simulates is None else now - context.simulates,
        )
        state, outcome = evaluate(ready, given, plan, self.store, context.ask)
        verified = self._verified(state, outcome, plan)
        state = replace(
            state,
            verifications=verified.state,
            incidents={key: verified.on_page(one) for key, one in state.incidents.items()},
        )
        outcome = replace(outcome, transitions=verified.on_resolves(outcome.transitions))
        happened = (*outcome.transitions, *verified.transitions)
        learnt, gone = changes_of(before.detection.references, state.detection.references)
        latest = self._latest(outcome, before, state, plan)
        progress = self._progress(state, now, time.monotonic() - began, given.incomplete)
        memory = memory_of(state, self.state)
        if self.progress.number == 0:  # the sources hand every batch all reports
            memory |= reports_memory(plan)
        record = TickRecord(
            until=now,
            minutes=outcome.minutes,
            references=learnt,
            references_gone=gone,
            advices=outcome.advices,
            verifications=verified.news,
            latest=latest,
            memory=memory,
            progress=(self.progress, progress),
        )
        incidents = commit_planned(
            *(self.store, plan, context.receivers, record),
            *(before.incidents, state.incidents, happened),
        )
        self.state, self._plan = replace(state, incidents=incidents), plan
        self.progress = replace(progress, version=self.progress.version + 1)
        if latest is not None:
            self._traces = {one.pool: trace for one, trace in latest.pools}
        return TickResult(outcome, happened, verified.failed)

    def _verified(self, state: State, outcome: Outcome, plan: Plan) -> VerifiedChanges:
        """Verdicts on changes by the minutes of the tick."""
        before = state.verifications
        if plan is not self._plan:  # settings may be others
            before = replace(before, last_read={})
        changed = [t.incident for t in outcome.transitions if t.event in ("firing", "resolved")]
        incidents = [*changed, *state.incidents.values()]
        targets = outcome.targets or state.targets
        return verify_changes(
            before, outcome.minutes, outcome.advices, incidents, targets, plan, self.store
        )

    def _progress(
        self, state: State, now: datetime, seconds: float, incomplete: str | None
    ) -> BatchProgress:
        until = state.evaluated_until
        return replace(
            self.progress,
            evaluated_until=None if until is None else until.astimezone(UTC),
            ticked_at=now.astimezone(UTC),
            targets=len(state.targets),
            seconds=round(seconds, 3),
            incomplete=incomplete,
        )

    def _latest(self, outcome: Outcome, before: State, state: State, plan: Plan) -> Latest | None:
        """Servers and pools as of the newest minute; None: the tick evaluated no minute."""
        until = state.evaluated_until
        if until is None or until == before.evaluated_until:
            return None
        return latest_of(outcome.rows, state.targets, plan, self._traces, until)

    def _with_current_baselines(self, state: State) -> State:
        """The state with the baselines in force; read anew where a person changed them."""
        in_force = self.store.baselines_in_force()
        if in_force == self._in_force:
            return state
        self._in_force = in_force
        return replace(state, baselines=self.store.baselines())


class ListedPools:
    """The pools of listed targets, looked up once for all batches."""

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._targets: Mapping[TargetKey, Target] = {}

    def of(self, collected: Iterable[Collected], plan: Plan) -> Mapping[TargetKey, Target]:
        """Every listed target, with its pool."""
        listed = {key: target for one in collected for key, target in one.targets.items()}
        same = self._plan is not None and plan.has_pools_of(self._plan)
        self._plan, self._targets = plan, plan.assign(listed, self._targets if same else None)
        return self._targets


def of_batch(
    own: OwnPools, given: TickInput, state: State, pools: Mapping[TargetKey, Target]
) -> TickInput:
    """The answers about the pools of one batch.

    ``pools``: every target that is listed, with its pool.
    """
    answers: dict[str, Collected] = {}
    for name, one in given.answers.items():
        listed = {k: t for k, t in one.targets.items() if own.has_pool(pools[k].pool or "")}
        keys = listed.keys() | (state.targets.keys() - one.targets.keys())
        scrapes = one.scrapes.join(keys_frame(keys), on=KEY, how="semi", maintain_order="left")
        answers[name] = replace(one, targets=listed, scrapes=scrapes)
    return replace(given, answers=answers)


@repeated_after_conflict
def commit_planned(
    store: Store,
    configured: Plan,
    receivers: Sequence[Receiver],
    tick: TickRecord,
    before: Mapping[str, Incident],
    after: Mapping[str, Incident],
    happened: Sequence[Transition] = (),
) -> Mapping[str, Incident]:
    """Plan what is to be sent now, and commit it with a tick; other batches plan before or after.

    ``before``, ``after``: key → open incident before and after the tick; acknowledgements are read
    from the store, where people write them; ``happened``: each incident with its page.
    Returns the open incidents as committed.
    """
    with store.one_transaction():
        plan = _planned(store, configured, receivers, tick, after, happened)
        store.commit_tick(
            replace(
                tick,
                incidents=None
                if tick.incidents is None
                else _without_stored_pages(plan.open_incidents, before),
                transitions=plan.transitions,
                deliveries=without_ignored((*plan.deliveries, *tick.deliveries), receivers),
                by_labels=[one.name for one in receivers if one.form in BY_LABELS],
                planned_actions=plan.planned_actions,
            )
        )
    return plan.open_incidents


@repeated_after_conflict
def plan_actions(
    store: Store, configured: Plan, receivers: Sequence[Receiver], now: datetime
) -> bool:
    """Tell receivers what people did, between two ticks; whether there was anything.

    ``store``: whole. Incidents stay as they are: only a tick writes them.
    """
    if not store.unplanned_actions():
        return False
    with store.one_transaction():
        every = store.open_incidents()
        tick = TickRecord(now, incidents=None)
        commit_planned(store, configured, receivers, tick, every, every)
    return True


def _planned(
    store: Store,
    configured: Plan,
    receivers: Sequence[Receiver],
    tick: TickRecord,
    after: Mapping[str, Incident],
    happened: Sequence[Transition],
) -> DeliveryPlan:
    now = tick.until
    acknowledged = store.acknowledgements()
    return plan_deliveries(
        [replace(t, incident=_acknowledged(t.incident, acknowledged)) for t in happened],
        configured.routes_to(one.subscription for one in receivers),
        [one for one in store.silences() if one.ends_at > now],
        now,
        open_incidents={key: _acknowledged(one, acknowledged) for key, one in after.items()},
        records=store.outbox_records(also={t.incident.id for t in happened}),
        # they may be of other batches' incidents: receivers hear of them between ticks
        actions=store.unplanned_actions() if store.batch is None else (),
        render=_render,
    )


def _render(incident: Incident, about: MessageAbout) -> Any:
    """The payload of a message; where rendering fails, the page as it was first made."""
    try:
        return sent_page(incident, about)
    except Exception as error:  # noqa: BLE001 - see above
        structlog.get_logger().error(
            "page sent as first made",
            id=incident.id,
            about=about.event,
            reason=f"{type(error).__name__}: {error}",
        )
        return incident.page


def _without_stored_pages(
    incidents: Mapping[str, Incident], before: Mapping[str, Incident]
) -> list[Incident]:
    """The incidents to write: a page that is stored stays where the tick made none."""
    return [
        one.model_copy(update={"page": None})
        if key in before and (before[key].id, before[key].page) == (one.id, one.page)
        else one
        for key, one in incidents.items()
    ]


def _acknowledged(incident: Incident, by: Mapping[str, Acknowledgement]) -> Incident:
    return incident.model_copy(update={"acknowledgement": by.get(incident.id)})
