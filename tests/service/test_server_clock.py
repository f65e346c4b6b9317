"""Another machine's clock, by the Date of its answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from driftwatch.clock import SystemClock
from driftwatch.doctor.server_clock import clock_offset, clock_offsets


@contextmanager
def _answering(head: str) -> Iterator[str]:
    """A server that answers every request with these lines."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode())

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _date(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("seconds", "status"), [(120, "200 OK"), (-3600, "405 Method Not Allowed")]
)
def test_any_answer_tells_the_time(seconds: float, status: str) -> None:
    with _answering(f"HTTP/1.1 {status}\r\nDate: {_date(seconds)}") as url:
        ahead = clock_offset(url, SystemClock())
    assert ahead is not None
    assert abs(ahead - seconds) < 20  # a loaded machine may take its time


@pytest.mark.parametrize("head", ["HTTP/1.1 200 OK\r\nDate: today", "hello"])
def test_a_server_that_does_not_say_is_not_known(head: str) -> None:
    with _answering(head) as url:
        assert clock_offset(url, SystemClock()) is None


def test_several_at_once() -> None:
    with _answering(f"HTTP/1.1 200 OK\r\nDate: {_date(600)}") as url:
        found = clock_offsets({"a": url, "b": "http://127.0.0.1:1/", "c": url}, SystemClock())
    assert sorted(found) == ["a", "c"]
    assert clock_offsets({}, SystemClock()) == {}
