"""Which hosts are this machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from driftwatch.collect.nvml.machine import host_of, own_hosts

FIB = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.1.2.0/24 2 0 2
        |-- 10.1.2.0
           /24 link UNICAST
        |-- 10.1.2.7
           /32 host LOCAL
        |-- 10.1.2.255
           /32 link BROADCAST
     |-- 127.0.0.1
        /32 host LOCAL
"""
INET6 = "fd000000000000000000000000000002 02 40 00 80     eth0\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "fib_trie").write_text(FIB)
    (tmp_path / "net" / "if_inet6").write_text(INET6)
    return tmp_path


def test_names_and_addresses(proc: Path) -> None:
    assert own_hosts(hostname="GPU-1.rack.example", proc=proc) == {
        *("localhost", "127.0.0.1", "::1", "10.1.2.7", "fd00::2"),
        *("GPU-1", "gpu-1", "GPU-1.rack.example", "gpu-1.rack.example"),
    }


def test_a_host_that_is_asked_for_by_another_name(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"alias": ["10.1.2.7"], "other": ["10.1.2.8"], "both": ["10.1.2.7", "10.1.2.8"]}
    known |= {"six": ["fd00::2%eth0"], "127.0.0.2": ["127.0.0.2"]}

    def look_up(host: str, port: None) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        if host not in known:
            raise socket.gaierror
        return [(0, 0, 0, "", (address, 0)) for address in known[host]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    urls = [f"http://{host}:8000/metrics" for host in (*known, "none")]
    found = own_hosts([*urls, "http://[", ""], hostname="gpu-1", proc=proc)
    assert found & {*known, "none"} == {"alias", "six", "127.0.0.2"}


def test_a_kernel_that_tells_no_addresses(tmp_path: Path) -> None:
    assert own_hosts(hostname="a", proc=tmp_path) == {"localhost", "127.0.0.1", "::1", "a"}


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
