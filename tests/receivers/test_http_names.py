"""Names that hang, addresses that are refused, certificates that are wrong."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from driftwatch.errors import DeliveryError
from driftwatch.receivers import bounded_socket, lookup
from driftwatch.receivers.http import Limits, post

QUICK = Limits(seconds=0.5)
PATIENT = Limits(seconds=20.0)


def failure(url: str, limits: Limits = QUICK, **rest: Any) -> DeliveryError:
    answer = post("ops", url, b"{}", {}, limits, **rest)
    assert isinstance(answer, DeliveryError)
    assert "canary" not in answer.message
    return answer


@pytest.fixture
def hanging_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A resolver that answers only when the test is over; the names it was asked for."""
    over, names = threading.Event(), []

    def getaddrinfo(host: str, *rest: Any) -> Any:
        names.append(host)
        over.wait(10)
        raise socket.gaierror("canary")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield names
    over.set()
    for thread in threading.enumerate():
        if thread.name == "driftwatch-lookup":
            thread.join(5)
    assert lookup._pending == {}


def test_a_name_that_is_never_resolved(hanging_resolver: list[str]) -> None:
    began = time.monotonic()
    for _ in range(3):
        error = failure("https://hooks.canary.example/x", Limits(seconds=0.2))
        assert (error.message, error.permanent) == (
            "ops: timed out: its name was not resolved",
            False,
        )
    assert time.monotonic() - began < 5
    # the second and the third wait for the first one's thread
    assert hanging_resolver == ["hooks.canary.example"]
    failure("https://other.canary.example/x", Limits(seconds=0.2))
    assert len(hanging_resolver) == 2


def test_a_name_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for unknown in (socket.gaierror(-2, "canary"), UnicodeError("canary label too long")):

        def getaddrinfo(*_: Any, unknown: Exception = unknown) -> Any:
            raise unknown

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        error = failure("http://hooks.canary.example/x")
        assert (error.message, error.permanent) == ("ops: its name was not resolved", False)


def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def getaddrinfo(*_: Any) -> Any:
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            nobody = "127.0.0.2"
            return [(*kind, ("169.254.169.254", port)), (*kind, (nobody, port)),
                    (*kind, ("127.0.0.1", port))]  # fmt: skip

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 204 X\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        assert post("ops", f"http://hooks.example:{port}/", b"{}", {}, PATIENT) == ""
        thread.join(5)


def test_an_allowed_link_local_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    url, tried = "http://169.254.169.254/canary", []

    def connect(self: socket.socket, target: Any) -> None:
        tried.append(target)
        raise OSError("canary")

    monkeypatch.setattr(socket.socket, "connect", connect)
    assert failure(url).permanent is True
    assert tried == []
    assert failure(url, allow_link_local=True).message == "ops: no connection"
    assert tried == [("169.254.169.254", 80)]


def openssl(*words: str) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def certificate(folder: Path, name: str, *options: str) -> ssl.SSLContext:
    """A server's side of a certificate that signs itself."""
    key, file = folder / f"{name}.key", folder / f"{name}.pem"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    openssl("req", "-x509", *curve, "-nodes", "-subj", "/CN=x", "-keyout", str(key),
            "-out", str(file), *options)  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    return context


class TlsPeer:
    """Shakes hands as its context says, or not at all, and answers 204."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.over = threading.Event()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self.server.getsockname()[1]}/canary"
        self.thread = threading.Thread(target=self.serve)

    def serve(self) -> None:
        connection, _ = self.server.accept()
        with connection, suppress(OSError):
            connection.settimeout(5)
            if self.context is None:
                self.over.wait(5)
                return
            with self.context.wrap_socket(connection, server_side=True) as wrapped:
                request = b""
                while not request.endswith(b"{}"):  # unread, the body would end in a reset
                    request += wrapped.recv(65536) or b"{}"
                wrapped.sendall(b"HTTP/1.1 204 X\r\n\r\n")

    def __enter__(self) -> TlsPeer:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join(5)
        self.server.close()


@pytest.fixture
def trust(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Believe in a certificate file, as a machine's list of authorities has it."""

    def believe(file: Path) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        bounded_socket._context.cache_clear()

    yield believe
    monkeypatch.undo()
    bounded_socket._context.cache_clear()


HERE = ("-days", "2", "-addext", "subjectAltName=IP:127.0.0.1")


def test_a_self_signed_certificate(tmp_path: Path) -> None:
    with TlsPeer(certificate(tmp_path, "own", *HERE)) as server:
        error = failure(server.url, PATIENT)
    assert error.message == "ops: its certificate was not accepted: it is self-signed"
    assert error.permanent is False


def test_certificates_of_an_authority_that_the_machine_trusts(tmp_path: Path, trust: Any) -> None:
    right = certificate(tmp_path, "right", *HERE)
    trust(tmp_path / "right.pem")
    with TlsPeer(right) as server:
        assert post("ops", server.url, b"{}", {}, PATIENT) == ""
    other = certificate(tmp_path, "other", "-days", "2", "-addext", "subjectAltName=IP:127.0.0.9")
    trust(tmp_path / "other.pem")
    with TlsPeer(other) as server:
        error = failure(server.url, PATIENT)
    assert error.message == "ops: its certificate was not accepted: it is another host's"


def test_an_expired_certificate(tmp_path: Path, trust: Any) -> None:
    context = certificate(tmp_path, "old", *HERE)
    request, names = tmp_path / "old.csr", tmp_path / "names"
    names.write_text("subjectAltName=IP:127.0.0.1")
    key = ("-key", str(tmp_path / "old.key"))
    openssl("req", "-new", *key, "-subj", "/CN=x", "-out", str(request))
    openssl("x509", "-req", "-in", str(request), "-signkey", key[1], "-days", "-1", "-extfile",
            str(names), "-out", str(tmp_path / "old.pem"))  # fmt: skip
    context.load_cert_chain(tmp_path / "old.pem", tmp_path / "old.key")
    trust(tmp_path / "old.pem")
    with TlsPeer(context) as server:
        error = failure(server.url, PATIENT)
    assert error.message == "ops: its certificate was not accepted: it has expired"


def test_a_handshake_that_hangs() -> None:
    with TlsPeer(None) as server:
        error = failure(server.url)
    assert (error.message, error.permanent) == ("ops: timed out: no TLS handshake", False)


def test_plain_http_where_tls_is_expected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 400 X\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        error = failure(f"https://127.0.0.1:{server.getsockname()[1]}/canary", PATIENT)
        thread.join(5)
    assert error.message == "ops: no TLS"


def test_a_tls_answer_has_the_same_bounds(tmp_path: Path, trust: Any) -> None:
    context = certificate(tmp_path, "right", *HERE)
    trust(tmp_path / "right.pem")

    class Drip(TlsPeer):
        def serve(self) -> None:
            connection, _ = self.server.accept()
            with suppress(OSError), context.wrap_socket(connection, server_side=True) as wrapped:
                wrapped.recv(65536)
                while not self.over.wait(0.05):
                    wrapped.sendall(b"H")

    class Endless(TlsPeer):
        def serve(self) -> None:
            connection, _ = self.server.accept()
            with suppress(OSError), context.wrap_socket(connection, server_side=True) as wrapped:
                request = b""
                while not request.endswith(b"{}"):  # unread, the body would end in a reset
                    request += wrapped.recv(65536) or b"{}"
                wrapped.sendall(b"HTTP/1.1 200 X\r\n")
                while not self.over.is_set():
                    wrapped.sendall(b"X: " + b"a" * 4000 + b"\r\n")

    with Drip(context) as server:
        assert failure(server.url).message == "ops: timed out: no answer"
    with Endless(context) as server:
        error = failure(server.url, PATIENT)
    assert error.message == "ops: the headers of its answer are too long"


def test_without_a_thread_the_next_attempt_asks_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        error = failure("http://localhost:1/x")
        assert error.permanent is False
    assert lookup.lookup("localhost", 1, 5.0)
