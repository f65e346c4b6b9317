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


def test_a_client_that_goes_away_is_no_news(capfd: pytest.CaptureFixture[str]) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("x", "An x.", ["label"], registry=registry)
    for number in range(20_000):  # more than a socket's buffers hold
        gauge.labels("v" * 100 + str(number)).set(number)
    with _endpoint("127.0.0.1", registry) as url:
        port = int(url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.0 200")
        # and the next one is served as before
        assert len(requests.get(f"{url}/metrics", timeout=10).content) > 2_000_000
    assert capfd.readouterr().err == ""
