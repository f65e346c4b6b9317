"""DCGM through a Prometheus-compatible API: one range query per field for the whole fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
import polars as pl

from driftwatch.collect.dcgm.names import (
    DCGM_NAME_INDEX,
    Roster,
    gpu_of,
    names_of,
    own_pods,
    pod_of,
)
from driftwatch.collect.dcgm.rows import GpuSamples, gpu_table
from driftwatch.collect.gpus import GPU_FIELDS
from driftwatch.collect.pages.parser import folded
from driftwatch.collect.prometheus.answer import LastSeries
from driftwatch.collect.prometheus.client import PrometheusAsker, RangeAsker, error_text
from driftwatch.collect.prometheus.numbers import RangeAnswer
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
_NAME = b'"__name__":"'
NONE = -1  # a series that is of no GPU, or of no field

Exporter = tuple[str, str]  # job and instance


class _Series(NamedTuple):
    """One series of an exporter."""

    head: bytes  # its labels as JSON
    gpu: int  # number in the roster
    name: int  # as :data:`DCGM_NAME_INDEX` counts


class DcgmPrometheusSource:
    """GPU readings of a fleet as a Prometheus-compatible API knows them.

    Readings are those at the times of a grid with ``step_seconds``, aligned to the clock, so that
    they do not depend on when they were asked for. A reading's time is the grid's, not that of the
    scrape: DCGM's own value is up to 30 s old by then anyway.

    ``selector``: label → value that the exporters' series carry; empty: every ``DCGM_`` series;
    ``budget_seconds``: for all queries of one ``collect``; ``settle_seconds``: how old a scrape
    must be to be there for sure; ``name``: how problems call this source.
    Raises UsageError: a label that cannot be matched.
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
        names = dict.fromkeys(name for one in GPU_FIELDS for name in names_of(one))
        self._any = select(tuple(names), matching)
        self._selector = dict(selector or {})
        self._nothing = False  # there was no series of any field when it was asked last
        self._up = f"up and on (job, instance) {select(_ANY_GPU, matching)}"
        self._own: dict[Exporter, frozenset[str]] = {}  # pods of the exporters themselves
        self._targets: dict[Exporter, list[Labels]] = {}  # labels of their up series
        self._listed: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        """Nothing is known of any series."""
        self._roster = Roster()
        self._series: dict[int, _Series] = {}  # by the hash of their labels
        self._unusable: dict[int, str] = {}  # those that cannot be read → why
        self._last: dict[str, LastSeries] = {}  # query → the series of its last answer
        self._last_count: int = 0  # how many there are
        self._unsure: bool = False  # whose pods they are could not be asked

    def identity(self) -> dict[str, object]:
        """What is asked of whom; no secret is in it."""
        return {
            "dcgm": self._asker.address,
            "tenant": self._asker.tenant,
            "match": self._selector,
            "step_seconds": self._step_ms / 1000,
        }

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
        answers: list[RangeAnswer] = []
        if self._unsure or len(self._series) > 4 * self._last_count:
            self._forget()  # to be looked at again, or most of it is gone
        self._ranges.begin()
        if self._nothing:  # one question where there is no DCGM, not one for each field
            answer, errors = self._ranges.range(self._any, times)
            if not len(answer.keys) and not errors:
                return Collected(empty_scrapes(), {})
        for column, text in self._queries:
            answer, errors = self._ranges.range(text, times, self._last.get(text))
            if errors:
                unread[column] = error_text(errors[0])
                problems += [SourceProblem(text, error_text(error), at) for error in errors]
            if not len(answer.keys) and any(
                isinstance(e, Unavailable | AuthFailed) for e in errors
            ):
                if not answers:  # the others would fare no better
                    failure = SourceProblem(self.name, error_text(errors[0]), at)
                    return Collected(empty_scrapes(), {}, (failure,))
                continue
            self._last[text] = LastSeries(answer.keys)
            answers.append(answer)
        count = sum(len(answer.keys) for answer in answers)
        self._last_count, self._nothing = count, not unread and not count
        self._learn(answers, at, problems)
        for answer in answers:
            problems += [
                SourceProblem(self.name, self._unusable[key], at)
                for key in answer.keys.tolist()
                if key in self._unusable
            ]
        gpus = self._table(answers, times, unread)
        if not unread:
            problems += self._departed(gpus, at)
        return Collected(empty_scrapes(), {}, folded(problems), gpus=gpus)

    def close(self) -> None:
        """Give back the connection."""
        self._asker.close()

    def _learn(
        self, answers: Sequence[RangeAnswer], at: datetime, problems: list[SourceProblem]
    ) -> None:
        """Whom each series is of; only those that were not seen before cost anything."""
        heads = {key: head for answer in answers for key, head in answer.heads.named().items()}
        new = {key: _name_apart(head) for key, head in heads.items() if key not in self._series}
        # the fields of a GPU have the same labels, so that one look does for all of them
        distinct = {bare: labels_of(bare) for bare in {bare for _, bare in new.values()}}
        of: dict[Exporter, list[Labels]] = {}
        for labels in distinct.values():
            of.setdefault(exporter_of(labels), []).append(labels)
        if any(pod_of(one)[1] and not one.get("exported_pod") for one in distinct.values()):
            try:
                ups = self._asker.instant(self._up, at)
            except SourceError as error:
                self._unsure = True  # asked again next time
                problems.append(SourceProblem(self._up, error_text(error), at))
            else:
                self._targets = {}
                for labels, _ in ups:
                    self._targets.setdefault(exporter_of(labels), []).append(labels)
        changed = set()
        for exporter, several in of.items():
            before = self._own.get(exporter)
            own = own_pods(several, self._targets.get(exporter)) | (before or frozenset())
            self._own[exporter] = own
            if before is not None and before != own:
                changed.add(exporter)
        for key, series in self._series.items() if changed else ():
            name, bare = _name_apart(series.head)
            labels = distinct.get(bare) or labels_of(bare)
            if exporter_of(labels) in changed:
                new[key], heads[key], distinct[bare] = (name, bare), series.head, labels
        whose = {bare: self._whose(labels) for bare, labels in sorted(distinct.items())}
        for key, (name, bare) in new.items():
            gpu = whose[bare]
            self._unusable.pop(key, None)
            if isinstance(gpu, str):
                self._unusable[key] = f"{short_name(labels_of(heads[key]))}: {gpu}"
                gpu = NONE
            self._series[key] = _Series(heads[key], gpu, DCGM_NAME_INDEX.get(name, NONE))

    def _whose(self, labels: Labels) -> int | str:
        """Number of the GPU, or why that cannot be told."""
        exporter = labels.get("instance") or labels.get("Hostname") or ""
        who = gpu_of(labels, exporter, self._own.get(exporter_of(labels), frozenset()))
        return who if isinstance(who, str) else self._roster.number(who)

    def _table(
        self, answers: Sequence[RangeAnswer], times: Grid, unread: Mapping[str, str]
    ) -> pl.DataFrame:
        gpu, moment, name, value = [_NO_INT], [_NO_INT], [_NO_INT], [_NO_FLOAT]
        for answer in answers:
            series_of = [self._series[key] for key in answer.keys.tolist()]
            whose = np.array([(one.gpu, one.name) for one in series_of], np.int64).reshape(-1, 2)
            series, time, values = answer.samples()
            if len(np.unique(whose, axis=0)) < len(series_of):
                # two jobs that scrape one exporter, the replicas of a Prometheus, a pod with two
                # shares of a GPU: the first in the order of labels counts
                rank = np.argsort(
                    sorted(range(len(series_of)), key=lambda one: series_of[one].head)
                )
                order = np.argsort(rank[series], kind="stable")
                series, time, values = series[order], time[order], values[order]
            usable = (whose[series] != NONE).all(axis=1)
            series, time, values = series[usable], time[usable], values[usable]
            gpu.append(whose[series, 0])
            name.append(whose[series, 1])
            moment.append((answer.times[time] - times.first) // times.step)
            value.append(values)
        moments = [time_of(times.first + i * times.step) for i in range(times.points)]
        samples = GpuSamples(
            np.concatenate(gpu), np.concatenate(moment), np.concatenate(name), np.concatenate(value)
        )
        return gpu_table(self._roster.gpus, moments, samples, unread)

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


def _name_apart(head: bytes) -> tuple[str, bytes]:
    """The name of a series, and its labels as JSON without the name."""
    index = head.find(_NAME)
    if index < 0:
        return "", head
    start = index + len(_NAME)
    end = head.find(b'"', start)
    return head[start:end].decode(), head[:start] + head[end:]


def exporter_of(labels: Labels) -> Exporter:
    """The scrape that a series is of."""
    return labels.get("job", ""), labels.get("instance", "")
