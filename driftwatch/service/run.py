"""The service: ticks on a schedule, commits what they decide, delivers, answers probes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import polars as pl
import structlog
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MISSED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from driftwatch.baselines.rows import baselines_from_store
from driftwatch.clock import Clock
from driftwatch.collect.pages.source import PagesSource
from driftwatch.collect.schema import Source
from driftwatch.detect.trend.days import finished_days
from driftwatch.model import Severity, Transition
from driftwatch.notify.delivery import Sender
from driftwatch.notify.plan import plan_deliveries
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.roster import Sources
from driftwatch.pipeline.server_reports import reports_memory, with_reports
from driftwatch.pipeline.state import HISTORY, Outcome, State
from driftwatch.pipeline.stored_state import advice_rows, memory_of, resumed, state_from
from driftwatch.pipeline.tick import evaluate
from driftwatch.service.outbox import Attempt, deliver_due
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.service.report_schedule import (
    SETTLED_MINUTE,
    Schedule,
    WrittenReport,
    make_due,
)
from driftwatch.service.scrape_failures import ScrapeFailures
from driftwatch.service.source_threads import SHORTEST_WAIT_SECONDS, Collecting, Gathered
from driftwatch.service.stored_verifications import Verifier, verification_rows
from driftwatch.store.minute_columns import stored_rows
from driftwatch.store.store import Store, TickRecord

_DELIVER_SECONDS = 2.0
_PRUNE_SECONDS = 3600.0
# Resolved incidents are kept as long as the longest look back that reports take.
_INCIDENTS_KEPT = timedelta(days=400)
# Any window of five weeks back can be asked for.
_MINUTES_KEPT = timedelta(days=35)
# Of what is caught up after a stop only the last minutes' questions are simulated: a second or two
# each, and a tick that takes long is taken for a dead one.
_SIMULATED = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver as the planner sees it."""

    name: str
    severities: Collection[Severity]
    sender: Sender


class Service:
    """One watching process.

    Args:
        interval_seconds: between two ticks.
        on_outcome: told of every tick's outcome (``watch`` prints it).
        reports: when weekly reports are made, and for whom; None = none are.
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
    ) -> None:
        self.metrics = OwnMetrics(clock.now)
        self._sources = sources
        self._plan = plan
        self._store = store
        self._receivers = receivers
        self._senders: Mapping[str, Sender] = {r.name: r.sender for r in receivers}
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._retention = retention
        self._on_outcome = on_outcome
        self._reports = reports
        self._log = structlog.get_logger()
        self._failures = ScrapeFailures()
        self._state = state_from(store, clock.now())
        self._in_force = store.baselines_in_force()
        self._collecting = Collecting(sources)
        self._restarted: set[str] = set()
        self._ask_servers()
        self._verifier = Verifier(store)
        # of the settings that the servers told, baselines know whether they still hold
        self._state, self._checkpoint = resumed(store, self._state, self._plan)
        self._attempted = time.monotonic()
        self._completed: float | None = None
        self._last_error: str | None = None
        self._stopping = threading.Event()
        self._scheduler = _scheduler()

    def tick_once(self) -> Outcome:
        """One tick now: collect, decide, commit. What it decided is in the store or not at all."""
        self._attempted = began = time.monotonic()
        now = self._clock.now()
        before = self._as_pinned(self._state)
        wait = max(self._interval_seconds, SHORTEST_WAIT_SECONDS)
        gathered = self._collecting.gather(before.collected_until, now, wait)
        state, outcome = evaluate(
            replace(
                before,
                collected_until=gathered.collected_until,
                simulates_after=now - _SIMULATED,
            ),
            gathered.collected,
            gathered.complete,
            self._plan,
            Sources.of(self._sources, gathered.names, gathered.late),
            self._store,
        )
        news = self._verifier.after(outcome, state, self._plan, before.scrapes)
        happened = (*outcome.transitions, *news.transitions)
        planned = plan_deliveries(
            happened,
            [(r.name, r.severities) for r in self._receivers],
            self._store.silences(now),
            now,
            open_incidents=news.on_pages(state.incidents),
            notified=self._store.notified({t.incident.id for t in news.transitions}),
            of_rules={rule.id: rule.receivers for rule in self._plan.rules},
        )
        state = replace(state, incidents=planned.open_incidents)
        last_checkpoint, checkpoint = self._checkpoint.after(state, outcome.forgotten)
        record = TickRecord(
            since=min(before.collected_until.values(), default=now),
            until=now,
            incidents=state.incidents.values(),
            transitions=planned.transitions,
            deliveries=planned.deliveries,
            scrapes=outcome.scrapes,
            gpus=outcome.gpus,
            minutes=stored_rows(outcome.rows),
            checkpoint=checkpoint,
            advices=advice_rows(outcome.advices),
            verifications=verification_rows(news.verifications),
            memory=memory_of(state)
            | last_checkpoint.memory()
            | reports_memory(self._plan)
            | news.memory,
        )
        self._store.commit_tick(record)
        self._verifier.committed(news)
        self._state, self._checkpoint = state, last_checkpoint
        self._completed = time.monotonic()
        self._last_error = None
        self._ask_restarted(outcome)
        self._note_sources(gathered)
        self._note(outcome, self._completed - began, now)
        self._log_events(happened, outcome, news.failed)
        if self._on_outcome is not None:
            self._on_outcome(outcome)
        return outcome

    def deliver_once(self) -> list[Attempt]:
        """Send what is due; what became of each."""
        now, stopping = self._clock.now(), self._stopping.is_set
        attempts = deliver_due(self._store, self._senders, now, stopping)
        for attempt in attempts:
            self.metrics.deliveries.labels(attempt.receiver, attempt.result).inc()
            log = self._log.info if attempt.result == "sent" else self._log.warning
            what = "report" if attempt.event == "report" else "page"
            log(
                f"{what} {attempt.result}",
                receiver=attempt.receiver,
                id=attempt.incident_id,
                rule=attempt.rule,
                about=attempt.event,
                **({"reason": attempt.reason} if attempt.reason else {}),
            )
        self.metrics.undelivered.set(self._store.undelivered_count())
        return attempts

    def report_once(self) -> list[WrittenReport]:
        """Make the weekly reports that are due; those that were made."""
        if self._reports is None:
            return []
        reports = make_due(self._store, self._plan, self._reports, self._clock.now())
        for one in reports:
            self._log.info("report made", week=one.week.name, file=str(one.file or ""))
            if one.problem is not None:
                self._log.error("report not written", reason=one.problem)
        return reports

    def prune(self) -> None:
        """Forget what is past its retention, pack the hours that are over, keep finished days."""
        now, state = self._clock.now(), self._state
        # a restart needs the scrapes before the last evaluated minute, however long ago it was
        needed = (state.evaluated_until or now) - HISTORY
        self._store.prune(
            min(now - self._retention, needed),
            incidents_before=now - _INCIDENTS_KEPT,
            minutes_before=now - _MINUTES_KEPT,
        )
        self._keep_days(finished_days(state.detection.trend))
        self._store.pack_minutes(now)

    def _keep_days(self, days: pl.DataFrame) -> None:
        """Write down the days that are over, once."""
        stored = set(self._store.day_starts())
        for (day,), rows in days.group_by("day", maintain_order=True):
            if isinstance(day, datetime) and day.astimezone(UTC) not in stored:
                self._store.write_day(day, rows)

    def start(self) -> None:
        """Tick, deliver and prune on a schedule until :meth:`stop`."""
        add = self._scheduler.add_job
        first = datetime.now(UTC)
        add(
            self.tick_once,
            "interval",
            seconds=self._interval_seconds,
            id="tick",
            next_run_time=first,
        )
        add(
            self.deliver_once,
            "interval",
            seconds=_DELIVER_SECONDS,
            id="deliver",
            executor="deliver",
        )
        add(self.prune, "interval", seconds=_PRUNE_SECONDS, id="prune", next_run_time=first)
        if self._reports is not None:  # each hour it is seen whether one is due, or was missed
            after = first + timedelta(minutes=1)
            add(self.report_once, "cron", minute=SETTLED_MINUTE, id="report", next_run_time=after)
        self._scheduler.add_listener(self._failed, EVENT_JOB_ERROR | EVENT_JOB_MISSED)
        self._scheduler.start()
        threading.Thread(target=self._watch_clock, name="driftwatch-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Finish the tick under way with what has come, then stop."""
        self._stopping.set()
        # before the scheduler waits for the tick: a source may take its whole budget to answer
        self._collecting.end()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)
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
        return None

    def _ask_servers(self) -> None:
        """What the servers say of themselves, where they answer."""
        self._plan = with_reports(self._plan, self._sources)

    def _as_pinned(self, state: State) -> State:
        """The state with the baselines in force; read anew where a person changed them."""
        in_force = self._store.baselines_in_force()
        if in_force == self._in_force:
            return state
        self._in_force = in_force
        return replace(state, baselines=baselines_from_store(self._store))

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

    def _note_sources(self, gathered: Gathered) -> None:
        """Metrics of what was asked."""
        metrics = self.metrics
        for name, seconds in gathered.seconds.items():
            metrics.source_seconds.labels(name).set(seconds)
        for source in self._sources:
            metrics.source_failures.labels(source.name).inc(source.name in gathered.failed)
            until = gathered.collected_until.get(source.name)
            if until is not None:
                metrics.source_until.labels(source.name).set(until.timestamp())

    def _note(self, outcome: Outcome, seconds: float, now: datetime) -> None:
        """Metrics and log lines of one complete tick."""
        metrics, state = self.metrics, self._state
        metrics.ticks.labels("complete").inc()
        metrics.tick_seconds.observe(seconds)
        metrics.last_tick.set(now.timestamp())
        if state.evaluated_until is not None:
            metrics.evaluated_until.set(state.evaluated_until.timestamp())
        metrics.targets.set(len(state.targets))
        metrics.per_target.note(outcome.rows, state.targets)
        good = int(outcome.scrapes["ok"].sum()) if len(outcome.scrapes) else 0
        metrics.scrapes.labels("ok").inc(good)
        metrics.scrapes.labels("failed").inc(len(outcome.scrapes) - good)
        metrics.problems.inc(len(outcome.problems))
        metrics.incidents.note(state.incidents.values())
        if len(outcome.rows):
            latest = outcome.rows["end"] == outcome.rows["end"].max()
            for rule in outcome.verdicts.columns:
                unknown = outcome.verdicts[rule].filter(latest).null_count()
                metrics.unknown.labels(rule).set(unknown)
        metrics.retired.inc(len(outcome.retired))
        for key, why in sorted(outcome.retired.items()):
            self._log.info("target retired", target=key.text, reason=why)
        rows = pl.concat([outcome.scrapes, outcome.unseen])
        for change in self._failures.changes(rows):
            if change.reason is None:
                self._log.info("answers again", target=change.instance)
            else:
                self._log.warning("no data", target=change.instance, reason=change.reason)
        for instance, why in outcome.not_evaluated.items():
            self._log.error("not evaluated", target=instance, why=why)
        for problem in outcome.problems:
            self._log.warning("source", where=problem.where, reason=problem.reason)

    def _log_events(
        self, happened: Sequence[Transition], outcome: Outcome, verifications_failed: Sequence[str]
    ) -> None:
        """What people are told, and the tracebacks of what must not happen."""
        for answer in outcome.advices:
            if answer.failed is not None:
                self._log.error(
                    "simulation failed", target=answer.target.key.text, why=answer.failed
                )
        for traceback in verifications_failed:
            self._log.error("verification failed", why=traceback)
        for transition in happened:
            incident = transition.incident
            summary = (incident.page or {}).get("summary")
            self._log.info(transition.event, id=incident.id, rule=incident.rule, summary=summary)


def _scheduler() -> BackgroundScheduler:
    """In-process ticker only: memory job store, one instance of each job, late ones run once."""
    return BackgroundScheduler(
        timezone=UTC,
        executors={"default": ThreadPoolExecutor(2), "deliver": ThreadPoolExecutor(1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": 3600},
    )
