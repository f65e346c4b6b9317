"""The way out to receivers: every bound on real sockets, and what each answer means."""

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
from fakes.loopback import Answer, LoopbackServer, Request

from driftwatch.errors import DeliveryError
from driftwatch.receivers import http
from driftwatch.receivers.http import retry_after

QUICK = 0.5
Wire = Callable[[socket.socket, threading.Event], None]
Send = Callable[[socket.socket, bytes, threading.Event], None]


def post(*arguments: Any, **named: Any) -> bytes | DeliveryError:
    """The text of the answer, or the error, which carries no other."""
    try:
        return http.post(*arguments, **named).body
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


def asked(wire: Wire) -> bytes | DeliveryError:
    """What ``post`` returns, within its time."""
    with peer(wire) as url:
        began = time.monotonic()
        answer = post("ops", url, b"{}", seconds=QUICK)
        # twice, for a machine that is busy; without the bound each of them lasts for ever
        assert time.monotonic() - began < 2 * QUICK + 1
    assert "canary" not in str(answer)
    return answer


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


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "wire",
    [
        begins(OK, b"X-A: " + b"a" * 4000 + b"\r\n", endless),
        begins(b"", b"a" * 4000, endless),
        begins(b"", b"HTTP/1.1 100 Continue\r\n\r\n", endless),
        begins(b"", b"H", drip),
        begins(OK, b"X: 1\r\n", drip),
        begins(b"220 mail.example ESMTP\r\n", b"", drip),
        begins(OK + b"\r\n", b"a" * 8192, endless),
        begins(OK + b"Content-Length: 99999999999\r\n\r\n", b"a", drip),
        begins(OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n", b"a" * 8192, endless),
        begins(b"HTTP/1.1 503 X\r\n\r\n", b"a", drip),
        lambda connection, over: over.wait(5) and None,
        lambda connection, over: request(connection),
    ],
    ids=[
        *("headers", "a line", "1xx", "bytes", "lines", "no HTTP", "a body", "a long body"),
        *("a chunk", "an error", "silence", "hangs up"),
    ],
)
def test_no_answer_ever_holds_a_receiver_longer_than_its_limit(wire: Wire) -> None:
    error = asked(wire)
    assert isinstance(error, DeliveryError)
    assert not error.permanent
    assert error.message.startswith("ops")


def test_a_request_that_is_never_read_and_a_handshake_that_hangs() -> None:
    with peer(lambda connection, over: over.wait(5) and None) as url:
        for where, body in ((url, b"x" * 64_000_000), (url.replace("http:", "https:"), b"")):
            answer = post("ops", where, body, seconds=QUICK)
            assert str(answer) == "ops: no complete answer within 0.5 s"


class Server(LoopbackServer):
    """Answers as it is planned to."""

    def judge(self, request: Request) -> Answer:
        return Answer(204)


@pytest.mark.parametrize(
    ("status", "permanent"),
    [
        *((status, True) for status in (301, 302, 303, 307, 308, 400, 401, 403, 404, 410, 413)),
        *((status, False) for status in (408, 425, 429, 500, 502, 503)),
    ],
)
def test_what_a_status_means(status: int, permanent: bool) -> None:
    with Server() as server, Server() as other:
        server.fail_next(status, "why canary", Location=other.address, Retry_After="7")
        error = post("ops", f"{server.address}/x", b"{}", secrets=("canary",))
        assert isinstance(error, DeliveryError)
        assert error.permanent is permanent
        assert error.retry_after_seconds == (None if permanent else 7.0)
        why = ": redirects are not followed" if status < 400 else ": why <secret>"
        assert error.message == f"ops answered {status}{why}"
        assert (len(server.requests), len(other.requests)) == (1, 0)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "Wed, 18 Nov 2026 03:00:40 GMT", "Date": "nonsense"}, None),
        (
            {"Retry-After": "Wed, 18 Nov 2026 03:00:40 GMT",
             "Date": "Wed, 18 Nov 2026 03:00:00 GMT"}, 40.0
        ),
        ({"retry-after": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "99999999999999999"}, 3600.0),
        ({}, None),
    ],
)  # fmt: skip
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_what_is_sent_and_a_login_in_the_address() -> None:
    with Server() as server:
        url = server.address.replace("//", "//user:p%40ss@") + "/a%20b?c=d#e"
        assert post("ops", url, b"{}", {"X-Y": "z"}) == b""
        server.fail_next(401, "not p@ss user:p%40ss dXNlcjpwQHNz")
        assert str(post("ops", url, b"")) == "ops answered 401: not <secret> <secret> <secret>"
        sent = server.requests[0]
    assert (sent.method, sent.path) == ("POST", "/a%20b?c=d")
    headers = dict(sent.headers)
    assert headers.pop("user-agent").startswith("driftwatch/")
    assert headers.pop("host") in server.address
    assert headers == {
        "accept": "*/*",
        "x-y": "z",
        "authorization": "Basic dXNlcjpwQHNz",
        "accept-encoding": "identity",
        "content-length": "2",
        "connection": "close",
    }


def test_the_environment_sets_neither_proxy_nor_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password canary\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with Server() as server:
        assert post("ops", server.address, b"{}") == b""
        assert "authorization" not in server.requests[0].headers
    assert caplog.records == []


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
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

    def asked_by_tls() -> bytes | DeliveryError:
        http._trusted.cache_clear()
        with peer(wire) as url:
            return post("ops", url.replace("http:", "https:"), b"{}")

    error = asked_by_tls()
    assert str(error) == "ops: its certificate was not accepted: self-signed certificate"
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert asked_by_tls() == b""
    monkeypatch.undo()
    http._trusted.cache_clear()
