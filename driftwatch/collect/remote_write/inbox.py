"""Samples between their arrival and the tick that takes them; bounded."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftwatch.collect.prometheus.answer import Heads
from driftwatch.collect.prometheus.query import Query, Selector
from driftwatch.collect.remote_write.kernel_wire import Floats, Numbers, Small
from driftwatch.collect.remote_write.request import WriteRequest
from driftwatch.collect.remote_write.series import SeriesTable

MOST_SAMPLES = 40_000_000  # 16 bytes each; 10,000 servers at 15 s bring 9.5 million a minute
AHEAD_MS = 300_000  # a sample this far in the future is of a wrong clock
BACK_MS = 180_000  # minutes that old were judged without what a sender still brings of them
# A series without a sample for so long has ended, as for Prometheus.
LOOKBACK_MS = 300_000


class FullInbox(Exception):
    """There is no room until a tick takes what is there."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Samples that came together."""

    series: Small
    base_ms: int
    after_ms: Small  # time of each sample after the base
    value: Floats


@dataclass(frozen=True, slots=True)
class Samples:
    """What a tick takes, with the series as they are then."""

    series: Small  # number of each sample's series
    at_ms: Numbers
    value: Floats
    query: npt.NDArray[np.int16]  # of each series
    instance: Small  # of each series
    ids: Numbers  # of each series
    instances: tuple[str, ...]
    heads: Sequence[Heads]  # by query, of the series that are new


class Inbox:
    """What was received and not yet taken; for use from several threads.

    ``rejected``: reason → samples that were not kept; ``samples``: how many were; ``newest_ms``:
    the highest time of a sample, and ``newest_late_ms``: how late it came; ``received_ms``: when
    the last request came; all 0 before the first one.
    """

    def __init__(self, queries: Sequence[Query], selector: Selector) -> None:
        self.table = SeriesTable(queries, selector)
        self.rejected: Counter[str] = Counter()
        self.samples = self.waiting = self.newest_ms = self.newest_late_ms = self.received_ms = 0
        self._taken_until_ms = 0
        self._blocks: list[_Block] = []
        self._lock = threading.Lock()

    def add(self, request: WriteRequest, now_ms: int) -> Counter[str]:
        """Keep the samples of a request; reason → how many were refused.

        A sample of a minute that was judged is late and a retry of one that waits is the same
        sample: both change nothing.

        Raises FullInbox: nothing of it was kept; BadPage: as :meth:`SeriesTable.numbers`.
        """
        with self._lock:
            if self.waiting + len(request.value) > MOST_SAMPLES:
                raise FullInbox
            numbers = self.table.numbers(request, now_ms)
            self.table.last_ms[numbers] = now_ms
            self.received_ms = now_ms
            series, at_ms = np.repeat(numbers, request.counts), request.at_ms
            wanted = self.table.query[series] >= 0
            late = at_ms < max(self._taken_until_ms, now_ms - BACK_MS)
            ahead = at_ms > now_ms + AHEAD_MS
            refused = Counter(
                late=int((wanted & late).sum()),
                future=int((wanted & ahead).sum()),
                native_histogram=request.native,
            )
            keep = wanted & ~late & ~ahead
            if keep.any():
                at_ms = at_ms[keep]
                newest = int(at_ms.max())
                if newest > self.newest_ms:
                    self.newest_ms, self.newest_late_ms = newest, now_ms - newest
                base = int(at_ms.min())
                after = (at_ms - base).astype(np.int32)
                self._blocks.append(_Block(series[keep], base, after, request.value[keep]))
                self.waiting += len(after)
                self.samples += len(after)
            self.rejected += refused
        return +refused

    def take(self, until_ms: int) -> Samples:
        """Everything before this time; what comes later and is of before is late."""
        with self._lock:
            blocks, self._blocks = self._blocks, []
            self._taken_until_ms = max(self._taken_until_ms, until_ms)
            table, count = self.table, self.table.count
            heads, table.heads = table.heads, [Heads() for _ in table.heads]
            early: list[_Block] = []
            for block in blocks:
                is_early = block.after_ms < until_ms - block.base_ms
                for part, into in ((is_early, early), (~is_early, self._blocks)):
                    if part.all():
                        into.append(block)
                    elif part.any():
                        into.append(
                            _Block(
                                block.series[part], block.base_ms, block.after_ms[part],
                                block.value[part],
                            )
                        )  # fmt: skip
            self.waiting = sum(len(block.series) for block in self._blocks)
            views = table.query[:count], table.instance[:count], table.ids[:count]
            instances = tuple(table.instances)
        none = _Block(np.empty(0, np.int32), 0, np.empty(0, np.int32), np.empty(0))
        early = early or [none]
        return Samples(
            np.concatenate([block.series for block in early]),
            np.concatenate([block.base_ms + block.after_ms.astype(np.int64) for block in early]),
            np.concatenate([block.value for block in early]),
            *views,
            instances,
            heads,
        )

    @property
    def is_half_full(self) -> bool:
        """There is no room to wait for more."""
        return self.waiting > MOST_SAMPLES // 2

    def forget(self, now_ms: int) -> bool:
        """Let go of series that ended; whether numbers of series changed."""
        with self._lock:
            numbers = self.table.forget(now_ms - LOOKBACK_MS)
            if numbers is None:
                return False
            self._blocks = [
                _Block(numbers[b.series], b.base_ms, b.after_ms, b.value) for b in self._blocks
            ]
        return True
