"""The service's own HTTP end: what it answers, on both families, to clients of every manner."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests
from prometheus_client import CollectorRegistry, Gauge

from driftwatch.errors import UsageError
from driftwatch.service.endpoint import Endpoint


@contextmanager
def _endpoint(
    host: str, registry: CollectorRegistry | None = None, why: str | None = None
) -> Iterator[str]:
    endpoint = Endpoint((host, 0), registry or CollectorRegistry(), lambda: None, lambda: why)
    try:
        there, port = endpoint.address
        yield f"http://[{there}]:{port}" if ":" in there else f"http://{there}:{port}"
    finally:
        endpoint.close()


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_it_answers_on_both_families(host: str) -> None:
    if host == "::1" and not _has_ipv6():
        pytest.skip("no IPv6 on this machine")
    registry = CollectorRegistry()
    Gauge("x", "An x.", registry=registry).set(3)
    with _endpoint(host, registry, why="no tick is complete yet") as url:
        assert "x 3.0" in requests.get(f"{url}/metrics", timeout=5).text
        assert requests.get(f"{url}/-/healthy", timeout=5).text == "ok\n"
        answer = requests.get(f"{url}/-/ready?x=1", timeout=5)
        assert (answer.status_code, answer.text) == (503, "no tick is complete yet\n")
        assert requests.get(f"{url}/", timeout=5).status_code == 404


def test_an_address_that_is_taken_is_named() -> None:
    with (
        _endpoint("127.0.0.1") as url,
        pytest.raises(UsageError, match=r"cannot listen on 127\.0\.0\.1:\d+: Address already"),
    ):
        Endpoint(
            ("127.0.0.1", int(url.rsplit(":", 1)[1])),
            CollectorRegistry(),
            lambda: None,
            lambda: None,
        )


def _port(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


def _sent(url: str, request: bytes) -> bytes:
    """What comes back, to the end of the connection; a reset ends it too."""
    parts = []
    with socket.create_connection(("127.0.0.1", _port(url)), timeout=10) as client:
        try:
            client.sendall(request)
            while part := client.recv(65536):
                parts.append(part)
        except ConnectionError:
            pass
    return b"".join(parts)


HOST = b"Host: <script>alert(1)</script>\r\n"
REQUESTS = {
    "a method to change": (b"DELETE /metrics HTTP/1.1\r\n\r\n", b"405"),
    "path traversal": (b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", b"404"),
    "a proxy's address": (b"GET http://169.254.169.254/ HTTP/1.1\r\n\r\n", b"404"),
    "a hostile host": (b"GET /-/ready HTTP/1.1\r\n" + HOST + b"\r\n", b"200"),
    "no words": (b"\x16\x03\x01\x02\x00 \x01 \x02 \x03\r\n\r\n", b"400"),
    "10 MB of path": (b"GET /" + b"x" * 10_000_000 + b" HTTP/1.1\r\n\r\n", b""),
    "10 MB of headers": (b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 2_000_000 + b"\r\n", b""),
}


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    registry = CollectorRegistry()
    Gauge("x", "An x.", registry=registry).set(3)
    with _endpoint("127.0.0.1", registry) as url:
        yield url


@pytest.mark.parametrize("name", REQUESTS)
def test_nothing_of_a_hostile_request_comes_back(
    served: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    request, status = REQUESTS[name]
    answer = _sent(served, request)
    assert len(answer) < 300
    if status:
        assert answer.split()[1] == status
    for sign in (b"<", b"root:", b"passwd", b"BREW", b"169.254", b"xxxx"):
        assert sign not in answer
    assert b"x 3.0" in _sent(served, b"GET /metrics HTTP/1.0\r\n\r\n")
    assert capfd.readouterr() == ("", "")
