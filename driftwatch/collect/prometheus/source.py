"""A Prometheus-compatible API as a source: raw samples of the whole fleet, as they were scraped."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.doubles import without_doubles
from driftwatch.collect.foreign import NO_SERIES
from driftwatch.collect.prometheus.answer import RawSamples, Reader, attempts_of
from driftwatch.collect.prometheus.client import PrometheusAsker, error_text
from driftwatch.collect.prometheus.query import (
    Question,
    Selector,
    matchers,
    narrowed,
    questions,
    select,
    time_of,
    unix_ms,
)
from driftwatch.collect.prometheus.targets import PodImages, look_for_prefixes
from driftwatch.collect.registry import SERVER_SERIES, VLLM, Labels
from driftwatch.collect.rows import scrape_rows
from driftwatch.collect.samples import Attempt, SourceMemory
from driftwatch.collect.schema import (
    Collected,
    Own,
    Source,
    SourceProblem,
    empty_scrapes,
    folded,
    scrape_frame,
)
from driftwatch.errors import Partial, SourceError, Unavailable
from driftwatch.model import Target, TargetKey

_DAY = timedelta(days=1)

_ENGINES = "vllm:num_requests_running"
# The targets and their labels: each engine has one series of the first, the next two show
# which process is scraped twice, the last one how it was started.
_LISTING = Question(
    (
        *(_ENGINES, "vllm:generation_tokens_created", "vllm:generation_tokens_total"),
        "vllm:cache_config_info",
    ),
    (),
)
_LOOK_MS = 600_000  # how often it is looked for names with another prefix


class _NotRead(Exception):
    """Why no target can be read, in words."""


@dataclass(slots=True)
class _Request:
    """What all questions of one answer share."""

    first_ms: int
    last_ms: int
    deadline: float  # monotonic seconds
    problems: list[SourceProblem] = field(default_factory=list)
    # columns of one query, and why they may be missing
    unread: list[tuple[Sequence[str], str]] = field(default_factory=list)

    @property
    def at(self) -> datetime:
        """The last moment of the interval."""
        return time_of(self.last_ms)

    def note(self, query: str, errors: Sequence[SourceError]) -> SourceError | None:
        """Add a query's errors to the problems; the one that left it without an answer."""
        self.problems += [SourceProblem(query, error_text(error), self.at) for error in errors]
        return next((e for e in errors if not isinstance(e, Partial)), None)


class PrometheusSource:
    """vLLM servers as a Prometheus-compatible API knows them.

    It asks for samples as they were scraped (``selector[60s]``): a row has the time and numbers of
    the scrape, whatever the interval, so that a recording and an API that holds it give the same
    rows. Keep ``until`` at least ``settle_seconds`` behind now: a scrape carries
    the time it began and becomes visible when it ended, at most Prometheus's scrape_timeout (10 s
    by default) later.

    ``selector``: label → value, or values of which one, that all targets' series carry, ``up`` too;
    empty: every server that has a ``vllm:`` series; ``budget_seconds``: for all queries of one
    ``collect``; later ones are refused; ``name``: how problems and pages call this source.
    Raises UsageError: a label that cannot be matched.
    """

    by_minute = True
    narrows = True

    def __init__(
        self,
        asker: PrometheusAsker,
        *,
        selector: Selector,
        budget_seconds: float = 60.0,
        settle_seconds: float = 15.0,
        name: str | None = None,
    ) -> None:
        self._asker = asker
        self._budget_seconds = budget_seconds
        self.name = name or f"prometheus {asker.host}"
        self.settle_seconds = settle_seconds
        self._selector = dict(selector)
        self._matching = matchers(selector)
        self._up = select(("up",), self._matching)
        self._targets: dict[TargetKey, Target] = {}
        self._known = SourceMemory()
        self._prefixes: frozenset[str] = frozenset((VLLM,))  # of vLLM's names
        self._looked_ms: int | None = None  # when they were looked for
        self._images = PodImages()
        self._reader = Reader()

    def collect(self, since: datetime, until: datetime, own: Own | None = None) -> Collected:
        """Scrapes with since <= time < until.

        ``own``: chooses the targets whose scrapes are read. All targets are listed even so, with
        the labels of their series of running requests: a pool must not depend on who reads it.

        A query that fails leaves its columns NULL and is a problem; where no target can be read
        at all, every known target has a row with ``ok`` False and the reason, just before
        ``until``, and ``silent`` says why. ``targets`` are those that this answer knows of.
        """
        return self._collect(since, until, own, tuple(questions()))

    def listing(self, since: datetime, until: datetime) -> Collected:
        """The targets: of their scrapes only running requests and the configuration are read."""
        return self._collect(since, until, None, (_LISTING,))

    def _collect(
        self, since: datetime, until: datetime, own: Own | None, queries: Sequence[Question]
    ) -> Collected:
        first, last = unix_ms(since), unix_ms(until) - 1
        if last < first:
            return Collected(empty_scrapes(), dict(self._targets))
        request = _Request(first, last, time.monotonic() + self._budget_seconds)
        try:
            return self._answer(request, until, own, queries)
        except _NotRead as why:
            return self._lost(str(why), request)

    def _answer(
        self, request: _Request, until: datetime, own: Own | None, queries: Sequence[Question]
    ) -> Collected:
        """Raises _NotRead."""
        errors: list[SourceError] = []
        span = (request.first_ms, request.last_ms)
        ups = list(self._asker.pieces([self._up], *span, errors, request.deadline))
        failure = request.note(self._up, errors)
        if failure is not None and not any(len(up.series) for up in ups):
            raise _NotRead(error_text(failure))
        doubt = error_text(errors[0]) if errors else None  # why the list of targets may be short
        attempts = [attempt for up in ups for attempt in attempts_of(up)]
        self._look_for_prefixes(request)
        first_queries = queries if own is None else (_LISTING,)
        listed = self._scrapes(request, first_queries, [self._matching], attempts)
        listed = without_doubles(listed, self._targets)
        if own is not None:
            doubt = doubt or listed.silent
        unlisted_why = doubt or self._behind(until)
        if listed.scrapes.is_empty() and unlisted_why is not None:
            raise _NotRead(unlisted_why)
        # an incomplete answer about `up` does not show which targets left
        there = dict(listed.targets) if doubt is None else {**self._targets, **listed.targets}
        self._targets = self._images.added(there, lambda text: self._labels(text, request))
        scrapes = listed.scrapes
        if own is not None:
            own_answer = self._read_own(request, queries, own(self._targets), ups, attempts)
            request.problems += [problem for problem in own_answer.problems if problem.lost]
            scrapes = own_answer.scrapes
        problems = folded((*request.problems, *listed.problems))
        targets = {**listed.targets, **self._targets}
        return Collected(scrapes, targets, problems, silent=doubt)

    def _labels(self, text: str, request: _Request) -> Sequence[Labels]:
        """Labels of the series that a query brings; none where it fails."""
        try:
            return [labels for labels, _ in self._asker.instant(text, request.at)]
        except SourceError as error:
            request.note(text, [error])
            return []

    @property
    def prefixes(self) -> frozenset[str]:
        """What stands before vLLM's names there, beside ``vllm:``."""
        return self._prefixes - {VLLM}

    def _look_for_prefixes(self, request: _Request) -> None:
        """What stands before vLLM's names there: relabelling, Ray and KServe write others."""
        if self._looked_ms is not None and 0 <= request.last_ms - self._looked_ms < _LOOK_MS:
            return
        back = timedelta(milliseconds=request.last_ms - request.first_ms)
        try:
            self._prefixes = look_for_prefixes(self._asker, self._matching, request.at, back)
        except SourceError:
            return  # tried again; the next query names what is wrong
        self._looked_ms = request.last_ms

    def _read_own(
        self,
        request: _Request,
        queries: Sequence[Question],
        own: Collection[TargetKey],
        ups: Sequence[RawSamples],
        attempts: Sequence[Attempt],
    ) -> Collected:
        """The scrapes of some of the targets. Raises _NotRead."""
        names = {key.instance for key in own}
        instances = {
            self._targets[key].labels.get("instance", "") for key in own if key in self._targets
        }
        if not instances:
            return Collected(empty_scrapes(), {})
        others = [
            *(o for up in ups for o in up.labels),
            *(t.labels for t in self._targets.values()),
        ]
        is_all = all(labels.get("instance") in instances for labels in others)
        matching = [self._matching] if is_all else narrowed(self._selector, instances)
        tried = [one for one in attempts if dict(one.server).get("instance") in instances]
        own_answer = self._scrapes(request, queries, matching, tried)
        return replace(
            own_answer, scrapes=own_answer.scrapes.filter(pl.col("instance").is_in(names))
        )

    def _scrapes(
        self,
        request: _Request,
        queries: Sequence[Question],
        matching: Sequence[str],
        attempts: Sequence[Attempt],
    ) -> Collected:
        """The scrapes of the targets that are matched. Raises _NotRead."""
        reader = self._reader
        reader.begin(self._prefixes)
        failures = []
        for question in queries:
            failure = self._read(request, question, matching)
            if question.names[0].startswith("vllm:"):
                failures.append(failure)
        first = failures[0]
        if all(failures) and reader.samples.is_empty:
            raise _NotRead(first)
        silent = f"no vllm: series was read ({first})" if first else NO_SERIES
        collected = scrape_rows(
            reader.samples,
            attempts,
            self._known,
            unread=request.unread,
            silent=silent,
            any_server=bool(self._selector),
        )
        return replace(collected, silent=first)

    def _read(self, request: _Request, question: Question, matching: Sequence[str]) -> str | None:
        """Read the answer to one query; returns why some of it is missing, None = it is whole."""
        errors: list[SourceError] = []
        reader, names = self._reader, question.written(sorted(self._prefixes))
        texts = [select(names, one) for one in matching]
        span = (request.first_ms, request.last_ms)
        pieces = self._asker.pieces(texts, *span, errors, request.deadline)
        if not reader.has_learnt:
            pieces = iter(held := list(pieces))
            reader.learn(held, SERVER_SERIES)
        for piece in pieces:
            reader.add(piece, question.title)
        failure = request.note(question.title, errors)
        doubt = failure or next(iter(errors), None)
        if doubt is None:
            return None
        if question.columns:
            request.unread.append((question.columns, error_text(doubt)))
        return error_text(doubt)

    def remember(self, stored: Mapping[TargetKey, Target]) -> None:
        """The targets of a store: they keep their names."""
        self._known.names.remember(stored)

    def close(self) -> None:
        """Give back the connection."""
        self._asker.close()

    def _behind(self, until: datetime) -> str | None:
        """Why the API cannot have scrapes up to there yet: its clock is behind this machine's."""
        date, settle = self._asker.date, timedelta(seconds=self.settle_seconds)
        behind = timedelta() if date is None else until + settle - date
        if not settle < behind < _DAY:  # a day: it is the past that is read, or the header is wrong
            return None
        return f"its clock is {behind.total_seconds():.0f} s behind"

    def _lost(self, reason: str, request: _Request) -> Collected:
        failed = {"time": request.at, "ok": False, "reason": f"{self.name}: {reason}"}
        rows = scrape_frame([key._asdict() | failed for key in sorted(self._targets)])
        return Collected(rows, dict(self._targets), folded(request.problems), silent=reason)


class AnsweringSource:
    """A source whose past is read once: where it does not answer, that is an error.

    A live service goes on without a silent source, and every target has that reason. A replay must
    not take the absence of the database for the absence of the servers.

    ``help_text``: what to check where it never answered.
    """

    def __init__(self, source: Source, help_text: str) -> None:
        self.name, self.settle_seconds = source.name, source.settle_seconds
        self._source, self._help_text = source, help_text
        self._answered = False

    def collect(self, since: datetime, until: datetime) -> Collected:
        """As the source.

        Raises Unavailable: it does not answer.
        """
        collected = self._source.collect(since, until)
        # one that answered in part names what is missing
        if collected.silent is None or collected.scrapes["ok"].any():
            self._answered = True
            return collected
        why = collected.silent.removeprefix("Unavailable: ")
        raise Unavailable(
            f"{self.name} does not answer from {since:%Y-%m-%dT%H:%M:%SZ} on: {why}",
            help_text=None if self._answered else self._help_text,
        )

    def close(self) -> None:
        """Give back connections."""
        self._source.close()
