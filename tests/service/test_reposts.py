"""What fires stays alive in a real Alertmanager: over its restart, not over its end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.alertmanager import BINARY, Alertmanager, NotificationServer
from fakes.loopback import Answer, LoopbackServer, Request
from outbox import planned
from page_cases import AT, CAP
from prometheus_client import CollectorRegistry, generate_latest

from driftwatch.clock import SystemClock
from driftwatch.incidents.incident import Incident
from driftwatch.receivers.alertmanager import AlertmanagerSender
from driftwatch.receivers.registry import FreshSender, Receiver
from driftwatch.receivers.sender import message_of
from driftwatch.service.outbox import Outbox
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.store.store import Store, TickRecord
from tests.outbox import due_deliveries, mark_failed

pytestmark = pytest.mark.skipif(
    shutil.which(BINARY) is None, reason="prometheus-alertmanager is not installed"
)


class Firing:
    """A store with one incident."""

    def __init__(self) -> None:
        now = datetime.now(UTC).replace(microsecond=0)
        began = now - timedelta(minutes=5)
        incident = replace(CAP.incident, started_at=began, firing_at=now, last_true_at=now)
        page = replace(CAP, incident=incident).page()
        self.incident = replace(incident, page=page)
        self.sent, self.names = True, ("am",)
        self.after_reading: Callable[[], Any] | None = None

    def open_incidents(self) -> dict[str, Incident]:
        if self.incident.state == "resolved":
            return {}
        found, then = {self.incident.key: self.incident}, self.after_reading
        self.after_reading = None
        if then is not None:
            then()
        return found

    def notified(self, also: Any = (), *, or_given_up: bool = False) -> Any:
        return {(self.incident.id, name) for name in self.names if self.sent}

    def claim(self, *_: Any) -> None:
        """None is due."""

    next_attempt_at = claim

    def give_up_strangers(self, *_: Any) -> dict[str, int]:
        return {}

    def backlog(self, dead_since: datetime) -> dict[str, Any]:
        return {}

    def resolve(self) -> None:
        now = datetime.now(UTC)
        self.incident = replace(self.incident, state="resolved", resolved_at=now)


@pytest.fixture
def store() -> Firing:
    return Firing()


@pytest.fixture
def notifications() -> Iterator[NotificationServer]:
    with NotificationServer() as server:
        yield server


def receiver(*urls: str, seconds: float = 60.0, name: str = "am") -> Receiver:
    sender = AlertmanagerSender(name, urls, seconds)
    fresh = FreshSender(name, lambda: sender, "alertmanager")
    return Receiver(name, ("page",), fresh, repost_seconds=seconds)


def outbox(store: Any, *receivers: Receiver) -> tuple[Outbox, CollectorRegistry]:
    metrics = OwnMetrics()
    made = Outbox(store, SystemClock(), metrics)
    adopt(made, *receivers)
    return made, metrics.registry


def adopt(made: Outbox, *receivers: Receiver) -> None:
    every = {one.name: one.repost_seconds for one in receivers if one.repost_seconds}
    made.adopt({one.name: one.sender for one in receivers}, every)


def test_it_survives_the_restart_of_alertmanager(
    store: Firing, notifications: NotificationServer
) -> None:
    with Alertmanager(notifications.address) as running:
        port = running.url
        keeping, _ = outbox(store, receiver(running.url))
        keeping.queues["am"].repost()
        assert len(running.alerts()) == 1
    with Alertmanager(notifications.address) as again:
        assert again.url != port
        adopt(keeping, receiver(again.url))
        assert again.alerts() == []  # it keeps none
        keeping.queues["am"].repost()
        (held,) = again.alerts()
    assert held["startsAt"].startswith(f"{store.incident.started_at:%Y-%m-%dT%H:%M:%S}")
    assert {one["status"] for one in notifications.notifications} == {"firing"}


def test_it_lives_as_long_as_it_is_posted(store: Firing, notifications: NotificationServer) -> None:
    with Alertmanager(notifications.address) as running:
        keeping, _ = outbox(store, receiver(running.url, seconds=0.5))
        keeping.start()
        time.sleep(4.0)  # two times as long as an alert that nobody posts again
        assert [one["status"] for one in notifications.notifications] == ["firing"]
        keeping.stop()
        # driftwatch is gone: its alert ends with the fourth interval
        assert [one["status"] for one in notifications.wait(2)] == ["firing", "resolved"]


def test_what_resolves_while_it_is_posted_stays_resolved(
    store: Firing, notifications: NotificationServer
) -> None:
    with Alertmanager(notifications.address) as running:
        one = receiver(running.url)
        keeping, _ = outbox(store, one)
        keeping.queues["am"].repost()
        page = store.incident.page
        assert page is not None

        def resolve() -> None:
            store.resolve()
            times = page.times.model_copy(update={"resolved_at": datetime.now(UTC)})
            one.sender.send(message_of(CAP.resolved().model_copy(update={"times": times})))

        store.after_reading = resolve  # the keeper has read, and posts what it has read
        keeping.queues["am"].repost()
        assert running.alerts() == []


def test_one_that_was_down_for_long_hears_what_fires_when_it_is_back(tmp_path: Path) -> None:
    fired = Firing().incident
    with Store.open(tmp_path / "d.db") as store, Answering() as server:
        page = planned(fired.id, fired.page or {}, AT, "am")
        store.commit_tick(TickRecord(AT, AT, incidents=[fired], deliveries=[page]))
        (due,) = due_deliveries(store, AT)
        mark_failed(store, due, AT, "am: no connection", None)  # given up after an hour
        keeping, _ = outbox(store, receiver(server.address))
        keeping.queues["am"].repost()
        assert len(server.requests) == 1


def test_nothing_is_posted_before_the_page(store: Firing) -> None:
    with Answering() as server:
        keeping, _ = outbox(store, receiver(server.address))
        store.sent = False
        keeping.queues["am"].repost()
        assert server.requests == []
        store.sent = True
        keeping.queues["am"].repost()
        assert len(server.requests) == 1


def test_one_of_a_cluster_that_refuses_is_a_metric(store: Firing) -> None:
    with Answering() as healthy, Answering() as broken:
        broken.fail_next(503)
        keeping, registry = outbox(store, receiver(healthy.address, broken.address))
        keeping.queues["am"].repost()
        up = {server: server.address.removeprefix("http://") for server in (healthy, broken)}
        assert f'alertmanager="{up[healthy]}",receiver="am"}} 1.0' in metrics(registry)
        assert f'alertmanager="{up[broken]}",receiver="am"}} 0.0' in metrics(registry)
        keeping.queues["am"].repost()
        assert f'alertmanager="{up[broken]}",receiver="am"}} 1.0' in metrics(registry)


def metrics(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


class Answering(LoopbackServer):
    """Takes everything."""

    def judge(self, request: Request) -> Answer:
        return Answer(200)


def until(true: Callable[[], Any], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.05)


def test_one_that_hangs_delays_no_other(store: Firing) -> None:
    with Answering() as healthy, Answering() as hanging:
        hanging.hang_next()
        keeping, _ = outbox(
            store, receiver(hanging.address, seconds=0.2), receiver(healthy.address, name="other")
        )
        store.names = ("am", "other")
        keeping.start()
        until(lambda: hanging.requests and healthy.requests, 5.0)
        hanging._closing.set()
        keeping.stop()
