"""A receiver of the tests takes what arrived whole, as a web server does."""

from __future__ import annotations

import socket

import pytest
import requests
from kill_rounds.judge import Inbox


@pytest.mark.parametrize("body", [b"", b'{"event": "fir'], ids=["headers only", "half a body"])
def test_a_request_whose_sender_died_did_not_arrive(body: bytes) -> None:
    with Inbox() as inbox:
        host, port = inbox.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as sender:
            headers = "Idempotency-Key: a\r\nContent-Length: 40"
            sender.sendall(f"POST /log HTTP/1.1\r\n{headers}\r\n\r\n".encode())
            sender.sendall(body)
            sender.shutdown(socket.SHUT_WR)
            assert sender.recv(100) == b""  # no answer
        whole = requests.post(f"{inbox.address}/log", b"{}", headers={"Idempotency-Key": "b"})
        assert whole.status_code == 204
        assert inbox.posts("log") == [("b", b"{}")]
