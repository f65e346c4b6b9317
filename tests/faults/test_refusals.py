"""Each kind of receiver and each way in which it fails: tried again, given up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.loopback import Answer, LoopbackServer, Request
from fakes.pagerduty_server import ROUTING_KEY, PagerdutyServer
from fakes.slack_server import TOKEN_PATH, SlackServer
from fakes.slack_workspace import BOT_TOKEN, SlackWorkspace
from fakes.smtp_server import SmtpServer
from outbox import planned
from page_cases import AT, CAP

from driftwatch.clock import ManualClock
from driftwatch.incidents.incident import Transition
from driftwatch.receivers.registry import build_senders
from driftwatch.service.outbox import Outbox
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.settings import ReceiverSettings
from driftwatch.store.store import Store, TickRecord

PAGE = CAP.page()
INCIDENT = CAP.incident.id
# each kind tries again and gives up; the rest is the outbox's, and the same of every kind
FAULTS = ("500", "permanent")
RETRY_AFTER_SECONDS = 90
CHANNEL = "C0000ONCALL"


class Taker(LoopbackServer):
    """Takes everything without a word, as Alertmanager does."""

    def judge(self, request: Request) -> Answer:
        return Answer(200)


@dataclass
class Kind:
    """One kind of receiver on its fake."""

    port: int  # of the fake
    settings: Callable[[int], dict[str, Any]]  # of a receiver at a port
    refuse: Callable[[int], None]  # the next message, with an HTTP status
    keys: Callable[[], list[str]]  # by which the receiver can tell messages apart, in order
    standing: Callable[[], int]  # messages that a person has before them
    names_a_time: bool = True  # a refusal can ask to wait


def _port(server: LoopbackServer) -> int:
    return int(server.address.rpartition(":")[2])


def _http(
    server: LoopbackServer,
    settings: Callable[[str], dict[str, Any]],
    key: Callable[[Request], str],
    standing: Callable[[], int] | None = None,
) -> Kind:
    """``key``: of a request; ``settings``: at a base URL."""

    def keys() -> list[str]:
        return [key(request) for request in server.requests]

    def refuse(status: int) -> None:
        wish = {"Retry_After": str(RETRY_AFTER_SECONDS)} if status == 429 else {}
        server.fail_next(status, "no", **wish)

    return Kind(
        _port(server),
        lambda port: settings(f"http://127.0.0.1:{port}"),
        refuse,
        keys,
        standing or (lambda: len(set(keys()))),
    )


def _idempotency_key(request: Request) -> str:
    return request.headers["idempotency-key"]


def _webhook(stack: ExitStack, _: Path) -> Kind:
    server = stack.enter_context(Taker())
    return _http(server, lambda url: {"webhook": {"url": url}}, _idempotency_key)


def _alertmanager(stack: ExitStack, _: Path) -> Kind:
    def key(request: Request) -> str:
        (alert,) = json.loads(request.body)
        return json.dumps(alert["labels"], sort_keys=True) + alert["startsAt"]

    server = stack.enter_context(Taker())
    return _http(server, lambda url: {"alertmanager": {"urls": [url]}}, key)


def _pagerduty(stack: ExitStack, folder: Path) -> Kind:
    (folder / "key").write_text(ROUTING_KEY)
    server = stack.enter_context(PagerdutyServer())
    return _http(
        server,
        lambda url: {"pagerduty": {"routing_key_file": folder / "key", "url": url}},
        lambda request: str(json.loads(request.body)["dedup_key"]),
        lambda: len(server.alerts),
    )


def _slack_webhook(stack: ExitStack, folder: Path) -> Kind:
    server = stack.enter_context(SlackServer())

    def settings(url: str) -> dict[str, Any]:
        (folder / "slack.url").write_text(url + TOKEN_PATH)
        return {"slack": {"webhook_url_file": folder / "slack.url"}}

    return _http(
        server,
        settings,
        lambda request: str(json.loads(request.body)["blocks"]),
        lambda: len(server.accepted),
    )


def _slack_app(stack: ExitStack, folder: Path) -> Kind:
    slack = stack.enter_context(SlackWorkspace({CHANNEL: ()}))
    token = folder / "bot.token"
    token.write_text(BOT_TOKEN)
    errors = {429: "ratelimited", 500: "internal_error", 400: "channel_not_found"}

    def refuse(status: int) -> None:
        if status == 400:
            slack.fail_call("chat.postMessage", errors[400])  # 200, ok: false
        else:
            wish = {"Retry_After": str(RETRY_AFTER_SECONDS)} if status == 429 else {}
            slack.fail_call("chat.postMessage", errors[status], status, **wish)

    def keys() -> list[str]:
        posts = [r for r in slack.requests if r.path.startswith("/api/chat.")]
        return [str(json.loads(request.body)["blocks"]) for request in posts]

    def settings(port: int) -> dict[str, Any]:
        api = f"http://127.0.0.1:{port}/api/"
        return {"slack": {"bot_token_file": str(token), "channel": CHANNEL, "api_url": api}}

    return Kind(
        *(_port(slack), settings, refuse, keys, lambda: len(slack.top(CHANNEL))),
    )


def _email(stack: ExitStack, _: Path) -> Kind:
    relay = stack.enter_context(SmtpServer())
    answers = {
        429: "450 4.7.1 greylisted",
        500: "451 4.3.0 local error",
        400: "550 5.7.1 refused by policy",
    }
    whom = {"from": "driftwatch@example.org", "to": ["ana@example.org"]}
    return Kind(
        relay.port,
        lambda port: {"email": {"host": "127.0.0.1", "port": port, "tls": "none", **whom}},
        lambda status: relay.answers.append(answers[status]),
        lambda: [str(mail["Message-ID"]) for mail in relay.mails],
        lambda: len({mail["Message-ID"] for mail in relay.mails}),
        names_a_time=False,
    )


KINDS = {
    "slack webhook": _slack_webhook,
    "slack app": _slack_app,
    "webhook json": _webhook,
    "pagerduty": _pagerduty,
    "alertmanager": _alertmanager,
    "e-mail": _email,
}


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "d.db"
    Store.open(path).close()
    return path


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *((name, fault) for name in KINDS for fault in FAULTS),
        ("webhook json", "429"),
        ("slack webhook", "429"),
    ],
)
def test_what_each_kind_does_when_it_is_refused(
    name: str,
    fault: str,
    empty_database: Path,
    tmp_path: Path,
) -> None:
    clock = ManualClock(AT)
    with ExitStack() as stack:
        kind = KINDS[name](stack, tmp_path)
        store = stack.enter_context(Store.open(shutil.copy(empty_database, tmp_path)))
        outbox = _outbox(store, clock, kind.settings(kind.port))

        def deliver(after_seconds: float = 0.0) -> list[tuple[str, str]]:
            clock.advance(timedelta(seconds=after_seconds))
            return [(one.receiver, one.result) for one in outbox.deliver_once()]

        if fault == "permanent":
            kind.refuse(400)
            assert deliver() == [("desk", "dead")]
        else:
            kind.refuse(int(fault))
            assert deliver() == [("desk", "retried")]
            if fault == "429" and kind.names_a_time:
                assert deliver(RETRY_AFTER_SECONDS - 1) == []
            assert deliver(7) == [("desk", "sent")]
        assert deliver(7200) == []
        gave_up = fault == "permanent"
        (row,) = store.deliveries(INCIDENT)
        assert (row.receiver, row.status) == ("desk", "dead" if gave_up else "sent")
        assert len(set(kind.keys())) <= 1
        assert kind.standing() == 1 or gave_up


def _outbox(store: Store, clock: ManualClock, settings: dict[str, Any]) -> Outbox:
    """Of a receiver `desk` that has one page to take."""
    receivers = [ReceiverSettings.model_validate({"name": "desk", **settings})]
    page = planned(INCIDENT, PAGE, AT, "desk")
    fired = Transition(CAP.incident, "firing", AT)
    store.commit_tick(
        TickRecord(AT, AT, incidents=[CAP.incident], transitions=[fired], deliveries=[page])
    )
    outbox = Outbox(store, clock, OwnMetrics(clock.now))
    outbox.adopt(build_senders(receivers))
    return outbox
