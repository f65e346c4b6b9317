"""Hostile answers of each kind of receiver: bounded and escaped in log and database, tried again.

The bounds on the wire stand in tests/receivers/test_http_bounds.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from fakes.loopback import LoopbackServer
from fakes.manual_clock import ManualClock
from fakes.pagerduty_server import ROUTING_KEY
from fakes.slack_workspace import BOT_TOKEN
from outbox import planned
from page_cases import AT, CAP
from structlog.testing import capture_logs

from driftwatch.incidents.incident import Transition
from driftwatch.receivers.registry import build_senders
from driftwatch.service.metrics import OwnMetrics
from driftwatch.service.outbox import Outbox
from driftwatch.settings import ReceiverSettings
from driftwatch.store.store import Store, TickRecord

HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nConnection: close\r\n"
ODD = b'\x00\x1b[31m\xff\xed\xa0\x80<script>x</script>{"message": "\\ud800\\u0000"}'
BODIES = {
    "HTML": b"<html><h1>Sign in</h1></html>",
    "no JSON": b"{",
    "another JSON": b'[[{"ok": {"errors": [null]}}]]',
    "NUL, escapes, half letters": ODD,
    "half letters in JSON": b'{"error": "\\ud800\\u0000\\u001b[31m", "message": "\\udcff"}',
    "10 MB": b'{"error": "' + b"x" * 10_000_000 + b'"}',
}
STATUSES = {"400 Bad Request": True, "500 Error": False, "302 Found\r\nLocation: http://h/": None}
FORMS = ("slack, app", "pagerduty", "alertmanager", "webhook")


class Hostile(LoopbackServer):
    """Answers each request with the same bytes."""

    status, body, head = "200 OK", b"", b""

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        handler.close_connection = True
        with suppress(ConnectionError):  # it had enough
            handler.wfile.write(HEAD % self.status.encode() + self.head + b"\r\n" + self.body)


@pytest.fixture(scope="module")
def hostile() -> Iterator[Hostile]:
    with Hostile() as server:
        yield server


def settings_of(form: str, url: str, folder: Path) -> ReceiverSettings:
    token = folder / "bot.token"
    token.write_text(BOT_TOKEN)
    (folder / "key").write_text(ROUTING_KEY)
    app = {"bot_token_file": token, "channel": "C0000ONCALL", "api_url": f"{url}/api/"}
    kinds: dict[str, dict[str, Any]] = {
        "slack, app": {"slack": app},
        "pagerduty": {"pagerduty": {"routing_key_file": folder / "key", "url": url}},
        "alertmanager": {"alertmanager": {"urls": [url]}},
        "webhook": {"webhook": {"url": url}},
    }
    return ReceiverSettings.model_validate({"name": "oncall", **kinds[form]})


def delivered(form: str, url: str, folder: Path) -> tuple[str, str]:
    """What became of one page, and every text of it in the log and the database."""
    page = CAP.page()
    incident = CAP.incident
    sender = build_senders([settings_of(form, url, folder)])["oncall"]
    database = folder / "d.db"
    for path in folder.glob("d.db*"):
        path.unlink()
    clock = ManualClock(AT)
    with Store.open(database) as store, capture_logs() as log:
        message = planned(incident.id, page, AT)
        happened = [Transition(incident, "firing", AT)]
        store.commit_tick(
            TickRecord(AT, incidents=[incident], transitions=happened, deliveries=[message])
        )
        outbox = Outbox(store, clock, OwnMetrics(clock.now))
        outbox.adopt({"oncall": sender})
        (attempt,) = outbox.deliver_once()
        rows = [one.last_error or "" for one in store.deliveries(incident.id)]
    texts = [str(one) for entry in log for one in entry.values()]
    return attempt.result, "\n".join([attempt.reason, *texts, *rows])


@pytest.mark.parametrize("form", FORMS)
def test_what_comes_back_is_bounded_and_escaped(
    form: str, hostile: Hostile, tmp_path: Path
) -> None:
    for status, is_permanent in STATUSES.items():
        for name, body in BODIES.items():
            hostile.status, hostile.body, hostile.head = status, body, b""
            result, texts = delivered(form, hostile.address, tmp_path)
            assert result in ("retried", "dead"), (status, name)
            if is_permanent is not None and form != "slack, app":
                assert (result == "dead") is is_permanent, (status, name)
            assert len(texts) < 20_000, (status, name)
            assert texts.replace("\n", "").isprintable(), (status, name)
