"""A Prometheus-compatible API as a source: a few range queries for the whole fleet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.pages.foreign import STATS_DISABLED
from driftwatch.collect.pages.parser import folded
from driftwatch.collect.prometheus.client import PrometheusAsker, RangeAsker, error_text
from driftwatch.collect.prometheus.discover import what_they_are
from driftwatch.collect.prometheus.images import Ask, PodImages
from driftwatch.collect.prometheus.numbers import RangeAnswer
from driftwatch.collect.prometheus.own_series import narrowed
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
from driftwatch.collect.prometheus.rows import QueryResult, failed_rows, listing, scrape_rows
from driftwatch.collect.schema import Collected, Own, SourceProblem, empty_scrapes
from driftwatch.errors import BadPage, Partial, SourceError, UsageError
from driftwatch.model import Target, TargetKey

REACH_DAYS = 400
_DAY = timedelta(days=1)

# a query and its errors → the one of them because of which there is no answer
Failed = Callable[[str, Sequence[SourceError]], SourceError | None]
# each engine has one series of it
_ENGINES = "vllm:num_requests_running"


@dataclass(frozen=True, slots=True)
class _Asking:
    """What all questions of one answer share."""

    times: Grid
    joined: npt.NDArray[np.int64]  # the grid with the times that answers have instead
    since: datetime
    failed: Failed
    unclocked: SourceError | None  # why ``timestamp(up)`` was not answered


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
    narrows = True

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
        self._matching = matchers(selector)
        self._up = select(("up",), self._matching)
        self._targets: dict[TargetKey, Target] = {}
        self._placements, self._of_listing = Placements(), Placements()
        self._foreign: dict[str, str] = {}  # instance without a vllm: series → what it is
        self._images = PodImages()

    def collect(self, since: datetime, until: datetime, own: Own | None = None) -> Collected:
        """Scrapes with since <= time < until.

        ``own``: whose. All targets are listed even so, with the labels of their series of running
        requests: whose a target is must not hang on who reads it.

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
        asking = _Asking(times, joined, since, failed, failed(clock, errors))
        collected: Collected | str
        if own is None:
            collected = self._scrapes(asking, [self._matching], up, scraped_at, self._targets)
        else:
            collected = self._list(asking, up, scraped_at)
        if isinstance(collected, str):
            return self._lost(collected, at, problems)
        doubt = doubt or collected.silent
        nobody = doubt or self._behind(until)
        looks = collected.scrapes if collected.looks is None else collected.looks
        if looks.is_empty() and nobody is not None:
            return self._lost(nobody, at, problems)
        # an answer about `up` of which some is missing does not say who left
        there = dict(collected.targets) if doubt is None else {**self._targets, **collected.targets}
        self._targets = self._images.added(there, times.last, self._images_of(failed))
        self._of_listing.prune()
        if own is not None:
            brought = self._read_own(asking, own(self._targets), up, scraped_at)
            if isinstance(brought, str):
                return self._lost(brought, at, problems)
            problems += [SourceProblem(p.where, p.reason, at) for p in brought.problems]
            collected = replace(brought, problems=collected.problems, looks=collected.looks)
        problems += [SourceProblem(p.where, p.reason, at) for p in collected.problems]
        self._placements.prune()
        scrapes = self._with_what_they_are(collected.scrapes)
        targets = {**collected.targets, **self._targets}
        return Collected(scrapes, targets, folded(problems), silent=doubt, looks=collected.looks)

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
        series = select((_ENGINES,), self._matching)
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

    def _list(self, asking: _Asking, up: RangeAnswer, scraped_at: RangeAnswer) -> Collected | str:
        """Every target, without a row; or why none can be told."""
        (query,) = (one for one in self._queries if _ENGINES in one.ranks)
        result = self._result(asking, query, [query.text], self._of_listing)
        if result.failure is not None and not len(result.answers.keys):
            return result.failure
        listed = listing(
            *(up, scraped_at, result),
            times=asking.joined,
            since=asking.since,
            any_instance=bool(self._selector),
            earlier_targets=self._targets,
        )
        return replace(listed, silent=result.lacks)

    def _read_own(
        self,
        asking: _Asking,
        own: Collection[TargetKey],
        up: RangeAnswer,
        scraped_at: RangeAnswer,
    ) -> Collected | str:
        """The scrapes of some of the targets; or why none can be read."""
        instances: set[str] = {key.instance for key in own}
        if len(up.keys):
            instances &= {labels.get("instance", "") for labels in up.labels}
        if not instances:
            return Collected(empty_scrapes(), {})
        listed = [target.labels for target in self._targets.values()]
        matching = narrowed(self._selector, instances, up.labels, listed)
        earlier = {k: one for k, one in self._targets.items() if k.instance in instances}
        own_up, own_scraped_at = _of(up, instances), _of(scraped_at, instances)
        return self._scrapes(asking, matching, own_up, own_scraped_at, earlier)

    def _scrapes(
        self,
        asking: _Asking,
        matching: Sequence[str],
        up: RangeAnswer,
        scraped_at: RangeAnswer,
        earlier_targets: Mapping[TargetKey, Target],
    ) -> Collected | str:
        """The scrapes of the targets that are matched; or why none can be read."""
        results = [
            self._result(
                asking,
                query,
                [select(tuple(query.ranks), one) for one in matching],
                self._placements,
            )
            for query in sorted(self._queries, key=_weight)
        ]
        vllm = [one for one in results if one.query.metrics[0].wire_name.startswith("vllm:")]
        if all(one.failure is not None and not len(one.answers.keys) for one in vllm):
            return vllm[0].failure or ""
        return scrape_rows(
            up,
            scraped_at,
            sorted(results, key=lambda one: self._queries.index(one.query)),
            times=asking.joined,
            since=asking.since,
            any_instance=bool(self._selector),
            earlier_targets=earlier_targets,
            unclocked=None if asking.unclocked is None else error_text(asking.unclocked),
        )

    def _result(
        self, asking: _Asking, query: Query, texts: Sequence[str], placements: Placements
    ) -> QueryResult:
        last_series = placements.last_series(query.text)
        answer, errors = self._ranges.range(texts, asking.times, last_series)
        placement = placements.of(query, answer)
        errors += _astray(answer.times, asking.joined)
        failure = asking.failed(query.text, errors)
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


def _of(answer: RangeAnswer, instances: Collection[str]) -> RangeAnswer:
    """The series of these instances, of an answer to a query without known series."""
    wanted = [labels.get("instance") in instances for labels in answer.labels]
    return answer.of_series(np.array(wanted, np.bool_))


def _astray(times: npt.NDArray[np.int64], joined: npt.NDArray[np.int64]) -> list[BadPage]:
    """Why samples at times that nobody asked for join nothing."""
    astray = np.setdiff1d(times, joined)
    if not len(astray):
        return []
    first = time_of(int(astray[0])).isoformat(timespec="milliseconds")
    return [BadPage(f"{len(astray)} of {len(times)} times were not asked for, such as {first}")]
