"""Which hosts are this machine."""

from __future__ import annotations

import socket

import pytest

from driftwatch.collect.nvml import host_of, own_hosts


def resolver(**known: list[str]) -> object:
    def look_up(host: str, port: None) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        if host not in known:
            raise socket.gaierror
        return [(0, 0, 0, "", (address, 0)) for address in known[host]]

    return look_up


def test_a_host_that_is_asked_for_by_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, other = "127.0.0.7", "203.0.113.9"
    known = {"alias": [ours], "other": [other], "both": [ours, other], "127.0.0.2": ["127.0.0.2"]}
    monkeypatch.setattr(socket, "getaddrinfo", resolver(**known))
    urls = [f"http://{host}:8000/metrics" for host in (*known, "none")]
    found = own_hosts([*urls, "http://[", ""], hostname="gpu-1")
    assert found & {*known, "none"} == {"alias", "127.0.0.2"}


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://host:8000/metrics", "host"),
        ("https://Host/metrics", "Host"),
        ("http://user:secret@host:1/", "host"),
        ("http://[fd00::2]:8000/metrics", "fd00::2"),
        ("http://[fd00::2]/metrics", "fd00::2"),
        ("host:8000", "host"),
        ("http://[bad", ""),
    ],
)
def test_the_host_of_a_url(url: str, host: str) -> None:
    assert host_of(url) == host
