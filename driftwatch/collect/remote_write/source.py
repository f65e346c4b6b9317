"""What a Prometheus, vmagent or Alloy writes, as a source: the scrapes of each minute as rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.clock import Clock
from driftwatch.collect.prometheus.answer import Heads
from driftwatch.collect.prometheus.numbers import RangeAnswer
from driftwatch.collect.prometheus.placement import Placements
from driftwatch.collect.prometheus.query import (
    Selector,
    matchers,
    queries,
    short_name,
    time_of,
    unix_ms,
)
from driftwatch.collect.prometheus.rows import QueryResult, scrape_rows
from driftwatch.collect.remote_write import kernel_wire as kernel
from driftwatch.collect.remote_write.inbox import LOOKBACK_MS, Inbox, Samples
from driftwatch.collect.remote_write.kernel_wire import Floats, Numbers, Small
from driftwatch.collect.remote_write.receiver import Receiver, Token
from driftwatch.collect.schema import Collected, SourceProblem, empty_scrapes
from driftwatch.errors import Unavailable
from driftwatch.model import Target, TargetKey

# A sender that wrote nothing for so long is gone; the longest usual scrape interval is a minute.
SILENT_SECONDS = 90.0
_PIECE_MS = 120_000  # scrapes of so long become rows at once
_FORGET_MS = 60_000


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where each series stands in the table of values: those of a query together."""

    row_of: Small  # of each series, NONE where it is not read
    starts: Numbers  # where each query begins, and the end
    series: Numbers  # of each row


class RemoteWriteSource:
    """vLLM servers as a sender of Prometheus remote write 1.0 knows them.

    ``address``: host and port to listen on; ``selector``: label → value, or values of which one,
    that a series must carry, ``up`` too; ``token``: gives what a sender must show as bearer token,
    None = anybody may write.
    The ``up`` of a target must come too: its samples say when a scrape was, and how it went.
    Raises UsageError: the address cannot be bound, or a label that cannot be matched.
    """

    settle_seconds = 15.0
    by_minute = True

    def __init__(
        self, address: tuple[str, int], clock: Clock, *, selector: Selector, token: Token = None
    ) -> None:
        matchers(selector)
        self._clock, self._selector = clock, dict(selector)
        self._queries = queries({})
        self.inbox = Inbox(self._queries, selector)
        self.receiver = Receiver(address, self.inbox, clock, token)
        host, port = self.receiver.address
        self.name = f"remote write {host}:{port}"
        self._targets: dict[TargetKey, Target] = {}
        self._placements = Placements()
        self._up_heads: dict[int, bytes] = {}
        self._up_ms: dict[str, int] = {}  # instance → its newest scrape that has not ended
        self._rows: _Rows | None = None
        self._forgotten_ms = 0

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Scrapes with since <= time < until.

        Raises Unavailable: not all of them can be there yet.
        """
        if (why := self._why_incomplete()) is not None:
            raise Unavailable(why)
        since_ms, until_ms = unix_ms(since), unix_ms(until)
        samples = self.inbox.take(until_ms)
        for head in samples.heads[-1].pieces():
            self._up_heads |= zip(head[0].tolist(), head[1], strict=True)
        pieces = list(self._pieces(samples, since_ms, until_ms))
        self._forget(until_ms)
        frames = [piece.scrapes for piece in pieces]
        problems = [problem for piece in pieces for problem in piece.problems]
        if (nameless := self.inbox.table.nameless) is not None:
            reason = f"{short_name(nameless)} has no instance label: not read"
            problems.append(SourceProblem(self.name, reason))
        ours = {key: one for piece in pieces for key, one in piece.targets.items()}
        listed = {instance for instance, at in self._up_ms.items() if at >= until_ms - LOOKBACK_MS}
        self._targets = {
            key: one
            for key, one in sorted({**self._targets, **ours}.items())
            if key.instance in listed
        }
        scrapes = pl.concat(frames) if frames else empty_scrapes()
        if len(frames) > 1:
            scrapes = scrapes.sort("instance", "engine", "time")
        dated = [SourceProblem(p.where, p.reason, p.time or until) for p in problems]
        return Collected(scrapes, dict(self._targets), tuple(dated))

    def identity(self) -> dict[str, object]:
        """Where it listens for what."""
        return {"remote_write": self.name, "match": self._selector}

    def close(self) -> None:
        """Listen no more."""
        self.receiver.close()

    def _why_incomplete(self) -> str | None:
        inbox, now = self.inbox, unix_ms(self._clock.now())
        if not inbox.newest_ms:
            return f"{self.name}: nothing was received yet"
        silent, late = (now - inbox.received_ms) / 1000, inbox.newest_late_ms / 1000
        if silent > SILENT_SECONDS:
            return f"{self.name}: nothing was received for {silent:.0f} s"
        if late > self.settle_seconds and not inbox.is_half_full:
            return (
                f"{self.name}: the newest sample came {late:.0f} s after its scrape: the sender "
                "catches up, or its clock is behind"
            )
        return None

    def _pieces(self, samples: Samples, since_ms: int, until_ms: int) -> Iterator[Collected]:
        """Rows, two minutes at a time: a table of all would hold mostly nothing."""
        first = int(samples.at_ms.min()) if len(samples.at_ms) else until_ms
        begin = max(since_ms, first)
        heads = samples.heads
        while begin < until_ms:
            end = min(begin + _PIECE_MS, until_ms)
            here = (samples.at_ms >= begin) & (samples.at_ms < end)
            if not here.all():
                part = replace(
                    samples, series=samples.series[here], at_ms=samples.at_ms[here],
                    value=samples.value[here], heads=heads,
                )  # fmt: skip
            else:
                part = replace(samples, heads=heads)
            if len(part.series):
                yield self._piece(part, begin)
                heads = [Heads() for _ in heads]
            begin = end

    def _piece(self, samples: Samples, since_ms: int) -> Collected:
        """Rows of samples; the place of an instance's scrape among them is its time on a grid."""
        starts, times = self._scrapes(samples)
        rows = self._places(samples)
        most = int(np.diff(starts).max(initial=0))
        value = np.full((len(rows.series), most), np.nan)
        there = np.zeros(value.shape, np.bool_)
        twice = np.zeros(len(value), np.bool_)
        lost = kernel.scatter(
            samples.series, samples.at_ms, samples.value, rows.row_of, samples.instance,
            starts, times, value, there, twice,
        )  # fmt: skip
        grid = np.arange(most)
        results, of_up = [], len(self._queries)
        for number in range(of_up + 1):
            part = slice(int(rows.starts[number]), int(rows.starts[number + 1]))
            answer = RangeAnswer(
                samples.ids[rows.series[part]],
                grid,
                value[part],
                None if there[part].all() else there[part],
                tuple(np.nonzero(twice[part])[0].tolist()),
                samples.heads[number],
            )
            if number == of_up:
                break
            placement = self._placements.of(self._queries[number], answer)
            results.append(QueryResult(self._queries[number], placement, answer, None))
        up, clock = self._clocks(samples, rows, answer, starts, times)
        collected = scrape_rows(
            up,
            clock,
            results,
            times=grid,
            since=time_of(since_ms),
            any_instance=bool(self._selector),
            earlier_targets=self._targets,
        )
        self._placements.prune()
        if not lost:
            return collected
        reason = f"{lost} samples at a time without `up`: keep it in write_relabel_configs"
        return replace(collected, problems=(*collected.problems, SourceProblem(self.name, reason)))

    def _scrapes(self, samples: Samples) -> tuple[Numbers, Numbers]:
        """Where the scrapes of each instance begin among their times, and these: those of `up`."""
        ups = samples.query[samples.series] == len(self._queries)
        whose = samples.instance[samples.series[ups]].astype(np.int64)
        times = samples.at_ms[ups]
        order = np.lexsort((times, whose))
        whose, times = whose[order], times[order]
        new = np.ones(len(times), np.bool_)
        new[1:] = (whose[1:] != whose[:-1]) | (times[1:] != times[:-1])
        counts = np.bincount(whose[new], minlength=len(samples.instances))
        return np.concatenate([[0], np.cumsum(counts)]), times[new]

    def _places(self, samples: Samples) -> _Rows:
        """The rows of this call's series, those of the last call where no series came or went."""
        rows = self._rows
        if rows is None or len(rows.row_of) != len(samples.query):
            query = samples.query
            series = np.argsort(query, kind="stable")[int((query < 0).sum()) :]
            row_of = np.full(len(query), kernel.NONE, np.int32)
            row_of[series] = np.arange(len(series))
            starts = np.searchsorted(query[series], np.arange(len(self._queries) + 2))
            rows = self._rows = _Rows(row_of, starts, series)
        return rows

    def _clocks(
        self, samples: Samples, rows: _Rows, up: RangeAnswer, starts: Numbers, times: Numbers
    ) -> tuple[RangeAnswer, RangeAnswer]:
        """``up`` and the times of its samples, as an API answers ``timestamp(up)``."""
        whose = samples.instance[rows.series[int(rows.starts[-2]) :]]
        sizes = np.diff(starts)
        at: Floats = np.full((len(samples.instances), len(up.times)), np.nan)
        at[np.repeat(np.arange(len(sizes)), sizes), _within(sizes)] = times / 1000
        heads = Heads()
        heads.add(up.keys, [self._up_heads[one] for one in up.keys.tolist()])
        scraped_at = replace(up, value=at[whose], heads=heads)
        there = np.ones(up.value.shape, np.bool_) if up.there is None else up.there
        last = sizes[whose] - 1
        goes_on = np.zeros(len(sizes), np.bool_)
        goes_on[whose[(last >= 0) & there[np.arange(len(whose)), last]]] = True
        for number in np.nonzero(sizes)[0].tolist():
            name = samples.instances[number]
            if goes_on[number]:
                self._up_ms[name] = int(times[starts[number + 1] - 1])
            else:  # its last word is a stale marker
                self._up_ms.pop(name, None)
        return replace(up, heads=heads), scraped_at

    def _forget(self, until_ms: int) -> None:
        """Series and instances that ended leave nothing behind."""
        if until_ms - self._forgotten_ms < _FORGET_MS:
            return
        self._forgotten_ms = until_ms
        if self.inbox.forget(unix_ms(self._clock.now())):
            self._rows = None
            staying = set(self.inbox.table.ids[: self.inbox.table.count].tolist())
            self._up_heads = {one: head for one, head in self._up_heads.items() if one in staying}
        ended = until_ms - LOOKBACK_MS
        self._up_ms = {name: at for name, at in self._up_ms.items() if at >= ended}


def _within(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """0, 1, … of each group of these sizes."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
