"""Connections that keep nobody else out: what waits for its client waits for a bounded time, and
where all places are taken the one that has waited longest makes room.
"""

from __future__ import annotations

from asyncio import BaseTransport, TimerHandle
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

# so many connections at once
MOST_CONNECTIONS = 200
# for the headers of a request, and for the next request
HEADER_SECONDS = 8.0
# for an answer to be fetched
FETCH_SECONDS = 60.0


class BoundedConnection(H11Protocol):
    """uvicorn's connection with a deadline wherever it waits for its client."""

    # since when it waits, in the loop's seconds; None: this program is at work on its request
    _waits_since: float | None
    _deadline: TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        """Take it in; where there is no place left, the one that has waited longest goes."""
        if len(self.connections) >= MOST_CONNECTIONS:
            self._make_room()
        super().connection_made(transport)  # type: ignore[arg-type]
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it, and its deadline."""
        self._work()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Read on: headers that are whole end the wait for them, parts of them do not."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._work()

    def on_response_complete(self) -> None:
        """Wait for the answer to be fetched, then for the next request."""
        cycle = self.cycle
        super().on_response_complete()
        # a request that came along with the last one is at work already
        if self.cycle is cycle:
            self._wait()

    def _wait(self) -> None:
        self._work()
        self._waits_since = self.loop.time()
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._overdue)

    def _work(self) -> None:
        self._waits_since = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _overdue(self) -> None:
        since, unread_bytes = self._waits_since, self.transport.get_write_buffer_size()
        if since is not None and unread_bytes and self.loop.time() - since < FETCH_SECONDS:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._overdue)
            return
        self._end()

    def _end(self) -> None:
        self._work()
        # at once: its place is free before the loop comes to it
        self.connections.discard(self)
        self.transport.abort()

    def _make_room(self) -> None:
        waiting = [one for one in self.connections if _waits_since(one) is not None]
        if waiting:
            longest: Any = min(waiting, key=lambda one: _waits_since(one) or 0.0)
            longest._end()


def _waits_since(connection: object) -> float | None:
    since: float | None = getattr(connection, "_waits_since", None)
    return since
