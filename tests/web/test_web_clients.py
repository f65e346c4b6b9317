"""Clients that are slow, many, or guess: nobody else is kept out."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from ipaddress import ip_network

import httpx
import pytest
from conftest import Recorded
from starlette.testclient import TestClient
from web_cases import ANA, BEARER, TOKEN, browser, form_token, send, served

from driftwatch.web import slow_clients
from driftwatch.web.attempts import MOST_WRONG
from driftwatch.web.client_address import client_address
from driftwatch.web.context import Web
from driftwatch.web.slow_clients import MOST_CONNECTIONS

_REQUEST = b"GET /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\n"
# what a client sends, and then nothing more
SLOW = {
    "nothing": b"",
    "headers": _REQUEST + b"X-Slow: ",
    "next request": _REQUEST + b"\r\n" + _REQUEST,
    "body": b"POST /sign-out HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nf",
}


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def _connected(clients: ExitStack, address: str, text: bytes) -> socket.socket:
    url = httpx.URL(address)
    assert url.port is not None
    one = clients.enter_context(socket.create_connection((url.host, url.port), timeout=10))
    one.sendall(text)
    return one


@pytest.mark.parametrize("kind", ["headers", "body"])
def test_a_crowd_of_slow_clients_keeps_nobody_out(web: Web, clients: ExitStack, kind: str) -> None:
    with served(web) as address:
        for _ in range(MOST_CONNECTIONS + 20):
            _connected(clients, address, SLOW[kind])
        with httpx.Client(timeout=10) as reader:
            for _ in range(3):
                assert reader.get(f"{address}/sign-in").status_code == 200
        clients.close()


@pytest.mark.parametrize("kind", SLOW)
def test_who_never_goes_on_is_hung_up_on(
    web: Web, clients: ExitStack, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(slow_clients, "HEADER_SECONDS", 0.2)
    with served(web) as address:
        slow = _connected(clients, address, SLOW[kind])
        text, began = b"", time.monotonic()
        try:
            while piece := slow.recv(65_536):
                text += piece
                assert time.monotonic() - began < 5
        except ConnectionResetError:
            pass
        assert text.startswith(b"HTTP/1.1 ") == (kind in ("next request", "body"))


def test_the_page_of_a_slow_reader_arrives_whole(
    web: Web, clients: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time for headers does not cut an answer that is still being fetched."""
    monkeypatch.setattr(slow_clients, "HEADER_SECONDS", 0.1)
    whole = len(browser(web).get("/sign-in").content)
    with served(web) as address:
        reader = _connected(clients, address, b"")
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        request = b"GET /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        reader.sendall(request)
        text = b""
        for _ in range(5):
            time.sleep(0.05)
            text += reader.recv(1000)
        while piece := reader.recv(65_536):
            text += piece
    assert len(text.partition(b"\r\n\r\n")[2]) == whole


def test_wrong_tokens_of_one_address_are_slowed_down(web: Web, copied: Recorded) -> None:
    stranger, page = browser(web, address="10.0.0.8"), f"/incidents/{copied.incident_id}"
    form = form_token(stranger.get("/sign-in").text)
    data = {"form": form, "name": "Ana", "token": "guess"}
    for attempt in range(MOST_WRONG):
        if attempt % 2:
            assert stranger.post("/sign-in", data=data).status_code == 403
        else:
            wrong = {"Authorization": "Bearer guess"}
            assert stranger.post(f"{page}/acknowledge", headers=wrong).status_code == 403
    right = {**data, "token": TOKEN}
    refused = stranger.post("/sign-in", data=right)
    assert refused.status_code == 429 and "wait 60 seconds" in refused.text
    assert stranger.post(f"{page}/acknowledge", headers=BEARER).status_code == 429
    assert stranger.get(page).status_code == 200  # looking needs no token
    assert browser(web, address="10.0.0.9").post(f"{page}/note", headers=BEARER).status_code == 400
    assert send(browser(web), page, "acknowledge", ANA).status_code == 303
    web.clock.advance(timedelta(seconds=60))
    assert stranger.post("/sign-in", data=right).status_code == 303


def _is_refused(client: TestClient, address: str | None, token: str) -> int:
    headers = {} if address is None else {"X-Forwarded-For": address}
    bearer = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    return int(client.post("/sign-out", headers=headers | bearer).status_code)


def test_behind_the_proxy_each_client_answers_for_itself(web: Web) -> None:
    """What the client wrote itself, left of the proxy's own word, changes nothing."""
    proxied = browser(web, address="10.0.0.7")
    for attempt in range(MOST_WRONG):
        assert _is_refused(proxied, f"198.51.100.{attempt}, 192.0.2.66", "guess") == 403
    assert _is_refused(proxied, "203.0.113.5, 192.0.2.66", TOKEN) == 429
    assert _is_refused(proxied, "192.0.2.67", TOKEN) == 303
    # what the proxy did not name is the proxy's
    assert _is_refused(proxied, None, TOKEN) == 303
    assert _is_refused(proxied, "192.0.2.66, nonsense", TOKEN) == 303


def test_nobody_else_is_believed_where_from_a_request_comes(web: Web) -> None:
    """Neither a new name for each guess helps, nor another's name to lock that one out."""
    attacker = browser(web, address="192.0.2.66")
    for attempt in range(MOST_WRONG):
        assert _is_refused(attacker, "10.0.0.7", f"guess {attempt}") == 403
    assert _is_refused(attacker, f"198.51.100.{MOST_WRONG}", TOKEN) == 429
    assert _is_refused(browser(web, address="10.0.0.7"), None, TOKEN) == 303


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "address"),
    [
        ("10.0.0.7", [], "10.0.0.7"),
        ("10.0.0.7", [""], "10.0.0.7"),
        ("10.0.0.7", ["192.0.2.1:5000"], "192.0.2.1"),
        ("10.0.0.7", ["[2001:db8::1]:443"], "2001:db8::1"),
        ("10.0.0.7", ["6.6.6.6", "192.0.2.1"], "192.0.2.1"),
        ("::ffff:10.0.0.7", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.7", ["10.0.0.7, 10.0.0.7"], "10.0.0.7"),
        ("10.0.0.8", ["192.0.2.1"], "10.0.0.8"),
        ("", ["192.0.2.1"], ""),
    ],
)
def test_the_address_is_the_nearest_that_is_no_proxy(
    peer: str, forwarded_for: list[str], address: str
) -> None:
    assert client_address(peer, forwarded_for, [ip_network("10.0.0.7/32")]) == address
