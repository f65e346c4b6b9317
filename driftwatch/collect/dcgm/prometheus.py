"""DCGM through a Prometheus-compatible API: one range query per field for the whole fleet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.dcgm.names import (
    LOST_NAME,
    READ_NAMES,
    Roster,
    gpu_of,
    names_of,
    own_pods,
    pod_of,
)
from driftwatch.collect.dcgm.rows import GpuSamples, gpu_table
from driftwatch.collect.gpus import GPU_FIELDS
from driftwatch.collect.pages.parser import folded
from driftwatch.collect.prometheus.client import PrometheusAsker, RangeAsker, error_text
from driftwatch.collect.prometheus.numbers import LongAnswer
from driftwatch.collect.prometheus.query import (
    Grid,
    Labels,
    labels_of,
    matchers,
    select,
    short_name,
    time_of,
    unix_ms,
)
from driftwatch.collect.schema import Collected, SourceProblem, empty_scrapes
from driftwatch.errors import AuthFailed, SourceError, Unavailable

# dcgm-exporter reads the GPUs every 30 s unless told otherwise: a finer grid shows nothing more.
STEP_SECONDS = 30.0
# fields that any GPU or MIG instance has, to find the exporters by
_ANY_GPU = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_GR_ENGINE_ACTIVE")
_NO_INT = np.zeros(0, dtype=np.int64)
_NO_FLOAT = np.zeros(0, dtype=np.float64)
_NO_SERIES = "no DCGM series any more: its scrape fails, or it is gone"
_NAMED = 10  # exporters named that are gone; the others are counted


class DcgmPrometheusSource:
    """GPU readings of a fleet as a Prometheus-compatible API knows them.

    Readings are those at the times of a grid with ``step_seconds``, aligned to the clock, so that
    they do not depend on when they were asked for. A reading's time is the grid's, not that of the
    scrape: DCGM's own value is up to 30 s old by then anyway.

    Args:
        selector: label → value that the exporters' series carry; empty: every ``DCGM_`` series.
        budget_seconds: for all queries of one ``collect``.
        settle_seconds: how old a scrape must be to be there for sure.
        name: how problems call this source.

    Raises:
        UsageError: a label that cannot be matched.
    """

    def __init__(
        self,
        asker: PrometheusAsker,
        *,
        selector: Mapping[str, str] | None = None,
        step_seconds: float = STEP_SECONDS,
        budget_seconds: float = 60.0,
        settle_seconds: float = 15.0,
        name: str | None = None,
    ) -> None:
        self.name = name or f"dcgm at prometheus {asker.host}"
        self.settle_seconds = settle_seconds
        self._asker = asker
        self._ranges = RangeAsker(asker, budget_seconds=budget_seconds)
        self._step_ms = max(1, round(step_seconds * 1000))
        matching = matchers(selector or {})
        self._queries = [(one.column, select(names_of(one), matching)) for one in GPU_FIELDS]
        self._queries.append(("lost", select((LOST_NAME,), matching)))
        names = dict.fromkeys(name for one in GPU_FIELDS for name in names_of(one))
        self._any = select((*names, LOST_NAME), matching)
        self._nothing = False  # there was no series of any field when it was asked last
        self._up = f"up and on (job, instance) {select(_ANY_GPU, matching)}"
        self._fleet = Fleet()
        self._own: dict[Exporter, frozenset[str]] = {}  # pods of the exporters themselves
        self._targets: dict[Exporter, list[Labels]] = {}  # labels of their up series
        self._sure: set[tuple[Exporter, str]] = set()  # looked at with these targets
        self._unsure = False  # whose pods they are could not be asked
        self._listed: set[str] = set()

    def collect(self, since: datetime, until: datetime) -> Collected:
        """GPU readings with since <= time < until, at the grid's times.

        A field whose query failed is NULL with the reason; where nothing answers there are no
        rows, and a problem says why.
        """
        times = aligned(since, until, self._step_ms)
        if times is None:
            return Collected(empty_scrapes(), {}, was_asked=False)
        at = time_of(times.last)
        problems: list[SourceProblem] = []
        unread: dict[str, str] = {}
        answers: list[tuple[str, LongAnswer]] = []
        self._ranges.begin()
        if self._nothing:  # one question where there is no DCGM, not one for each field
            answer, errors = self._ranges.range(self._any, times)
            if not answer.heads and not errors:
                return Collected(empty_scrapes(), {})
        for column, text in self._queries:
            answer, errors = self._ranges.range(text, times)
            if errors:
                unread[column] = error_text(errors[0])
                problems += [SourceProblem(text, error_text(error), at) for error in errors]
            if not answer.heads and any(isinstance(e, Unavailable | AuthFailed) for e in errors):
                if not answers:  # the others would fare no better
                    failure = SourceProblem(self.name, error_text(errors[0]), at)
                    return Collected(empty_scrapes(), {}, (failure,))
                continue
            answers.append((text, answer))
        self._nothing = not unread and not any(answer.heads for _, answer in answers)
        self._place(answers, at, problems)
        gpus = self._table(answers, times, unread)
        if not unread:
            problems += self._departed(gpus, at)
        return Collected(empty_scrapes(), {}, folded(problems), gpus=gpus)

    def close(self) -> None:
        """Give back the connection."""
        self._asker.close()

    def _place(
        self, answers: Sequence[tuple[str, LongAnswer]], at: datetime, problems: list[SourceProblem]
    ) -> None:
        """Whom each series is of; only those that were not seen before cost anything."""
        fleet = self._fleet
        few = max((len(answer.heads) for _, answer in answers), default=0) * 4 < len(fleet.numbers)
        if few or self._unsure:  # most of it is gone, or to be looked at again
            fleet, self._unsure = Fleet(), False
            self._fleet = fleet
        apart = {
            text: [name_apart(head) for head in answer.heads]
            for text, answer in answers
            if (codes := fleet.queries.get(text)) is None or codes.heads != answer.heads
        }
        bares = {bare for parts in apart.values() for _, bare in parts}
        new = {bare: labels_of(bare) for bare in bares if bare not in fleet.numbers}
        for exporter in self._learn(new.values(), at, problems):
            new |= {bare: labels_of(bare) for bare in fleet.forget(exporter)}
            fleet.queries.clear()
        if not fleet.queries:
            apart = {text: [name_apart(head) for head in answer.heads] for text, answer in answers}
        for bare in sorted(new):
            labels = new[bare]
            fleet.add(bare, labels, self._own.get(exporter_of(labels), frozenset()))
        for text, answer in answers:
            if text in apart:
                fleet.queries[text] = known_series(answer.heads, apart[text], fleet.numbers)
            if fleet.unusable:
                problems += [
                    SourceProblem(self.name, f"{short_name(labels_of(head))}: {why}", at)
                    for head in answer.heads
                    if (why := fleet.unusable.get(name_apart(head)[1])) is not None
                ]

    def _learn(
        self, new: Collection[Labels], at: datetime, problems: list[SourceProblem]
    ) -> list[Exporter]:
        """Find the exporters' own pods; those are named that turned out to have others."""
        of: dict[Exporter, list[Labels]] = {}
        for labels in new:
            of.setdefault(exporter_of(labels), []).append(labels)
        unsure = {
            (exporter, pod)
            for exporter, all_of_it in of.items()
            for labels in all_of_it
            if (pod := pod_of(labels)[1]) and not labels.get("exported_pod")
        }
        if not unsure <= self._sure:
            try:
                ups = self._asker.instant(self._up, at)
            except SourceError as error:
                self._unsure = True  # asked again next time
                problems.append(SourceProblem(self._up, error_text(error), at))
            else:
                self._sure |= unsure
                self._targets = {}
                for labels, _ in ups:
                    self._targets.setdefault(exporter_of(labels), []).append(labels)
        changed = []
        for exporter, all_of_it in of.items():
            before = self._own.get(exporter)
            own = own_pods(all_of_it, self._targets.get(exporter)) | (before or frozenset())
            self._own[exporter] = own
            if before is not None and before != own:
                changed.append(exporter)
        return changed

    def _table(
        self, answers: Sequence[tuple[str, LongAnswer]], times: Grid, unread: Mapping[str, str]
    ) -> pl.DataFrame:
        gpu, moment, name, value = [_NO_INT], [_NO_INT], [_NO_INT], [_NO_FLOAT]
        for text, answer in answers:
            codes = self._fleet.queries[text]
            long = answer.long
            if codes.order is not None:  # the first in the order of labels counts
                rank = codes.order[long["series"].cast(pl.Int64).to_numpy()]
                long = long[np.argsort(rank, kind="stable")]
            series = long["series"].cast(pl.Int64).to_numpy()
            usable = (codes.gpu[series] != NONE) & (codes.name[series] != NONE)
            series = series[usable]
            gpu.append(codes.gpu[series])
            name.append(codes.name[series])
            moment.append((long["at"].to_numpy()[usable] - times.first) // times.step)
            value.append(long["value"].to_numpy()[usable])
        moments = [time_of(times.first + i * times.step) for i in range(times.points)]
        samples = GpuSamples(
            np.concatenate(gpu), np.concatenate(moment), np.concatenate(name), np.concatenate(value)
        )
        return gpu_table(self._fleet.roster.gpus, moments, samples, unread)

    def _departed(self, gpus: pl.DataFrame, at: datetime) -> list[SourceProblem]:
        """A problem for each exporter that had readings the last time and has none now."""
        listed = set(gpus["exporter"].unique())
        departed = sorted(self._listed - listed)
        self._listed = listed
        problems = [SourceProblem(one, _NO_SERIES, at) for one in departed[:_NAMED]]
        if len(departed) > _NAMED:
            more = f"and {len(departed) - _NAMED} more exporters: {_NO_SERIES}"
            problems.append(SourceProblem(self.name, more, at))
        return problems


def aligned(since: datetime, until: datetime, step_ms: int) -> Grid | None:
    """The multiples of a step in [since, until), None where there is none.

    >>> from datetime import timedelta
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> aligned(noon, noon + timedelta(seconds=60), 30_000).points
    2
    >>> aligned(noon + timedelta(seconds=1), noon + timedelta(seconds=30), 30_000) is None
    True
    """
    first = -(-unix_ms(since) // step_ms) * step_ms
    last = (unix_ms(until) - 1) // step_ms * step_ms
    return Grid(first, last, step_ms) if first <= last else None


NONE = -1  # a series that is of no GPU
_NAMES = {name.encode(): index for name, index in READ_NAMES.items()}
_NAME = b'"__name__":"'

Exporter = tuple[str, str]  # job and instance


@dataclass(frozen=True, slots=True)
class KnownSeries:
    """The last series of one query: whom each is of, and its name.

    ``order`` is each one's rank among the sorted labels, where several tell of the same: two jobs
    that scrape one exporter, the replicas of a Prometheus, a pod that holds two shares of a GPU.
    """

    heads: Sequence[bytes]
    gpu: npt.NDArray[np.int64]
    name: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64] | None


@dataclass(slots=True)
class Fleet:
    """Every GPU that the series told of, worked out once per set of labels."""

    roster: Roster = field(default_factory=Roster)
    numbers: dict[bytes, int] = field(default_factory=dict)  # labels without name → number
    of: dict[Exporter, list[bytes]] = field(default_factory=dict)
    unusable: dict[bytes, str] = field(default_factory=dict)
    queries: dict[str, KnownSeries] = field(default_factory=dict)

    def add(self, bare: bytes, labels: Labels, own: frozenset[str]) -> None:
        """A set of labels that was not seen before."""
        exporter = labels.get("instance") or labels.get("Hostname") or ""
        who = gpu_of(labels, exporter, own)
        self.of.setdefault(exporter_of(labels), []).append(bare)
        if isinstance(who, str):
            self.unusable[bare] = who
            self.numbers[bare] = NONE
        else:
            self.numbers[bare] = self.roster.number(who)

    def forget(self, exporter: Exporter) -> list[bytes]:
        """Sets of labels of one exporter, to be worked out again."""
        bares = self.of.pop(exporter, [])
        for bare in bares:
            del self.numbers[bare]
            self.unusable.pop(bare, None)
        return bares


def known_series(
    heads: Sequence[bytes], apart: Sequence[tuple[bytes, bytes]], numbers: Mapping[bytes, int]
) -> KnownSeries:
    """Whom the series of one answer are of."""
    gpu = np.array([numbers[bare] for _, bare in apart], dtype=np.int64)
    name = np.array([_NAMES.get(one, NONE) for one, _ in apart], dtype=np.int64)
    order = None
    if np.unique(gpu * len(_NAMES) + name).size < len(heads):
        order = np.argsort(np.argsort(np.array(heads, dtype=object)))
    return KnownSeries(heads, gpu, name, order)


def name_apart(head: bytes) -> tuple[bytes, bytes]:
    """The name of a series, and its labels as JSON without the name.

    The fields of a GPU have the same labels, so that one parse does for all of them.
    """
    index = head.find(_NAME)
    if index < 0:
        return b"", head
    start = index + len(_NAME)
    end = head.find(b'"', start)
    return head[start:end], head[:start] + head[end:]


def exporter_of(labels: Labels) -> Exporter:
    """The scrape that a series is of."""
    return labels.get("job", ""), labels.get("instance", "")
