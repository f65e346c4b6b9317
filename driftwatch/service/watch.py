"""Watch: the pools of one batch, tick by tick; what is remembered, and commits.

It asks no source and sends nothing: it takes what was gathered, evaluates it, and commits what that
decides with what is to be sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.gpus import GPU_KEY
from driftwatch.collect.schema import Collected
from driftwatch.detect.references import changes_of
from driftwatch.incidents.incident import Transition
from driftwatch.model import Reason, Recommendation, TargetKey
from driftwatch.pipeline.evaluation import Ask
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import Moment, TargetAdvice, target_advice
from driftwatch.pipeline.roster import Sources
from driftwatch.pipeline.server_reports import reports_memory
from driftwatch.pipeline.state import Outcome, State
from driftwatch.pipeline.stored_state import (
    advice_rows,
    memory_of,
    state_from,
)
from driftwatch.pipeline.tick import evaluate
from driftwatch.pipeline.verifications import Verified, open_by_target, verify_changes
from driftwatch.receivers.registry import Receiver
from driftwatch.recommend.advice import Advice
from driftwatch.service.planning import commit_planned
from driftwatch.store.advice import AdviceRow
from driftwatch.store.minute_columns import stored_rows
from driftwatch.store.progress import BatchProgress
from driftwatch.store.store import Store, TickRecord

# After a restart, simulate advice only for the last ten minutes: a simulation takes a second or
# two, and a tick that takes long looks like a dead process.
SIMULATION_LOOKBACK = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class TickInput:
    """What a tick goes on."""

    collected: Sequence[Collected]
    collected_until: Mapping[str, datetime]  # per source name, up to where it was asked
    complete: datetime  # everything before it has been collected, but for late sources
    sources: Sources
    # minutes before it stay without a verdict; None = those before the last six hours
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class TickContext:
    """What a tick decides with."""

    plan: Plan
    receivers: Sequence[Receiver]
    ask: Ask = target_advice  # for advice
    # how far back questions are simulated; None = all are
    simulates: timedelta | None = SIMULATION_LOOKBACK


@dataclass(frozen=True, slots=True)
class TickResult:
    """What a tick did."""

    outcome: Outcome
    happened: tuple[Transition, ...]  # what receivers are told of
    failed: tuple[str, ...]  # tracebacks of verifications


class Watch:
    """One batch as it was at its last commit: a cache of what is stored.

    Args:
        store: of the batch.
        progress: of the batch, read before everything else; None = all pools are one batch.
        goes_on: another process goes on from the store: it needs the detectors' memory.

    Attributes:
        progress: as it was at the last commit.
    """

    def __init__(
        self,
        store: Store,
        plan: Plan,
        now: datetime,
        progress: BatchProgress | None = None,
        *,
        goes_on: bool = True,
    ) -> None:
        self.store, self._goes_on = store, goes_on
        self.progress = progress or store.batch_progress() or BatchProgress(0, 1)
        self._in_force = store.baselines_in_force()
        self._plan: Plan | None = None  # of the last tick
        self.state = state_from(store, now)

    def tick(
        self,
        given: TickInput,
        now: datetime,
        context: TickContext,
        incomplete: str | None = None,
    ) -> TickResult:
        """Evaluate what was given, and commit all that it decides, or nothing.

        ``incomplete``: why it knows nothing of some source.

        Raises StoreError: ``tick-lost`` where another tick of the batch was committed meanwhile.
        """
        began = time.monotonic()
        plan, receivers = context.plan, context.receivers
        before = self._with_current_baselines(self.state)
        if self.store.batch is not None:
            before = self._taken_over(before, given)
        state, outcome = evaluate(
            replace(
                before,
                collected_until=given.collected_until,
                simulates_after=None if context.simulates is None else now - context.simulates,
            ),
            given.collected,
            given.complete,
            plan,
            self.store,
            given.sources,
            given.since,
            context.ask,
        )
        advices = advice_rows(outcome.advices)
        verified = self._verified(state, outcome, advices, plan)
        state = replace(
            state,
            verifications=verified.state,
            incidents={key: verified.on_page(one) for key, one in state.incidents.items()},
        )
        happened = (*outcome.transitions, *verified.transitions)
        learnt, gone = changes_of(before.detection.references, state.detection.references)
        first = self.progress.number == 0
        progress = self._progress(state, now, time.monotonic() - began, incomplete)
        record = TickRecord(
            since=min(before.collected_until.values(), default=now),
            until=now,
            # every batch is brought all of them
            gpus=None if not first else outcome.gpus if self._goes_on else _named(outcome.gpus),
            minutes=stored_rows(outcome.rows, outcome.minutes),
            references=learnt,
            references_gone=gone,
            advices=advices,
            verifications=verified.news,
            memory=memory_of(state, self.state) | (reports_memory(plan) if first else {}),
            progress=(self.progress, progress),
        )
        incidents = commit_planned(
            *(self.store, plan, receivers, record),
            *(before.incidents, state.incidents, happened),
        )
        self.state = replace(state, incidents=incidents)
        self.progress = replace(progress, version=self.progress.version + 1)
        return TickResult(outcome, happened, verified.failed)

    def _verified(
        self, state: State, outcome: Outcome, advices: Sequence[AdviceRow], plan: Plan
    ) -> Verified:
        """What the minutes of the tick say of changes."""
        rows, before = outcome.rows, state.verifications
        if rows.width:
            rows = rows.hstack(outcome.minutes.select("running_requests_max"))
        if plan is not self._plan:  # settings may be others
            self._plan, before = plan, replace(before, said={})
        changed = [t.incident for t in outcome.transitions if t.event in ("firing", "resolved")]
        incidents = [*changed, *state.incidents.values()]
        targets = outcome.targets or state.targets
        return verify_changes(before, rows, advices, incidents, targets, plan, self.store)

    def _with_current_baselines(self, state: State) -> State:
        """The state with the baselines in force; read anew where a person changed them."""
        in_force = self.store.baselines_in_force()
        if in_force == self._in_force:
            return state
        self._in_force = in_force
        return replace(state, baselines=self.store.baselines())

    def _taken_over(self, state: State, given: TickInput) -> State:
        """The state with the open incidents of targets that were another batch's, and without those
        of targets that are.
        """
        moved = given.sources.moved.keys() & state.targets.keys()
        if moved:
            own = {k: i for k, i in state.incidents.items() if _target_of(i.target) not in moved}
            opened = {k: v for k, v in state.verifications.opened.items() if k not in moved}
            verifications = replace(state.verifications, opened=opened)
            state = replace(state, incidents=own, verifications=verifications)
        listed = {key for one in given.collected for key in one.targets}
        if new := listed - state.targets.keys():
            theirs = self.store.open_elsewhere()
            adopted = {k: i for k, i in theirs.items() if _target_of(i.target) in new}
            opened = open_by_target(self.store.open_verifications())
            opened = {**state.verifications.opened, **{k: opened[k] for k in opened.keys() & new}}
            state = replace(
                state,
                incidents={**adopted, **state.incidents},
                verifications=replace(state.verifications, opened=opened),
            )
        return state

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


def _named(gpus: pl.DataFrame) -> pl.DataFrame:
    """The last reading of each GPU: its name."""
    return gpus.unique([c for c in GPU_KEY if c != "time"], keep="last", maintain_order=True)


def _target_of(labels: Mapping[str, str]) -> TargetKey | None:
    instance = labels.get("instance")
    return None if instance is None else TargetKey(instance, labels.get("engine", "0"))


class BoundedQuestions:
    """Asked as ``ask`` is, in a thread; what a tick waits for takes no longer than so many seconds.

    An answer that is late is none: the page says so, and asks again. While a question is still
    simulated, no other one is.
    """

    def __init__(self, seconds: float, ask: Ask = target_advice) -> None:
        self._seconds, self._ask = seconds, ask
        self._until = 0.0  # monotonic
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """A tick begins."""
        self._until = time.monotonic() + self._seconds

    def __call__(self, moment: Moment, plan: Plan, **question: Any) -> TargetAdvice:
        """The answer, or that there is none in time."""
        answers: list[TargetAdvice] = []
        remaining_seconds = self._until - time.monotonic()
        if remaining_seconds > 0 and (self._thread is None or not self._thread.is_alive()):
            # nothing waits for it at the end of the process
            self._thread = threading.Thread(
                target=lambda: answers.append(self._ask(moment, plan, **question)),
                name="driftwatch-simulation",
                daemon=True,
            )
            self._thread.start()
            self._thread.join(remaining_seconds)
        if answers:
            return answers[0]
        why = f"the simulations of this tick took over {self._seconds:g} s"
        advice = Advice(moment.at, Recommendation("insufficient", Reason("failed", why)))
        return TargetAdvice(moment.target, moment.at, advice, question.get("incident_id"), why)
