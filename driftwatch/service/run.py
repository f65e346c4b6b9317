"""The service: ticks on a schedule, commits what they decide, delivers, answers probes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import structlog
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MISSED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from driftwatch.clock import Clock
from driftwatch.collect.pages.source import PagesSource
from driftwatch.collect.schema import Source
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.server_reports import with_reports
from driftwatch.pipeline.state import HISTORY, Outcome
from driftwatch.pipeline.stored_state import evaluated_until
from driftwatch.service.bounded_questions import BoundedQuestions
from driftwatch.service.clock_steps import ClockSteps
from driftwatch.service.heartbeat import UNDELIVERED, Answering, Heartbeat, Target
from driftwatch.service.keeper import Keeper
from driftwatch.service.membership import Membership
from driftwatch.service.outbox import POLL_SECONDS, Outbox
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.service.receiver_queue import Attempt
from driftwatch.service.receivers import Receiver
from driftwatch.service.report_schedule import SETTLED_MINUTE, Schedule
from driftwatch.service.shard_parts import earliest
from driftwatch.service.shards import Shards, nothing, whole_of, whole_state
from driftwatch.service.slack_actions import SlackActions
from driftwatch.service.slow_tasks import compaction_task, in_this_process, reports_task
from driftwatch.service.source_threads import SHORTEST_WAIT_SECONDS, Collecting, Gathered
from driftwatch.service.tick_notes import TickNotes
from driftwatch.service.unrouted_incidents import log_unrouted
from driftwatch.service.watch import Deciding
from driftwatch.store.lease import Lease
from driftwatch.store.store import Store
from driftwatch.tasks.task import Executor

_ACTIONS_SECONDS = 1.0
_PRUNE_SECONDS = 3600.0
# A page waits no longer for its advice; a minute without a tick is taken for a dead process
_SIMULATING_SECONDS = 45.0
# What other processes planned is looked for so often.
_SHARDS_POLL_SECONDS = 1.0


class Service:
    """One watching process.

    Args:
        interval_seconds: between two ticks.
        on_outcome: told of every tick's outcome (``watch`` prints it).
        reports: when weekly reports are made, and for whom; None = none are.
        metrics: that it notes its work in; by default new ones.
        may_send: False while another process may be the one that sends.
        tasks: who does its slow work; None = a thread of this process.
        membership: says which shards this process watches; None = it watches all pools.
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
        retention: timedelta = timedelta(hours=1),
        on_outcome: Callable[[Outcome], None] | None = None,
        reports: Schedule | None = None,
        metrics: OwnMetrics | None = None,
        may_send: Callable[[], bool] = lambda: True,
        tasks: Executor | None = None,
        membership: Membership | None = None,
    ) -> None:
        self.metrics = OwnMetrics(clock.now) if metrics is None else metrics
        self._may_send, self._membership = may_send, membership
        self._sources = sources
        self._plan = plan
        self._store = store
        self._receivers = receivers
        poll_seconds = POLL_SECONDS if membership is None else _SHARDS_POLL_SECONDS
        self._outbox = Outbox(store, clock, self.metrics.deliveries, may_send, poll_seconds)
        self._keeper = Keeper(store, self.metrics.alertmanager_up, may_send)
        self._send_to(receivers)
        self._keeper.adopt(receivers)
        self._deciding = threading.Lock()
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._retention = retention
        self._on_outcome = on_outcome
        self._reports = reports
        self._log = structlog.get_logger()
        self._notes = TickNotes(self.metrics)
        self._collecting = Collecting(sources)
        self._restarted: set[str] = set()
        self._ask_servers()
        self._questions = BoundedQuestions(_SIMULATING_SECONDS)
        # of the settings that the servers told, baselines know whether they still hold
        self._shards = Shards(store, membership, sources, plan)
        self._shards.current(self._plan, clock.now())
        self._attempted = time.monotonic()
        self._completed: float | None = None
        self._last_error: str | None = None
        self._answering = Answering()
        self._clock_steps = ClockSteps()
        self._heartbeat: Heartbeat | None = None
        self._stopping, self._again = threading.Event(), threading.Event()
        self._slack_actions = SlackActions(store, clock.now, self.metrics)
        self._scheduler = _scheduler()
        own = in_this_process(store, lambda: (self._plan, self._reports))
        self.tasks: Executor = tasks or own
        self.metrics.tasks.read(lambda: self.tasks.counts(store))

    def adopt(self, plan: Plan, receivers: Sequence[Receiver]) -> None:
        """Decide with another plan and other receivers; waits for a tick that is under way.

        State stays; the next tick ends the incidents of rules and pools that are gone.
        """
        with self._deciding:
            plan = replace(plan, served=self._plan.served, reported=self._plan.reported)
            # in one: what is planned for a receiver finds its queue
            with self._shards.planning:
                self._plan, self._receivers = plan, receivers
                self._send_to(receivers)
            self.metrics.unknown.clear()
        # they wait for what is on its way, and no tick waits for them
        self._keeper.adopt(receivers)
        self._slack_actions.adopt(receivers)

    def beat(self, targets: Sequence[Target], every_seconds: float) -> None:
        """Tell these of each complete tick from now on, at most each so many seconds."""
        counts, at = self.metrics.watch.heartbeats, self.metrics.watch.heartbeat_at
        self._heartbeat = Heartbeat(targets, every_seconds, self._clock, counts, at, self._may_send)

    def tick_once(self) -> Outcome:
        """One tick now: collect, decide, commit. What it decided is in the store or not at all."""
        with self._deciding:
            return self._tick()

    def _tick_in_turn(self) -> None:
        """A tick, and another one at once where shards were taken meanwhile."""
        self.tick_once()
        while self._again.is_set() and not self._stopping.is_set():
            self.tick_once()

    def _tick(self) -> Outcome:
        self._attempted = began = time.monotonic()
        self._again.clear()
        self._questions.begin()
        now = self._clock.now()
        if self._membership is not None and self._may_send():
            # first: a shard whose ticks fail is one of them
            self.metrics.watch.unwatched.set(len(self._shards.unwatched(now)))
        watches = self._shards.current(self._plan, now)
        states = [one.state for one in watches]
        until_before = earliest([state.collected_until for state in states])
        if self._clock_steps.note(until_before, now):
            self._store.hasten_deliveries(now)
        wait = max(self._interval_seconds, SHORTEST_WAIT_SECONDS)
        own_pools = self._shards.own_pools(watches, self._plan)
        question = (until_before, now, wait, own_pools)
        gathered = self._collecting.gather(*question) if watches else nothing(now)
        ticked = self._shards.tick(
            watches,
            gathered,
            now,
            Deciding(self._plan, self._receivers, self._questions),
            self._collecting,
        )
        self.metrics.watch.shards.set(len(watches) if self._membership else 0)
        self._outbox.wake()
        outcome, state = whole_of(ticked), whole_state(watches)
        happened = [one for each in ticked for one in each.happened]
        self._completed = time.monotonic()
        self._last_error = None
        self._ask_restarted(outcome)
        self._notes.sources(self._sources, gathered)
        self._notes.tick(outcome, state, self._plan.enabled, self._completed - began, now)
        if self._heartbeat is not None:
            self._heartbeat.ticked(self._why_withheld(gathered, now))
        failed = [one for each in ticked for one in each.failed]
        self._notes.events(happened, outcome, failed)
        routes = self._plan.routes_to(r.subscription for r in self._receivers)
        unrouted = log_unrouted(routes, happened, state.incidents, self._log)
        self.metrics.unrouted.set(unrouted)
        if self._on_outcome is not None:
            self._on_outcome(outcome)
        return outcome

    def plan_actions_once(self) -> bool:
        """Tell receivers what people did since the last tick; whether there was anything."""
        if not self._store.unplanned_actions():
            return False
        planned = self._shards.plan_actions(self._plan, self._receivers, self._clock.now())
        self._outbox.wake()
        return planned

    def deliver_once(self) -> list[Attempt]:
        """Send what is due; what became of each."""
        return self._outbox.deliver_once()

    def _send_to(self, receivers: Sequence[Receiver]) -> None:
        senders = {receiver.name: receiver.sender for receiver in receivers}
        self._outbox.adopt(senders)

    def defer_reports(self) -> None:
        """Have the weekly reports made that are due; of several processes the one that leads."""
        if self._reports is not None and self._may_send():
            task = reports_task(self._store, self._reports, self._clock.now())
            if task is not None:
                self.tasks.defer(self._store, task)

    def prune(self) -> None:
        """Keep finished days; have old rows forgotten, and the hours that are over packed."""
        now = self._clock.now()
        if self._may_send():  # of several processes the one that leads
            # a restart needs the scrapes before the last evaluated minute, however long ago it was
            needed = (evaluated_until(self._store) or now) - HISTORY
            self.tasks.defer(self._store, compaction_task(now, min(now - self._retention, needed)))

    def start(self) -> None:
        """Tick, deliver and prune on a schedule until :meth:`stop`."""
        add = self._scheduler.add_job
        first = datetime.now(UTC)
        add(
            self._tick_in_turn,
            "interval",
            seconds=self._interval_seconds,
            id="tick",
            next_run_time=first,
        )
        often = {"seconds": _ACTIONS_SECONDS, "executor": "actions"}
        add(self.plan_actions_once, "interval", id="actions", **often)
        add(self.prune, "interval", seconds=_PRUNE_SECONDS, id="prune", next_run_time=first)
        if self._reports is not None:  # each hour it is seen whether one is due, or was missed
            after = first + timedelta(minutes=1)
            add(self.defer_reports, "cron", minute=SETTLED_MINUTE, id="report", next_run_time=after)
        self._scheduler.add_listener(self._failed, EVENT_JOB_ERROR | EVENT_JOB_MISSED)
        self._keeper.start()
        self._scheduler.start()
        self._outbox.start()
        if self._membership is None:
            self._slack_actions.start(self._receivers)
        threading.Thread(target=self._watch_clock, name="driftwatch-watchdog", daemon=True).start()

    def lead(self, lease: Lease | None) -> None:
        """Of the processes that share the shards be the one that sends, reports and forgets."""
        self._store.lease = lease
        self._slack_actions.start(self._receivers)

    def tick_soon(self) -> None:
        """Tick now, as shards were taken; after the tick under way."""
        self._again.set()
        if self._scheduler.running:
            self._scheduler.modify_job("tick", next_run_time=datetime.now(UTC))

    def stop(self) -> None:
        """Finish the tick under way with what has come, then stop."""
        self._stopping.set()
        self._keeper.stop()
        if self._heartbeat is not None:
            self._heartbeat.end()
        # before the scheduler waits for the tick: a source may take its whole budget to answer
        self._collecting.end()
        self._slack_actions.stop()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)
        self.tasks.close()
        self._outbox.stop()
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
        return self._clock_steps.why_blind() or self._outbox.why_silent()

    def _why_withheld(self, gathered: Gathered, now: datetime) -> str | None:
        """Why nobody outside is told that this tick was complete; None = they are."""
        unanswered = self._answering.why_incomplete(gathered) or self._clock_steps.why_blind()
        if unanswered is not None:
            return unanswered
        unwatched = self._shards.unwatched(now)
        if unwatched:
            return f"nobody watches shard {', '.join(map(str, unwatched))}"
        unheard = self._store.unheard_count(now - UNDELIVERED)
        word = "incident" if unheard == 1 else "incidents"
        return f"no receiver has taken the page of {unheard} open {word}" if unheard else None

    def _ask_servers(self) -> None:
        """What the servers say of themselves, where they answer."""
        self._plan = with_reports(self._plan, self._sources)

    def _ask_restarted(self, outcome: Outcome) -> None:
        """A restarted server may have other settings."""
        if len(outcome.rows):
            self._restarted |= set(outcome.rows.filter("restarted")["instance"])
        self._restarted |= {key.instance for key in outcome.reborn}
        pages = [source for source in self._sources if isinstance(source, PagesSource)]
        # a source is used by one thread at a time: one that is under way is asked later
        if self._restarted and all(self._collecting.free(source.name) for source in pages):
            for source in pages:
                source.forget(sorted(self._restarted))
            self._restarted = set()
            self._ask_servers()

    def _failed(self, event: JobExecutionEvent) -> None:
        """A job raised, or was missed: said in the log and the metrics, tried again next time."""
        error = getattr(event, "exception", None)
        result = "failed" if error is not None else "skipped"
        if event.job_id == "tick":
            self.metrics.ticks.labels(result).inc()
            self._last_error = str(error) if error is not None else "the tick was missed"
        self._log.error(f"{event.job_id} {result}", reason=str(error) if error else "missed")

    def _watch_clock(self) -> None:
        """Re-arm the ticker after the wall clock stepped back: APScheduler waits on it."""
        while not self._stopping.wait(self._interval_seconds / 2):
            if time.monotonic() - self._attempted > 2 * self._interval_seconds:
                job = self._scheduler.get_job("tick")
                if job is not None and job.next_run_time is not None:
                    ahead = (job.next_run_time - datetime.now(UTC)).total_seconds()
                    if ahead > self._interval_seconds:
                        self._log.warning("wall clock stepped back", seconds=round(ahead))
                        for one in self._scheduler.get_jobs():
                            one.modify(next_run_time=datetime.now(UTC))


def _scheduler() -> BackgroundScheduler:
    """In-process ticker only: memory job store, one instance of each job, late ones run once."""
    return BackgroundScheduler(
        timezone=UTC,
        executors={
            "default": ThreadPoolExecutor(2),
            "actions": ThreadPoolExecutor(1),
        },
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": 3600},
    )
