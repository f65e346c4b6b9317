"""Live scrapes of a loopback server that behaves, and of one that does not; addresses."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.manual_clock import ManualClock

from driftwatch.collect.http import address_of
from driftwatch.collect.http_session import Bounds
from driftwatch.collect.pages import PagesSource
from driftwatch.collect.schema import SCRAPE_SCHEMA, Collected
from driftwatch.errors import UsageError
from driftwatch.model import Fingerprint, TargetKey

T0 = datetime(2026, 1, 2, tzinfo=UTC)
# one bound is short and the others are far away, so that a busy machine changes no answer
PATIENT = Bounds(connect_seconds=20, read_seconds=20, total_seconds=60)
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


def test_a_real_page_and_a_server_that_stops_keeps_its_engines(shared_data: Path) -> None:
    body = (shared_data / "vllm-0.32" / "metrics_dp2_after.txt").read_bytes()
    clock = ManualClock(T0)
    with serving(answer(body)) as address:
        source = PagesSource({f"http://{address}/metrics": {"pool": "chat"}}, clock, PATIENT)
        for _ in range(2):
            collected = scraped(source)
            frame = collected.scrapes
            assert dict(frame.schema) == dict(SCRAPE_SCHEMA)
            rows = frame.select("engine", "time", "ok", "iteration_tokens_count").rows()
            assert rows == [("0", T0, True, 402.0), ("1", T0, True, 402.0)]
            assert collected.targets[TargetKey(address, "1")].labels == {
                "pool": "chat",
                "instance": address,
                "engine": "1",
                "model_name": "tiny-llama",
            }
    clock.advance(timedelta(seconds=15))
    collected = scraped(source)
    source.close()
    rows = collected.scrapes.select("engine", "time", "ok", "reason").rows()
    assert rows == [(e, clock.now(), False, "connection refused") for e in ("0", "1")]
    assert len(collected.targets) == 2


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (answer(b"", "401 Unauthorized"), "answers 401 Unauthorized"),
        (answer(b"busy", "503 Whatever"), "answers 503 Service Unavailable"),
        (
            answer(b"", "302 Found", "Location: http://127.0.0.1:9/"),
            "answers 302, a redirect to http://127.0.0.1:9/, which is not followed",
        ),
        (
            answer(b"<html>\n", "200 OK", "Content-Type: text/html; charset=utf-8"),
            "answers HTML (text/html; charset=utf-8), not metrics",
        ),
        (
            answer(b"\x1f\x8b", "200 OK", "Content-Encoding: gzip"),
            "answers with Content-Encoding gzip, which was not asked for",
        ),
        (answer(PAGE * 10, cut=30), f"answer cut off after {len(PAGE) * 10 - 30} bytes"),
        (answer(PAGE[:-1]), f"page cut off at byte {len(PAGE) - 1}, line 1"),
        (lambda c, _: None, "connection closed without an answer"),
        (lambda c, _: c.sendall(b"SSH-2.0-x\r\n"), "BadStatusLine: SSH-2.0-x"),
    ],
)
def test_an_answer_that_is_no_page(behave: Behaviour, reason: str) -> None:
    assert reason_of(behave) == reason


def forever(connection: socket.socket, start: bytes, piece: bytes, pause: float) -> None:
    connection.sendall(start)
    while True:
        connection.sendall(piece)
        time.sleep(pause)


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("start", [b"Content-Length: 999\r\n\r\n", b"X-Slow: "])
def test_a_slow_server_is_given_up(start: bytes) -> None:
    found = reason_of(lambda c, _: forever(c, HEAD + start, b"u", 0.05), SHORT_TOTAL)
    assert found == "no complete answer within 0.6 s"


def test_a_page_without_a_length_is_read_up_to_the_bound() -> None:
    sent: list[int] = []

    def behave(connection: socket.socket, _: str) -> None:
        connection.sendall(HEAD + b"\r\n")
        for _i in range(100):
            connection.sendall(PAGE * 20_000)
            sent.append(1)

    bounds = Bounds(total_seconds=60, body_bytes=4 * 2**20)
    assert reason_of(behave, bounds) == f"answer refused: larger than {4 * 2**20} bytes"
    assert len(sent) < 50


def test_a_name_that_is_not_resolved_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = threading.Event()
    look_up = socket.getaddrinfo

    def slow(host: str, *args: Any, **kwargs: Any) -> Any:
        if host == "slow.invalid":
            resolved.wait(60)
        return look_up(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with serving(answer()) as address:
        urls = {f"http://{address}/metrics?n={n}": {"instance": f"h{n}:1"} for n in range(40)}
        urls["http://slow.invalid:1/metrics"] = {}
        source = PagesSource(urls, ManualClock(T0), Bounds(20, 20, 0.5), workers=2)
        began = time.monotonic()
        rows = scraped(source).scrapes
        assert time.monotonic() - began < 20 * 0.5
        assert rows["ok"].sum() == 40
        resolved.set()
        source.close()


# --- beside the page

NOTHING = Fingerprint()
# of vLLM 0.32 (entrypoints/openai/models/protocol.py), with an adapter before its model
MODELS = b"""{"object": "list", "data": [
  {"id": "sql", "root": "/adapters/sql", "parent": "chat", "max_model_len": null},
  {"id": "chat", "root": "Qwen/Qwen2.5-7B-Instruct", "parent": null, "max_model_len": 16384}]}"""


def test_release_and_model_are_asked_once_and_again_after_a_restart() -> None:
    asked: list[str] = []

    def behave(connection: socket.socket, path: str) -> None:
        asked.append(path)
        body = MODELS if path.endswith("/models") else b'{"version":"0.32.0"}'
        answer(body)(connection, path)

    with serving(behave) as address, serving(answer(b"{}", "404 Not Found")) as none:
        source = PagesSource([f"http://{address}/v/metrics", none])
        told = Fingerprint(
            {"model": "Qwen/Qwen2.5-7B-Instruct"}, {"max_model_len": "16384"}, {"vllm": "0.32.0"}
        )
        for _ in range(2):
            assert source.reports() == {address: told, none: NOTHING}
        assert asked == ["/v/version", "/v/v1/models"]
        source.forget([address])
        assert source.reports()[address] == told
        assert len(asked) == 4
        source.close()


# --- addresses


@pytest.mark.parametrize(
    ("url", "instance"),
    [
        ("gpu-1", "gpu-1:80"),
        ("gpu-1:8000", "gpu-1:8000"),
        ("https://gpu-1", "gpu-1:443"),
        ("http://[::1]:8000/metrics", "[::1]:8000"),
        ("http://user:secret@gpu-1:8000/metrics", "gpu-1:8000"),
    ],
)
def test_the_name_of_an_instance(url: str, instance: str) -> None:
    assert address_of(url).instance == instance


@pytest.mark.parametrize("url", ["ftp://a:1", "http://a:99999", ""])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError):
        PagesSource([url])


def test_two_addresses_of_one_name() -> None:
    with pytest.raises(UsageError, match="already an address with the instance name 'a:1'"):
        PagesSource(["a:1", "http://a:1/other"])
    with pytest.raises(UsageError, match="no address"):
        PagesSource([])
