"""Every series that was received: its number, the query that reads it, its instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from driftwatch.collect.prometheus.answer import Heads
from driftwatch.collect.prometheus.query import Labels, Query, Selector
from driftwatch.collect.remote_write import kernel_wire as kernel
from driftwatch.collect.remote_write.kernel_wire import Hashes, Numbers, Small
from driftwatch.collect.remote_write.request import WriteRequest
from driftwatch.errors import BadPage

UP = "up"
IGNORED = -1  # the query of a series that nothing is read from
MOST_SERIES = 20_000_000
_FIRST_ROOM = 1024


class SeriesTable:
    """Series by the hash of their labels; numbers are given in the order of their arrival.

    ``wanted``: sample name → index of its query; ``up`` is one after the last. ``selector``: labels
    that a series must carry.
    """

    def __init__(self, queries: Sequence[Query], selector: Selector) -> None:
        self.up = len(queries)
        self._wanted = {name: i for i, query in enumerate(queries) for name in query.ranks}
        self._wanted[UP] = self.up
        self._selector = {k: (v,) if isinstance(v, str) else tuple(v) for k, v in selector.items()}
        self.instances: dict[str, int] = {}
        self.heads: list[Heads] = [Heads() for _ in range(self.up + 1)]  # of series not yet taken
        self.nameless: Labels | None = None  # labels of a series without an instance
        self.count = 0
        self._next_id = 0  # ids given so far
        self._room(_FIRST_ROOM)

    def _room(self, size: int) -> None:
        """Arrays for so many series, with those that there are."""
        count = self.count

        def room(name: str, array: Any) -> Any:
            if count:
                array[:count] = getattr(self, name)[:count]
            return array

        self.hashes: Hashes = room("hashes", np.empty((size, 2), np.uint64))
        self.query: npt.NDArray[np.int16] = room("query", np.empty(size, np.int16))
        self.instance: Small = room("instance", np.empty(size, np.int32))
        # of each series, never given twice
        self.ids: Numbers = room("ids", np.empty(size, np.int64))
        # of each series, when something of it came last
        self.last_ms: Numbers = room("last_ms", np.empty(size, np.int64))
        self._slots = np.full(2 * size, kernel.NONE, np.int32)
        kernel.insert(self.hashes, self._slots, 0, count)

    def numbers(self, request: WriteRequest, at_ms: int) -> Small:
        """The number of each series of a request; those that are not known get one.

        ``at_ms``: when it came.
        Raises BadPage: labels that are none, or too many series.
        """
        numbers = np.empty(len(request.hashes), np.int32)
        if not kernel.find(request.hashes, self.hashes, self._slots, numbers):
            return numbers
        missing = np.nonzero(numbers < 0)[0]
        _, first = np.unique(request.hashes[missing], axis=0, return_index=True)
        fresh = missing[np.sort(first)]
        if self.count + len(fresh) > MOST_SERIES:
            raise BadPage(f"more than {MOST_SERIES} series: send only what driftwatch reads")
        parsed = [
            (index, *self._parsed(head))
            for indexes, heads in request.heads(fresh)
            for index, head in zip(indexes.tolist(), heads, strict=True)
        ]
        if self.count + len(parsed) > len(self.ids):
            self._room(1 << (self.count + len(parsed) - 1).bit_length())
        began = self.count
        by_query: dict[int, tuple[list[int], list[bytes]]] = {}
        for index, query, instance, head in parsed:
            number, self.count = self.count, self.count + 1
            self.hashes[number] = request.hashes[index]
            self.query[number], self.instance[number] = query, instance
            self.ids[number], self._next_id = self._next_id, self._next_id + 1
            self.last_ms[number] = at_ms
            if query != IGNORED:
                ids, heads = by_query.setdefault(query, ([], []))
                ids.append(self._next_id - 1)
                heads.append(head)
        for query, (ids, heads) in by_query.items():
            self.heads[query].add(np.array(ids, np.int64), heads)
        kernel.insert(self.hashes, self._slots, began, self.count)
        kernel.find(request.hashes, self.hashes, self._slots, numbers)
        return numbers

    def _parsed(self, head: bytes) -> tuple[int, int, bytes]:
        """Query and instance of a series with these labels."""
        try:
            labels: Mapping[str, str] = orjson.loads(head)
        except orjson.JSONDecodeError:
            raise BadPage("labels that are not UTF-8") from None
        query = self._wanted.get(labels.get("__name__", ""), IGNORED)
        if any(labels.get(name) not in values for name, values in self._selector.items()):
            query = IGNORED
        name = labels.get("instance")
        if not name:
            if query != IGNORED:
                self.nameless = labels
            return IGNORED, 0, head
        if query == IGNORED:
            return IGNORED, 0, head
        return query, self.instances.setdefault(name, len(self.instances)), head

    def forget(self, before_ms: int) -> Small | None:
        """Let go of series whose newest sample is older; the new number of each old one.

        None: too few are for it to be worth the while.
        """
        keep = self.last_ms[: self.count] >= before_ms
        staying = int(keep.sum())
        if self.count - staying <= max(1000, self.count // 50):
            return None
        numbers = np.full(self.count, kernel.NONE, np.int32)
        numbers[keep] = np.arange(staying)
        for array in (self.hashes, self.query, self.instance, self.ids, self.last_ms):
            array[:staying] = array[: self.count][keep]
        self.count = staying
        self._room(max(_FIRST_ROOM, 1 << max(0, staying - 1).bit_length()))
        return numbers
