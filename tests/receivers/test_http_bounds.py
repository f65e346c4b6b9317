"""Every bound of the way out to receivers, against servers that break it on real sockets."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from driftwatch.errors import DeliveryError
from driftwatch.receivers import http
from driftwatch.receivers.http import Limits

QUICK = Limits(seconds=0.5)
Wire = Callable[[socket.socket, threading.Event], None]
Send = Callable[[socket.socket, bytes, threading.Event], None]


def post(*arguments: Any, **named: Any) -> str | DeliveryError:
    """The text of the answer, or the error, which carries no other."""
    try:
        return http.post(*arguments, **named).text
    except DeliveryError as error:
        assert error.__context__ is None
        return error


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


def begins(head: bytes, part: bytes, send: Send) -> Wire:
    """A server that answers with a beginning and then for ever with the same part."""

    def wire(connection: socket.socket, over: threading.Event) -> None:
        request(connection)
        connection.sendall(head)
        send(connection, part, over)

    return wire


@pytest.mark.parametrize(
    "wire",
    [
        begins(b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"a" * 4000 + b"\r\n", endless),
        begins(b"", b"a" * 4000, endless),
        begins(b"", b"HTTP/1.1 100 Continue\r\n\r\n", endless),
        begins(b"", b"H", drip),
        begins(b"HTTP/1.1 200 OK\r\n", b"X: 1\r\n", drip),
        begins(b"220 mail.example ESMTP\r\n", b"", drip),
        lambda connection, over: over.wait(5) and None,
        lambda connection, over: request(connection),
    ],
    ids=["headers", "a line", "1xx", "bytes", "lines", "no HTTP", "silence", "hangs up"],
)
def test_no_answer_ever_holds_a_receiver_longer_than_its_limit(wire: Wire) -> None:
    assert failed(wire).startswith("ops: ")


def test_a_request_that_is_never_read() -> None:
    def wire(connection: socket.socket, over: threading.Event) -> None:
        over.wait(5)

    with peer(wire) as url:
        answer = post("ops", url, b"x" * 64_000_000, {}, QUICK)
    assert isinstance(answer, DeliveryError)
    assert answer.message == "ops: no answer within 0.5 s"


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/canary"
    answer = post("ops", url, b"", {}, QUICK)
    assert isinstance(answer, DeliveryError)
    assert (answer.message, answer.permanent) == ("ops: connection refused", False)


def test_no_link_local_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    url, tried = "http://169.254.169.254/canary", []

    def connect(self: socket.socket, target: object) -> None:
        tried.append(target)
        raise OSError(111, "Connection refused")

    monkeypatch.setattr(socket.socket, "connect", connect)
    answer = post("ops", url, b"", {}, QUICK)
    assert isinstance(answer, DeliveryError) and answer.permanent
    assert tried == []


BODIES = {
    "until it closes": b"HTTP/1.1 %d X\r\n\r\n",
    "of a length": b"HTTP/1.1 %d X\r\nContent-Length: 99999999999\r\n\r\n",
    "in one endless chunk": b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
}


@pytest.mark.parametrize("head", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize(("send", "status"), [(endless, 200), (drip, 503)])
def test_a_text_that_never_ends(head: bytes, send: Send, status: int) -> None:
    """The status has come: a text beyond it delays, and changes nothing."""

    wire = begins(head % status, b"a" * (8192 if send is endless else 1), send)
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
        "Accept": "*/*",
        "X-Y": "z",
        "Authorization": "Basic dXNlcjpwQHNz",
        "Accept-Encoding": "identity",
        "Content-Length": "2",
        "Connection": "close",
    }


def certificate(folder: Path, *options: str) -> tuple[ssl.SSLContext, Path]:
    """A server's side of a certificate that signs itself, and its file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, file = folder / "own.key", folder / "own.pem"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    subprocess.run(
        ["openssl", "req", "-x509", *curve, "-nodes", "-subj", "/CN=x", "-days", "2",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(file)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    return context, file


def test_a_certificate_is_trusted_if_the_machine_trusts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, file = certificate(tmp_path)

    def wire(connection: socket.socket, over: threading.Event) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            request = b""
            while not request.endswith(b"{}"):  # unread, the body would end in a reset
                request += wrapped.recv(65536) or b"{}"
            wrapped.sendall(b"HTTP/1.1 204 X\r\n\r\n")

    def asked_by_tls() -> str | DeliveryError:
        http._trusted.cache_clear()
        with peer(wire) as url:
            return post("ops", url.replace("http:", "https:"), b"{}", {})

    error = asked_by_tls()
    assert str(error) == "ops: its certificate was not accepted: self-signed certificate"
    assert not error.permanent  # type: ignore[union-attr]
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert asked_by_tls() == ""
    monkeypatch.undo()
    http._trusted.cache_clear()


def test_a_handshake_that_hangs() -> None:
    with peer(lambda connection, over: over.wait(5) and None) as url:
        error = post("ops", url.replace("http:", "https:"), b"{}", {}, QUICK)
    assert str(error) == "ops: no answer within 0.5 s"
