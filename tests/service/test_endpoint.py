"""The service's own HTTP end: what it answers, on both families, to clients of every manner."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests
from prometheus_client import CollectorRegistry, Gauge

from driftwatch.errors import UsageError
from driftwatch.service.liveness import Endpoint


@contextmanager
def endpoint(host: str = "127.0.0.1", port: int = 0, why: str | None = None) -> Iterator[str]:
    registry = CollectorRegistry()
    Gauge("x", "An x.", registry=registry).set(3)
    opened = Endpoint((host, port), registry, lambda: None, lambda: why)
    try:
        there, port = opened.address
        yield f"http://[{there}]:{port}" if ":" in there else f"http://{there}:{port}"
    finally:
        opened.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_it_answers_on_both_families(host: str) -> None:
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((host, 0))
    except OSError:
        pytest.skip("no IPv6 on this machine")
    with endpoint(host, why="no tick is complete yet") as url:
        assert "x 3.0" in requests.get(f"{url}/metrics", timeout=5).text
        assert requests.get(f"{url}/-/healthy", timeout=5).text == "ok\n"
        answer = requests.get(f"{url}/-/ready?x=1", timeout=5)
        assert (answer.status_code, answer.text) == (503, "no tick is complete yet\n")
        assert requests.get(f"{url}/", timeout=5).status_code == 404


def test_an_address_that_is_taken_is_named() -> None:
    with endpoint() as url, pytest.raises(UsageError, match=r"cannot listen on 127\.0\.0\.1:\d+: "):
        port = int(url.rpartition(":")[2])
        with endpoint(port=port):
            pass


# request → status; None where the connection ends
REQUESTS = {
    b"DELETE /metrics HTTP/1.1\r\n\r\n": b"405",
    b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n": b"404",
    b"GET /-/ready HTTP/1.1\r\nHost: <script>alert(1)</script>\r\n\r\n": b"200",
    b"\x16\x03\x01\x02\x00 \x01 \x02 \x03\r\n\r\n": b"400",
    b"GET /" + b"x" * 10_000_000 + b" HTTP/1.1\r\n\r\n": None,
}


def test_nothing_of_a_hostile_request_comes_back(capfd: pytest.CaptureFixture[str]) -> None:
    with endpoint() as url:
        port = int(url.rpartition(":")[2])
        for request, status in REQUESTS.items():
            answer = b""
            with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                try:
                    client.sendall(request)
                    while part := client.recv(65536):
                        answer += part
                except ConnectionError:
                    pass
            assert status is None or answer.split()[1] == status
            assert len(answer) < 300
            assert not any(sign in answer for sign in (b"<", b"passwd", b"xxxx"))
        assert "x 3.0" in requests.get(f"{url}/metrics", timeout=5).text
    assert capfd.readouterr() == ("", "")
