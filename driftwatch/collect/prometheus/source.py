"""A Prometheus-compatible API as a source: a few range queries for the whole fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.pages.foreign import STATS_DISABLED
from driftwatch.collect.pages.parser import folded
from driftwatch.collect.prometheus.client import PrometheusAsker, RangeAsker, error_text
from driftwatch.collect.prometheus.discover import what_they_are
from driftwatch.collect.prometheus.images import Ask, PodImages
from driftwatch.collect.prometheus.placement import Placements
from driftwatch.collect.prometheus.query import (
    Grid,
    Labels,
    Query,
    Selector,
    grid,
    matchers,
    queries,
    select,
    time_of,
    unix_ms,
)
from driftwatch.collect.prometheus.rows import QueryResult, failed_rows, scrape_rows
from driftwatch.collect.schema import Collected, SourceProblem, empty_scrapes
from driftwatch.errors import BadPage, Partial, SourceError, UsageError
from driftwatch.model import Target, TargetKey

REACH_DAYS = 400
_DAY = timedelta(days=1)

# a query and its errors → the one of them because of which there is no answer
Failed = Callable[[str, Sequence[SourceError]], SourceError | None]


class PrometheusSource:
    """vLLM servers as a Prometheus-compatible API knows them.

    Each metric is one range query for the whole fleet on a grid of ``step_seconds``; a row's time
    is that of the scrape itself (``timestamp(up)``), so a grid time that shows the scrape of the
    one before gives no second row. Choose the step no longer than the scrape interval, and keep
    ``until`` at least ``settle_seconds`` behind now: a scrape carries the time it began and becomes
    visible when it ended, at most Prometheus's scrape_timeout (10 s where nothing is said) later.

    ``selector``: label → value, or values of which one, that all targets' series carry, ``up`` too;
    empty: every instance that has a ``vllm:`` series; ``budget_seconds``: for all queries of one
    ``collect``; those beyond it are not asked; ``name``: how problems and pages call this source.
    Raises UsageError: a label that cannot be matched, or a step that is not above 0.
    """

    by_minute = True

    def __init__(
        self,
        asker: PrometheusAsker,
        *,
        selector: Selector,
        step_seconds: float = 15.0,
        budget_seconds: float = 60.0,
        settle_seconds: float = 15.0,
        name: str | None = None,
    ) -> None:
        if not step_seconds >= 0.001:
            raise UsageError(f"the step must be at least 1 ms, not {step_seconds:g} s")
        self._asker = asker
        self._ranges = RangeAsker(asker, budget_seconds=budget_seconds)
        self.name = name or f"prometheus {asker.host}"
        self.settle_seconds = settle_seconds
        self._step_seconds = step_seconds
        self._selector = dict(selector)
        self._queries = queries(selector)
        self._up = select(("up",), matchers(selector))
        self._targets: dict[TargetKey, Target] = {}
        self._placements = Placements()
        self._foreign: dict[str, str] = {}  # instance without a vllm: series → what it is
        self._images = PodImages()

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Scrapes with since <= time < until.

        A query that fails leaves its columns NULL and is a problem; where no target can be read
        at all, every known target has a row with ``ok`` False and the reason, just before
        ``until``, and ``silent`` says why. ``targets`` are those that this answer knows of.
        """
        times = grid(since, until, self._step_seconds)
        if times is None:
            nothing = "nothing was asked"
            return Collected(empty_scrapes(), dict(self._targets), silent=nothing, was_asked=False)
        self._ranges.begin()
        at = time_of(times.last)
        problems: list[SourceProblem] = []

        def failed(text: str, errors: Sequence[SourceError]) -> SourceError | None:
            problems.extend(SourceProblem(text, error_text(error), at) for error in errors)
            return next((e for e in errors if not isinstance(e, Partial)), None)

        up, errors = self._ranges.range(self._up, times)
        failure = failed(self._up, errors)
        doubt = problems[0].reason if problems else None  # of who exists
        if failure is not None and not len(up.keys):
            return self._lost(failure, at, problems)
        # an API may round all times alike; what joins is what counts
        joined = np.union1d(times.all, up.times)
        clock = f"timestamp({self._up})"
        scraped_at, errors = self._ranges.range(clock, times)
        errors += _astray(scraped_at.times, joined)
        unclocked = failed(clock, errors)
        results = [
            self._result(query, times, joined, failed)
            for query in sorted(self._queries, key=_weight)
        ]
        vllm = [one for one in results if one.query.metrics[0].wire_name.startswith("vllm:")]
        if all(one.failure is not None and not len(one.answers.keys) for one in vllm):
            return self._lost(vllm[0].failure or "", at, problems)
        collected = scrape_rows(
            up,
            scraped_at,
            sorted(results, key=lambda one: self._queries.index(one.query)),
            times=joined,
            since=since,
            any_instance=bool(self._selector),
            earlier_targets=self._targets,
            unclocked=None if unclocked is None else error_text(unclocked),
        )
        nobody = doubt or self._behind(until)
        if collected.scrapes.is_empty() and nobody is not None:
            return self._lost(nobody, at, problems)
        problems += [SourceProblem(p.where, p.reason, at) for p in collected.problems]
        # an answer about `up` of which some is missing does not say who left
        there = dict(collected.targets) if doubt is None else {**self._targets, **collected.targets}
        self._targets = self._images.added(there, times.last, self._images_of(failed))
        self._placements.prune()
        scrapes = self._with_what_they_are(collected.scrapes)
        return Collected(scrapes, dict(self._targets), folded(problems), silent=doubt)

    def identity(self) -> dict[str, object]:
        """What is asked of whom; no secret is in it."""
        return {
            "prometheus": self._asker.address,
            "tenant": self._asker.tenant,
            "match": self._selector,
            "step_seconds": self._step_seconds,
        }

    def reach(self, now: datetime) -> tuple[datetime, datetime] | None:
        """From when to when the API has scrapes of a vLLM server, to the day; None = of none.

        Looked for in the :data:`REACH_DAYS` before ``now``.
        """
        day, end = round(_DAY.total_seconds() * 1000), unix_ms(now)
        series = select(("vllm:num_requests_running",), matchers(self._selector))
        self._ranges.begin()
        days = Grid(end - REACH_DAYS * day, end, day)
        answer, _ = self._ranges.range(f"count(count_over_time({series}[1d]))", days)
        if not len(answer.times):
            return None
        return time_of(int(answer.times.min())) - _DAY, time_of(int(answer.times.max()))

    def _images_of(self, failed: Failed) -> Ask:
        """Labels of the series at one time; errors are problems."""

        def ask(text: str, times: Grid) -> Sequence[Labels]:
            answer, errors = self._ranges.range(text, times)
            failed(text, errors)
            return answer.labels

        return ask

    def _result(
        self,
        query: Query,
        times: Grid,
        joined: npt.NDArray[np.int64],
        failed: Failed,
    ) -> QueryResult:
        last_series = self._placements.last_series(query.text)
        answer, errors = self._ranges.range(query.text, times, last_series)
        placement = self._placements.of(query, answer)
        errors += _astray(answer.times, joined)
        failure = failed(query.text, errors)
        doubt = next((error_text(error) for error in errors if isinstance(error, Partial)), None)
        return QueryResult(
            query, placement, answer, None if failure is None else error_text(failure), doubt
        )

    def _with_what_they_are(self, scrapes: pl.DataFrame) -> pl.DataFrame:
        """Rows without a ``vllm:`` series say what their target is instead."""
        silent = set(scrapes.filter(pl.col("reason") == STATS_DISABLED)["instance"])
        if not silent:
            return scrapes
        self._foreign |= what_they_are(self._asker, silent - self._foreign.keys())
        what = pl.col("instance").replace_strict(
            self._foreign, default=None, return_dtype=pl.String
        )
        return scrapes.with_columns(
            reason=pl.when(pl.col("reason") == STATS_DISABLED)
            .then(pl.coalesce(what, "reason"))
            .otherwise("reason")
        )

    def close(self) -> None:
        """Give back the connection."""
        self._asker.close()

    def _behind(self, until: datetime) -> str | None:
        """Why the API cannot have scrapes up to there yet: its clock is behind this machine's."""
        date, settle = self._asker.date, timedelta(seconds=self.settle_seconds)
        behind = timedelta() if date is None else until + settle - date
        if not settle < behind < _DAY:  # a day: the past is read, or the time is none
            return None
        return f"its clock is {behind.total_seconds():.0f} s behind"

    def _lost(
        self, failure: SourceError | str, at: datetime, problems: list[SourceProblem]
    ) -> Collected:
        reason = failure if isinstance(failure, str) else error_text(failure)
        rows = failed_rows(self._targets, at, f"{self.name}: {reason}")
        return Collected(rows, dict(self._targets), folded(problems), silent=reason)


_WEIGHTS = ("gauge", "counter", "info", "histogram")


def _weight(query: Query) -> int:
    """What is asked first, for the budget may not last: most verdicts hang on gauges."""
    return _WEIGHTS.index(query.metrics[0].type)


def _astray(times: npt.NDArray[np.int64], joined: npt.NDArray[np.int64]) -> list[BadPage]:
    """Why samples at times that nobody asked for join nothing."""
    astray = np.setdiff1d(times, joined)
    if not len(astray):
        return []
    first = time_of(int(astray[0])).isoformat(timespec="milliseconds")
    return [BadPage(f"{len(astray)} of {len(times)} times were not asked for, such as {first}")]
