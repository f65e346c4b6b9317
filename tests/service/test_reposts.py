"""What fires stays alive in a real Alertmanager: over its restart, not over its end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import outbox
import pytest
from fakes.alertmanager import BINARY, Alertmanager, NotificationServer
from fakes.loopback import Answer, LoopbackServer, Request
from made_incidents import with_values
from page_cases import CAP

from driftwatch.clock import SystemClock
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.receivers.alertmanager import AlertmanagerSender
from driftwatch.service.metrics import OwnMetrics
from driftwatch.service.outbox import Outbox, ReceiverQueue
from driftwatch.settings.receivers import AlertmanagerReceiver
from driftwatch.store.store import Store, TickRecord

needs_alertmanager = pytest.mark.skipif(
    shutil.which(BINARY) is None, reason="prometheus-alertmanager is not installed"
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "d.db") as opened:
        yield opened


@pytest.fixture
def notifications() -> Iterator[NotificationServer]:
    with NotificationServer() as server:
        yield server


def fire(store: Store) -> Incident:
    """An incident fires, and its page is planned for two receivers."""
    now = datetime.now(UTC).replace(microsecond=0)
    began = now - timedelta(minutes=5)
    incident = with_values(CAP.incident, started_at=began, firing_at=now)
    page = replace(CAP, incident=incident).page()
    incident = with_values(incident, page=page)
    planned = [outbox.planned(incident.id, page, now, name) for name in ("am", "other")]
    happened = [Transition(incident, "firing", now)]
    store.commit_tick(TickRecord(now, [incident], happened, deliveries=planned))
    return incident


def resolve(store: Store, incident: Incident) -> None:
    at = datetime.now(UTC)
    assert incident.page is not None
    times = incident.page.times.model_copy(update={"resolved_at": at})
    page = CAP.resolved().model_copy(update={"times": times})
    over = with_values(incident, resolved_at=at, page=page)
    planned = [outbox.planned(incident.id, page, at, "am", "resolved")]
    happened = [Transition(over, "resolved", at)]
    store.commit_tick(TickRecord(at, [], happened, deliveries=planned))


class Answering(LoopbackServer):
    """Takes everything."""

    def judge(self, request: Request) -> Answer:
        return Answer(200)


def keeping(store: Store, seconds: float, **urls: tuple[str, ...]) -> Outbox:
    """An outbox whose receivers are Alertmanagers."""
    made = Outbox(store, SystemClock(), OwnMetrics())
    settings = {
        name: AlertmanagerReceiver.model_construct(
            urls=each, interval=seconds, labels={}, tenant=None, bearer_token_file=None,
            basic_auth=None,
        )
        for name, each in urls.items()
    }  # fmt: skip
    senders = {name: AlertmanagerSender(name, one) for name, one in settings.items()}
    made.adopt(senders, dict.fromkeys(urls, seconds))
    return made


def queue(store: Store, *urls: str) -> ReceiverQueue:
    return keeping(store, 60.0, am=urls).queues["am"]


@needs_alertmanager
def test_it_survives_the_restart_of_alertmanager_and_not_its_own_end(
    store: Store, notifications: NotificationServer
) -> None:
    incident = fire(store)
    for _ in range(2):  # it keeps none
        with Alertmanager(notifications.address) as running:
            assert running.alerts() == []
            queue(store, running.url).repost()
            (held,) = running.alerts()
    assert held["startsAt"].startswith(f"{incident.started_at:%Y-%m-%dT%H:%M:%S}")
    assert {one["status"] for one in notifications.notifications} == {"firing"}


@needs_alertmanager
def test_it_lives_as_long_as_it_is_posted(store: Store, notifications: NotificationServer) -> None:
    fire(store)
    with Alertmanager(notifications.address) as running:
        made = keeping(store, 0.5, am=(running.url,))
        made.start()
        time.sleep(4.0)  # two times as long as an alert that nobody posts again
        assert [one["status"] for one in notifications.notifications] == ["firing"]
        made.stop()
        # driftwatch is gone: its alert ends with the fourth interval
        assert [one["status"] for one in notifications.wait(2)] == ["firing", "resolved"]


@needs_alertmanager
def test_what_resolves_while_it_is_posted_stays_resolved(
    store: Store, notifications: NotificationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process sends the resolve after this one has read what fires."""
    incident, read = fire(store), store.open_incidents
    with Alertmanager(notifications.address) as running:
        mine, other = queue(store, running.url), queue(store, running.url)
        assert other.send_next() is not None  # the page

        def read_and_resolve() -> Any:
            monkeypatch.setattr(store, "open_incidents", read)
            found = read()
            resolve(store, incident)
            assert other.send_next() is not None
            return found

        monkeypatch.setattr(store, "open_incidents", read_and_resolve)
        mine.repost()
        assert running.alerts() == []


def test_one_of_a_cluster_that_refuses_is_a_metric(store: Store) -> None:
    fire(store)
    with Answering() as healthy, Answering() as broken:
        made = keeping(store, 60.0, am=(healthy.address, broken.address))

        def up(server: LoopbackServer) -> float | None:
            labels = {"receiver": "am", "alertmanager": server.address.removeprefix("http://")}
            registry = made.metrics.registry
            return registry.get_sample_value("driftwatch_alertmanager_up", labels)

        broken.fail_next(503)
        made.queues["am"].repost()
        assert (up(healthy), up(broken)) == (1, 0)
        made.queues["am"].repost()
        assert (up(healthy), up(broken)) == (1, 1)
