"""What a process writes to its metrics and log about each tick and each lasting trouble."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import polars as pl
import structlog

from driftwatch.collect.schema import Source
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.planner import Routes
from driftwatch.pipeline.roster import TickInput
from driftwatch.pipeline.state import Outcome, State
from driftwatch.rulebook.rules import Rule
from driftwatch.service.metrics import OwnMetrics

# The same problem of a source is logged again after so long, as an API that is down has it at
# each tick.
_SAME_AGAIN = timedelta(minutes=10)


class Trouble:
    """A trouble in the log: when it begins, when its reason changes, when it is over.

    ``begins``, ``over``: what the log says; ``about``: fields of its lines.
    """

    def __init__(self, begins: str, over: str, **about: Any) -> None:
        self._begins, self._over, self._about = begins, over, about
        self._why: str | None = None

    def note(self, why: str | None) -> None:
        """What is wrong now; None = nothing."""
        before, self._why = self._why, why
        log = structlog.get_logger()
        if why is not None and why != before:
            log.warning(self._begins, **self._about, reason=why)
        elif why is None and before is not None:
            log.info(self._over, **self._about)


class Change(NamedTuple):
    """A server fails since ``time``, or for another reason; without a reason it answers again."""

    instance: str
    time: datetime
    reason: str | None


class ScrapeFailures:
    """The servers that fail, so that each change is reported once."""

    def __init__(self) -> None:
        # server that fails → its reason, numbers left out: a count of bytes that changes with
        # every scrape is no news
        self._kinds: dict[str, str | None] = {}

    def changes(self, scrapes: pl.DataFrame) -> Iterator[Change]:
        """What these scrapes change, in the order of their times."""
        failed = scrapes.filter(~pl.col("ok"))["instance"].unique()
        concerned = [*self._kinds, *failed]
        rows = scrapes.filter(pl.col("instance").is_in(concerned)).sort("time", "instance", "ok")
        rows = rows.unique(["instance", "time"], keep="first", maintain_order=True)
        for instance, time, ok, why in rows.select("instance", "time", "ok", "reason").iter_rows():
            kind = None if ok else _kind(str(why))
            if kind != self._kinds.get(instance):
                yield Change(instance, time, None if ok else str(why))
            self._kinds[instance] = kind
        self._kinds = {name: kind for name, kind in self._kinds.items() if kind is not None}


def _kind(reason: str) -> str:
    return re.sub(r"\d+", "N", reason)


class TickNotes:
    """Writes metrics and log lines of ticks; names a failing server once."""

    def __init__(self, metrics: OwnMetrics) -> None:
        self._metrics = metrics
        self._failures = ScrapeFailures()
        self._problems: dict[tuple[str, str], datetime] = {}  # place and kind → when logged
        self._has_ticked = False
        self._log: Any = structlog.get_logger()

    def sources(self, sources: Iterable[Source], gathered: TickInput) -> None:
        """How long each source took to answer, and how far it was read."""
        metrics = self._metrics
        for name, seconds in gathered.seconds.items():
            metrics.source_seconds.labels(name).set(seconds)
        for source in sources:
            until = gathered.collected_until.get(source.name)
            if until is not None:
                metrics.source_until.labels(source.name).set(until.timestamp())

    def tick(
        self,
        outcome: Outcome,
        shown: Outcome,
        state: State,
        rules: Sequence[Rule],
        seconds: float,
        now: datetime,
    ) -> None:
        """One complete tick.

        ``shown``, ``state``: of every batch that this process ticks; ``seconds``: how long it took.
        """
        metrics = self._metrics
        metrics.ticks.labels("complete").inc()
        metrics.tick_seconds.observe(seconds)
        metrics.last_tick.set(now.timestamp())
        if state.evaluated_until is not None:
            metrics.evaluated_until.set(state.evaluated_until.timestamp())
        metrics.targets.set(len(state.targets))
        if not self._has_ticked and state.targets:
            self._has_ticked = True
            firing = sum(one.is_firing for one in state.incidents.values())
            self._log.info("first tick", servers=len(state.targets), incidents=firing)
        if len(shown.rows):
            rows = shown.rows.hstack(shown.minutes.select("ever_seen"))
            metrics.note_minutes(rows, state.targets, rules)
        good = int(outcome.scrapes["ok"].sum()) if len(outcome.scrapes) else 0
        metrics.scrapes.labels("ok").inc(good)
        metrics.scrapes.labels("failed").inc(len(outcome.scrapes) - good)
        metrics.problems.inc(len(outcome.problems))
        metrics.note_incidents(state.incidents.values())
        if len(shown.rows):
            latest = shown.rows["end"] == shown.rows["end"].max()
            for rule in shown.verdicts.columns:
                unknown = shown.verdicts[rule].filter(latest).null_count()
                metrics.unknown.labels(rule).set(unknown)
        for key, why in sorted(outcome.retired.items()):
            self._log.info("target retired", target=key.text, reason=why)
        for change in self._failures.changes(outcome.scrapes):
            if change.reason is None:
                self._log.info("answers again", target=change.instance)
            else:
                self._log.warning("no data", target=change.instance, reason=change.reason)
        for instance, why in outcome.not_evaluated.items():
            self._log.error("not evaluated", target=instance, why=why)
        self._problems = {of: at for of, at in self._problems.items() if now - at < _SAME_AGAIN}
        for problem in outcome.problems:
            kind = problem.where, _kind(problem.reason)
            if kind not in self._problems:
                self._problems[kind] = now
                self._log.warning("not read", where=problem.where, reason=problem.reason)
        for answer in outcome.advices:
            if answer.failed is not None:
                self._log.error("simulation failed", target=answer.key.text, why=answer.failed)

    def events(
        self, happened: Iterable[Transition], incidents: Mapping[str, Incident], routes: Routes
    ) -> None:
        """What receivers get, and the open pages and tickets that none gets."""
        for transition in happened:
            incident = transition.incident
            summary = None if incident.page is None else incident.page.summary
            about = {"id": incident.id, "rule": incident.rule}
            self._log.info(transition.event, **about, summary=summary)
            if transition.event == "firing" and (routed := routes.of(incident)).reaches_nobody:
                self._log.error("reaches nobody", **about, why=routed.why)
        firing = [one for one in incidents.values() if one.is_firing]
        self._metrics.unrouted.set(sum(routes.of(one).reaches_nobody for one in firing))
