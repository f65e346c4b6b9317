"""Every bound of the way out to receivers, against servers that break it on real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from driftwatch.errors import DeliveryError
from driftwatch.receivers.http import Limits, post

QUICK = Limits(seconds=0.5)
Wire = Callable[[socket.socket, threading.Event], None]


@contextmanager
def peer(wire: Wire) -> Iterator[str]:
    """The URL of a server that reads one request and then does as ``wire`` does."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while not over.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    connection.settimeout(5)
                    wire(connection, over)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/canary-token"
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            assert not thread.is_alive()


def asked(wire: Wire, limits: Limits = QUICK) -> tuple[str | DeliveryError, float]:
    """What ``post`` returns, and the seconds that it took."""
    with peer(wire) as url:
        began = time.monotonic()
        answer = post("ops", url, b"{}", {"Content-Type": "application/json"}, limits)
        seconds = time.monotonic() - began
    assert "canary" not in str(answer)
    return answer, seconds


def failed(wire: Wire, limits: Limits = QUICK) -> str:
    answer, seconds = asked(wire, limits)
    assert isinstance(answer, DeliveryError)
    assert not answer.permanent
    # twice, for a machine that is busy; without the bound each of them lasts for ever
    assert seconds < 2 * limits.seconds + 1
    return answer.message


def endless(connection: socket.socket, part: bytes, over: threading.Event) -> None:
    while not over.is_set():
        connection.sendall(part)


def drip(connection: socket.socket, part: bytes, over: threading.Event) -> None:
    while not over.wait(0.1):
        connection.sendall(part)


def request(connection: socket.socket) -> None:
    while b"\r\n\r\n{}" not in connection.recv(65536, socket.MSG_PEEK):
        time.sleep(0.001)
    connection.recv(65536)


def test_headers_that_never_end() -> None:
    def wire(connection: socket.socket, over: threading.Event) -> None:
        request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        endless(connection, b"X-A: " + b"a" * 4000 + b"\r\n", over)

    assert failed(wire) == "ops: the headers of its answer are too long"


def test_one_line_that_never_ends() -> None:
    def wire(connection: socket.socket, over: threading.Event) -> None:
        request(connection)
        endless(connection, b"a" * 4000, over)

    assert failed(wire) == "ops: the headers of its answer are too long"


def test_more_headers_than_any_server_sends() -> None:
    def wire(connection: socket.socket, over: threading.Event) -> None:
        request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 101 + b"\r\n")
        over.wait(5)

    assert failed(wire) == "ops: its answer is no HTTP, or has too many headers"


def test_answers_of_1xx_that_never_end() -> None:
    def wire(connection: socket.socket, over: threading.Event) -> None:
        request(connection)
        endless(connection, b"HTTP/1.1 100 Continue\r\n\r\n", over)

    assert failed(wire) == "ops: the headers of its answer are too long"


@pytest.mark.parametrize("part", [b"H", b"HTTP/1.1 200 OK\r\nX: 1\r\n", b"X: 1\r\n"])
def test_headers_a_byte_or_a_line_at_a_time(part: bytes) -> None:
    def wire(connection: socket.socket, over: threading.Event) -> None:
        request(connection)
        if part.startswith(b"X"):
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
        drip(connection, part, over)

    assert failed(wire) == "ops: timed out: no answer"


def test_nothing_is_answered() -> None:
    assert failed(lambda connection, over: over.wait(5) and None) == "ops: timed out: no answer"


def test_a_request_that_is_never_read() -> None:
    def wire(connection: socket.socket, over: threading.Event) -> None:
        over.wait(5)

    with peer(wire) as url:
        answer = post("ops", url, b"x" * 64_000_000, {}, QUICK)
    assert isinstance(answer, DeliveryError)
    assert answer.message == "ops: timed out: it does not read"


def test_nobody_accepts() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        fill = []
        for _ in range(4):  # the queue of the port takes one or two more
            one = socket.socket()
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(server.getsockname())
            fill.append(one)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/canary"
        answer = post("ops", url, b"", {}, Limits(seconds=5.0, connect_seconds=0.3))
        for one in fill:
            one.close()
    assert isinstance(answer, DeliveryError)
    assert answer.message == "ops: timed out: no connection"


def test_it_hangs_up_without_an_answer() -> None:
    assert failed(lambda connection, over: request(connection)) == "ops: no answer"


def test_it_speaks_something_else() -> None:
    def wire(connection: socket.socket, over: threading.Event) -> None:
        request(connection)
        connection.sendall(b"220 mail.example ESMTP\r\n")

    assert failed(wire) == "ops: its answer is no HTTP, or has too many headers"


BODIES = {
    "until it closes": b"HTTP/1.1 %d X\r\n\r\n",
    "of a length": b"HTTP/1.1 %d X\r\nContent-Length: 99999999999\r\n\r\n",
    "in one endless chunk": b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
}


@pytest.mark.parametrize("head", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize(("send", "status"), [(endless, 200), (drip, 503)])
def test_a_text_that_never_ends(
    head: bytes, send: Callable[[socket.socket, bytes, threading.Event], None], status: int
) -> None:
    """The status has come: a text beyond it delays, and changes nothing."""

    def wire(connection: socket.socket, over: threading.Event) -> None:
        request(connection)
        connection.sendall(head % status)
        send(connection, b"a" * (8192 if send is endless else 1), over)

    answer, seconds = asked(wire)
    assert seconds < 2
    if status == 200:
        assert isinstance(answer, str)
        assert len(answer) <= QUICK.answer_bytes
    else:
        assert isinstance(answer, DeliveryError)
        assert answer.message.startswith("ops answered 503")
        assert not answer.permanent
    whole, _ = asked(wire, Limits(seconds=0.5, whole=True))
    assert isinstance(whole, DeliveryError)
    assert not whole.permanent


def test_chunk_sizes_and_trailers_that_never_end() -> None:
    for part in (b"0" * 4000, b"1;x=" + b"y" * 4000 + b"\r\na\r\n", b"0\r\n" + b"T: t\r\n" * 900):

        def wire(connection: socket.socket, over: threading.Event, part: bytes = part) -> None:
            request(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            endless(connection, part, over)

        answer, seconds = asked(wire)
        assert isinstance(answer, str)
        assert seconds < 2


def test_a_long_answer_is_taken_where_it_is_asked_for() -> None:
    text = b"a" * 100_000

    def wire(connection: socket.socket, over: threading.Event) -> None:
        request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + text)
        over.wait(5)  # the line stays open: only the length says that this is all

    assert asked(wire, Limits(answer_bytes=100_000, whole=True))[0] == text.decode()
    answer, _ = asked(wire, Limits(answer_bytes=99_999, whole=True))
    assert str(answer) == "ops answered 200, but its answer broke off or is too long"
    assert asked(wire, Limits(answer_bytes=10))[0] == "a" * 10


def test_an_answer_that_breaks_off() -> None:
    def wire(connection: socket.socket, over: threading.Event) -> None:
        request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")

    assert asked(wire)[0] == "ok"
    answer, _ = asked(wire, Limits(whole=True))
    assert isinstance(answer, DeliveryError)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    came = []

    def elsewhere(connection: socket.socket, over: threading.Event) -> None:
        came.append(connection.recv(10))

    with peer(elsewhere) as other:

        def wire(connection: socket.socket, over: threading.Event) -> None:
            request(connection)
            head = f"HTTP/1.1 {status} X\r\nLocation: {other}\r\nContent-Length: 0\r\n\r\n"
            connection.sendall(head.encode())

        answer, _ = asked(wire)
    assert isinstance(answer, DeliveryError)
    assert answer.message == f"ops answered {status}: redirects are not followed"
    assert answer.permanent
    assert came == []


def test_what_is_sent() -> None:
    came = []

    def wire(connection: socket.socket, over: threading.Event) -> None:
        came.append(connection.recv(65536, socket.MSG_PEEK))
        request(connection)
        connection.sendall(b"HTTP/1.1 204 X\r\n\r\n")

    with peer(wire) as url:
        url = url.replace("//", "//user:p%40ss@").replace("canary-token", "a%20b?c=d#e")
        assert post("ops", url, b"{}", {"X-Y": "z"}, QUICK) == ""
        host = url.partition("@")[2].partition("/")[0]
    lines = came[0].decode().split("\r\n")
    assert lines[0] == "POST /a%20b?c=d HTTP/1.1"
    headers = dict(line.split(": ") for line in lines[1:-2])
    assert headers.pop("User-Agent").startswith("driftwatch/")
    assert headers == {
        "Host": host,
        "X-Y": "z",
        "Authorization": "Basic dXNlcjpwQHNz",
        "Accept-Encoding": "identity",
        "Content-Length": "2",
        "Connection": "close",
    }
