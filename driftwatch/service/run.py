"""The service: ticks of batches, what they commit, deliveries, probes.

``driftwatch run`` on SQLite calls its parts on a schedule of its own; on PostgreSQL jobs do
(:mod:`driftwatch.service.fleet`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from driftwatch.clock import Clock
from driftwatch.collect.pages import PagesSource
from driftwatch.collect.schema import Source
from driftwatch.errors import StoreError
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import Outcome, State, merge
from driftwatch.pipeline.stored_state import with_reports
from driftwatch.receivers.registry import Receiver
from driftwatch.service.batches import (
    Batch,
    ListedPools,
    TickContext,
    TickResult,
    of_batch,
    plan_actions,
)
from driftwatch.service.liveness import Heartbeat, why_withheld
from driftwatch.service.metrics import OwnMetrics
from driftwatch.service.notes import TickNotes
from driftwatch.service.outbox import Attempt, Outbox
from driftwatch.service.report_material import ReportSchedule, make_due
from driftwatch.service.slack_actions import SlackActions
from driftwatch.service.sources import (
    SHORTEST_WAIT_SECONDS,
    Collecting,
)
from driftwatch.service.timing import BoundedQuestions, ClockSteps, Schedule
from driftwatch.store.progress import UNWATCHED, unwatched
from driftwatch.store.store import Store

_ACTIONS_SECONDS = 1.0
_PRUNE_SECONDS = 3600.0
_REPORTS_SECONDS = 600.0
# Resolved incidents are kept as long as the longest look back that reports take.
_INCIDENTS_KEPT = timedelta(days=400)
# What receivers were sent can be looked up for so long; that they were, as long as incidents.
_PAYLOADS_KEPT = timedelta(days=7)
# `explain` and baselines reach five weeks back.
_MINUTES_KEPT = timedelta(days=35)
# A page waits no longer for its advice; a minute without a tick looks like a dead process
_SIMULATING_SECONDS = 45.0


class Service:
    """One watching process.

    Args:
        interval_seconds: between two ticks.
        on_outcome: called with every tick's outcome (``watch`` prints it).
        reports: when weekly reports are made, and for whom; None = none are.
        metrics: that it notes its work in; by default new ones.
        batches: how many there are in a new database; several may be ticked by other processes.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        plan: Plan,
        store: Store,
        receivers: Sequence[Receiver],
        clock: Clock,
        *,
        interval_seconds: float = 15.0,
        on_outcome: Callable[[Outcome], None] | None = None,
        reports: ReportSchedule | None = None,
        metrics: OwnMetrics | None = None,
        batches: int = 1,
    ) -> None:
        self.metrics = OwnMetrics(clock.now) if metrics is None else metrics
        self._sources = sources
        self._plan = plan
        self._store = store
        self._receivers = receivers
        self.outbox = Outbox(store, clock, self.metrics)
        self._send_to(receivers)
        self._deciding = threading.Lock()
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._on_outcome = on_outcome
        self._reports = reports
        self._log = structlog.get_logger()
        self._notes = TickNotes(self.metrics)
        self._collecting = Collecting(sources)
        self._restarted: set[str] = set()
        self._ask_servers()
        self._questions = BoundedQuestions(_SIMULATING_SECONDS)
        # how many there are: as the first process of the database made them
        self._of = store.make_batches(batches)
        self._listed = ListedPools()
        self._batches = {0: Batch(store, clock.now(), 0, self._of)}
        # batch → when this process ticked it last, monotonic, and what came of it
        self._recent: dict[int, tuple[float, Outcome, State]] = {}
        self._attempted = time.monotonic()
        self._completed: float | None = None
        self._last_error: str | None = None
        self._clock_steps = ClockSteps()
        self._heartbeat: Heartbeat | None = None
        self._slack_actions = SlackActions(store, clock.now, self.metrics)
        self._schedule = Schedule(self._failed)

    def adopt(self, plan: Plan, receivers: Sequence[Receiver]) -> None:
        """Decide with another plan and other receivers; waits for a tick that is under way.

        State stays; the next tick ends the incidents of rules and pools that are gone.
        """
        with self._deciding:
            plan = replace(plan, reported=self._plan.reported)
            self._plan, self._receivers = plan, receivers
            self._send_to(receivers)
            self.metrics.unknown.clear()
        # it waits for what is on its way, and no tick waits for it
        self._slack_actions.adopt(receivers)

    def beat(self, read_url: Callable[[], str], every_seconds: float = 60.0) -> None:
        """GET this URL after each complete tick from now on, at most each so many seconds."""
        self._heartbeat = Heartbeat(read_url, every_seconds, self.metrics)

    def tick_once(self) -> Outcome:
        """A tick of every batch now. What each decided is in the store or not at all.

        Raises:
            Exception: the first one of a batch, when all have had their turn.
        """
        with self._deciding:
            outcome = self._tick(range(self._of))
        self.send_heartbeat()
        return outcome

    def tick(self, number: int) -> Outcome | None:
        """A tick of one batch now; None where another process has committed one meanwhile."""
        with self._deciding:
            outcome = self._tick([number])
            return outcome if number in self._batches else None

    def _tick(self, numbers: Iterable[int]) -> Outcome:
        self._attempted = began = time.monotonic()
        self._questions.begin()
        every: list[TickResult | None] = []
        errors: list[Exception] = []
        for number in numbers:
            try:
                every.append(self._tick_batch(number))
            except Exception as error:  # noqa: BLE001 - the other batches go on
                errors.append(error)
        ticked = [one for one in every if one is not None]
        with suppress(StoreError):  # the next tick does
            self.outbox.give_up_unknown_receivers()
        self.outbox.wake()
        outcome = merge([one.outcome for one in ticked])
        if ticked:
            self._note(ticked, outcome, began)
        if errors:
            raise errors[0]
        if self._on_outcome is not None:
            self._on_outcome(outcome)
        return outcome

    def _tick_batch(self, number: int) -> TickResult | None:
        """None: another process has committed a tick of it meanwhile."""
        now, batch = self._clock.now(), self._batches.get(number)
        if batch is None or not batch.is_current():
            batch = self._batches[number] = Batch(self._store, now, number, self._of)
        if self._clock_steps.note(batch.state.collected_until, now):
            self._store.make_deliveries_due(now)
        own = batch.own_pools(self._plan)
        wait = max(self._interval_seconds, SHORTEST_WAIT_SECONDS)
        asked = batch.state.collected_until, now, wait, own, batch.targets_by_source()
        given = gathered = self._collecting.gather(*asked)
        if own is not None:
            pools = self._listed.of(given.answers.values(), self._plan)
            given = of_batch(own, given, batch.state, pools)
        context = TickContext(self._plan, self._receivers, self._questions)
        try:
            ticked = batch.tick(given, now, context)
        except StoreError as error:
            if error.code != "tick-lost":
                raise
            del self._batches[number]
            self._log.warning("tick lost", batch=number, reason=error.message)
            return None
        self._notes.sources(self._sources, gathered)
        shown = ticked.outcome
        if not len(shown.rows) and number in self._recent:
            shown = self._recent[number][1]
        self._recent[number] = time.monotonic(), shown, batch.state
        return ticked

    def _note(self, ticked: Sequence[TickResult], outcome: Outcome, began: float) -> None:
        self._completed, self._last_error = (now := time.monotonic()), None
        self._ask_restarted(outcome)
        fresh = now - UNWATCHED.total_seconds()
        self._recent = {n: one for n, one in self._recent.items() if one[0] >= fresh}
        state = _merged([state for _, _, state in self._recent.values()])
        shown = merge([one for _, one, _ in self._recent.values()])
        self.metrics.batches.set(len(self._recent))
        self._notes.tick(outcome, shown, state, self._plan.enabled, now - began, self._clock.now())
        for traceback in (one for each in ticked for one in each.failed):
            self._log.error("verification failed", why=traceback)
        routes = self._plan.routes_to(r.subscription for r in self._receivers)
        happened = [one for each in ticked for one in each.happened]
        self._notes.events(happened, state.incidents, routes)

    def send_heartbeat(self) -> None:
        """Tell those outside that every batch was ticked; or nobody, and why."""
        now = self._clock.now()
        self.note_unwatched(now)
        if self._heartbeat is not None:
            blind = self._clock_steps.why_blind()
            self._heartbeat.ticked(why_withheld(self._store, blind, now))

    def note_unwatched(self, now: datetime) -> None:
        """Count the batches that nobody ticks."""
        self.metrics.unwatched.set(len(unwatched(self._store.batches(), now)))

    def plan_actions_once(self) -> bool:
        """Tell receivers what people did since the last tick; whether there was anything."""
        planned = plan_actions(self._store, self._plan, self._receivers, self._clock.now())
        if planned:
            self.outbox.wake()
        return planned

    def deliver_once(self) -> list[Attempt]:
        """Send what is due; what became of each."""
        return self.outbox.deliver_once()

    def _send_to(self, receivers: Sequence[Receiver]) -> None:
        every = {one.name: one.repost_seconds for one in receivers if one.repost_seconds}
        self.outbox.adopt({one.name: one.sender for one in receivers}, every)

    def make_reports(self) -> None:
        """Make the weekly report that is due."""
        if self._reports is not None:
            one = make_due(self._store, self._plan, self._reports, self._clock.now())
            if one is not None:
                self._log.info("report made", week=one.name)

    def prune(self) -> None:
        """Forget old rows, and pack the hours that are over."""
        now = self._clock.now()
        self._store.prune(
            incidents_before=now - _INCIDENTS_KEPT,
            minutes_before=now - _MINUTES_KEPT,
            payloads_before=now - _PAYLOADS_KEPT,
        )
        self._store.pack_minutes(now)

    def start(self) -> None:
        """Tick, deliver and prune on a schedule until :meth:`stop`."""
        every = self._schedule.every
        every(self._interval_seconds, "tick", self.tick_once)
        every(_ACTIONS_SECONDS, "actions", self.plan_actions_once)
        every(_PRUNE_SECONDS, "prune", self.prune)
        if self._reports is not None:  # one may be due, or was missed
            every(_REPORTS_SECONDS, "report", self.make_reports)
        self._schedule.start()
        self.outbox.start()
        self.listen_to_slack()

    def listen_to_slack(self) -> None:
        """Take clicks on Slack's buttons; of several processes Slack asks one."""
        self._slack_actions.start(self._receivers)

    @property
    def settle_seconds(self) -> float:
        """How old a scrape must be before every source is sure to have it."""
        return max((source.settle_seconds for source in self._sources), default=0.0)

    def end_waiting(self) -> None:
        """Let ticks under way go on with what has come."""
        self._collecting.end()

    def stop(self) -> None:
        """Finish the tick under way with what has come, then stop."""
        # before the tick is waited for: a source may take its whole budget to answer
        self._collecting.end()
        self._slack_actions.stop()
        self._schedule.stop()
        if self._heartbeat is not None:
            self._heartbeat.end()
        self.outbox.stop()
        for source in self._sources:
            source.close()

    def why_unhealthy(self) -> str | None:
        """Why the process should be restarted; None = it should not."""
        silent = time.monotonic() - self._attempted
        if silent > max(5 * self._interval_seconds, 60.0):
            return f"no tick began for {silent:.0f} s"
        return None

    def why_not_ready(self) -> str | None:
        """Why it is not watching; None = the last tick is complete and fresh."""
        if self._completed is None:
            return self._last_error or "no tick is complete yet"
        stale = time.monotonic() - self._completed
        if stale > max(3 * self._interval_seconds, 30.0):
            return f"no complete tick for {stale:.0f} s: {self._last_error or 'still running'}"
        return self._clock_steps.why_blind() or self.outbox.why_silent()

    def _ask_servers(self) -> None:
        self._plan = with_reports(self._plan, self._sources)

    def _ask_restarted(self, outcome: Outcome) -> None:
        if len(outcome.rows):
            self._restarted |= set(outcome.rows.filter("restarted")["instance"])
        self._restarted |= {key.instance for key in outcome.reborn}
        pages = [s for s in self._sources if isinstance(s, PagesSource)]
        # a source is used by one thread at a time: a busy one forgets later
        if self._restarted and all(self._collecting.free(source.name) for source in pages):
            for source in pages:
                source.forget(sorted(self._restarted))
            self._restarted = set()
            self._ask_servers()

    def _failed(self, job: str, error: BaseException | None) -> None:
        """A job raised, or was skipped because the one before took too long (None)."""
        if job == "tick":
            self.metrics.ticks.labels("skipped" if error is None else "failed").inc()
        if error is not None:
            self._log.error(f"{job} failed", reason=str(error))
            self._last_error = str(error) if job == "tick" else self._last_error


def _merged(states: Sequence[State]) -> State:
    """The states of some batches as one, as far as metrics and the log read it."""
    if len(states) == 1:
        return states[0]
    reached = [state.evaluated_until for state in states if state.evaluated_until is not None]
    return State(
        evaluated_until=min(reached, default=None),
        targets={key: target for state in states for key, target in state.targets.items()},
        incidents={key: one for state in states for key, one in state.incidents.items()},
    )
