"""A loopback server that behaves as a test says, and a scrape of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from driftwatch.clock import ManualClock
from driftwatch.collect.http_session import Bounds
from driftwatch.collect.pages import PagesSource
from driftwatch.collect.schema import Collected
from driftwatch.model import TargetKey

T0 = datetime(2026, 1, 2, tzinfo=UTC)
# one bound is short and the others are far away, so that a busy machine changes no answer
PATIENT = Bounds(connect_seconds=20, read_seconds=20, total_seconds=60)
SHORT_READ = Bounds(connect_seconds=20, read_seconds=0.4, total_seconds=60)
SHORT_TOTAL = Bounds(connect_seconds=20, read_seconds=20, total_seconds=0.6)
PAGE = b'vllm:num_requests_running{engine="0",model_name="m"} 3\n'

Behaviour = Callable[[socket.socket, str], None]


@contextmanager
def serving(behave: Behaviour) -> Iterator[str]:
    """A raw server on loopback; ``behave`` gets each connection and the path that was asked."""
    listener = socket.create_server(("127.0.0.1", 0))
    # a closed listener does not wake a blocked accept everywhere
    listener.settimeout(0.05)
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def talk(connection: socket.socket) -> None:
        with connection:
            try:
                asked = b""
                while b"\r\n\r\n" not in asked and (piece := connection.recv(65536)):
                    asked += piece
                if asked:
                    behave(connection, asked.split(b" ")[1].decode())
            except OSError:
                pass  # the client went away: what several of these tests want

    def accept() -> None:
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            connection.settimeout(5)
            threads.append(threading.Thread(target=talk, args=(connection,), daemon=True))
            threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stop.set()
        acceptor.join(10)
        for thread in threads:
            thread.join(10)
        listener.close()
        assert not any(thread.is_alive() for thread in (acceptor, *threads))


def answer(body: bytes = PAGE, status: str = "200 OK", *headers: str, cut: int = 0) -> Behaviour:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    whole = "\r\n".join([*head, "", ""]).encode() + body

    def behave(connection: socket.socket, _: str) -> None:
        connection.sendall(whole[: len(whole) - cut])

    return behave


def scraped(source: PagesSource) -> Collected:
    return source.collect(T0, T0 + timedelta(seconds=15))


def reason_of(behave: Behaviour, bounds: Bounds = PATIENT) -> str:
    """The reason in the one failed row that such a server brings."""
    with serving(behave) as address:
        source = PagesSource([address], ManualClock(T0), bounds)
        try:
            collected = scraped(source)
        finally:
            source.close()
        (row,) = collected.scrapes.to_dicts()
        assert {k for k, v in row.items() if v is not None} == {
            "instance",
            "engine",
            "time",
            "ok",
            "reason",
        }
        assert (row["instance"], row["ok"], row["time"]) == (address, False, T0)
        assert collected.problems == ()
        assert set(collected.targets) == {TargetKey(address, "0")}
        return str(row["reason"])
