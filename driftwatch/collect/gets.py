"""GETs of many servers at once, each bounded; an answer or a reason comes for every one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from driftwatch.clock import Clock
from driftwatch.collect.fetch import Answer, Bounds, Endpoint

_Came = SimpleQueue[tuple[str, Future[Answer]]]

_POLL_SECONDS = 0.1  # how often deadlines are looked at
_GRACE_SECONDS = 1.0  # for an ended GET to come back; a name look-up cannot be ended


class Gets:
    """GETs under way, at most one per server."""

    def __init__(
        self, endpoints: Mapping[str, Endpoint], clock: Clock, bounds: Bounds, workers: int
    ) -> None:
        self._endpoints = endpoints
        self._clock = clock
        self._bounds = bounds
        self._under_way: dict[str, Future[Answer]] = {}
        self._pool = ThreadPoolExecutor(
            max_workers=max(1, min(workers, len(endpoints))),
            thread_name_prefix="driftwatch-scrape",
        )

    def close(self) -> None:
        """End what is under way and give back the connections."""
        for endpoint in self._endpoints.values():
            if endpoint.started is not None:
                endpoint.abort()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for endpoint in self._endpoints.values():
            endpoint.close()

    def answers(self, addresses: Mapping[str, str]) -> Iterator[tuple[str, Answer]]:
        """GET each address, at most ``workers`` at once; answers as they come."""
        came: _Came = SimpleQueue()
        waiting: set[str] = set()
        for instance, url in addresses.items():
            before = self._under_way.get(instance)
            if before is not None and not before.done():
                yield instance, self._lost("the GET before this one has not ended yet")
                continue
            future = self._pool.submit(self._endpoints[instance].get, url, self._clock)
            self._under_way[instance] = future
            waiting.add(instance)
            future.add_done_callback(partial(_put, came, instance))
        looked = time.monotonic()
        while waiting:
            with suppress(Empty):
                instance, future = came.get(timeout=_POLL_SECONDS)
                # one that was given up may still come back
                if instance in waiting:
                    waiting.discard(instance)
                    yield instance, future.result()
            if time.monotonic() < looked + _POLL_SECONDS:
                continue
            looked = time.monotonic()
            for instance in self._overdue(waiting):
                waiting.discard(instance)
                yield (
                    instance,
                    self._lost(
                        f"no answer within {self._bounds.total_seconds:g} s, not even an address"
                    ),
                )

    def _overdue(self, waiting: set[str]) -> list[str]:
        """End the GETs whose time is over; those that do not even end are given back."""
        now = time.monotonic()
        stuck = []
        for instance in sorted(waiting):
            started = self._endpoints[instance].started
            if started is None or now < started + self._bounds.total_seconds:
                continue
            self._endpoints[instance].abort()
            if now > started + self._bounds.total_seconds + _GRACE_SECONDS:
                stuck.append(instance)
        return stuck

    def _lost(self, reason: str) -> Answer:
        return Answer(self._clock.now(), None, None, reason)


def _put(came: _Came, instance: str, future: Future[Answer]) -> None:
    came.put((instance, future))
