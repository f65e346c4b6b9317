"""Notices and routes of a running service: one digest a day, and what reaches nobody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from service_cases import shipped_plan
from structlog.testing import capture_logs

from driftwatch.clock import ManualClock
from driftwatch.collect.pages.source import PagesSource
from driftwatch.incidents.routing import Route
from driftwatch.matchers import parse_matcher
from driftwatch.receivers.sender import Message
from driftwatch.service.receivers import Receiver
from driftwatch.service.run import Service
from driftwatch.store.store import Store
from driftwatch.testing.exposition_server import ReplayedExposition, read_pages


class Inbox:
    """A receiver that keeps what it is sent."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, message: Message) -> None:
        self.messages.append(message)


@pytest.fixture(scope="module")
def recorded(shared_data: Path) -> list[tuple[float, str | None]]:
    return read_pages(shared_data / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz")


@pytest.fixture
def clock(recorded: list[tuple[float, str | None]]) -> ManualClock:
    return ManualClock(datetime.fromtimestamp(recorded[0][0], UTC))


@pytest.fixture
def server(
    recorded: list[tuple[float, str | None]], clock: ManualClock
) -> Iterator[ReplayedExposition]:
    with ReplayedExposition(recorded, clock=lambda: clock.now().timestamp()) as running:
        yield running


def test_a_notice_is_in_one_digest_that_a_restart_over_its_hour_makes_later(
    server: ReplayedExposition,
    clock: ManualClock,
    tmp_path: Path,
    recorded: list[tuple[float, str | None]],
) -> None:
    start, inbox = recorded[0][0], Inbox()
    rules = tuple(
        replace(rule, severity="notice") for rule in shipped_plan().rules if rule.is_evaluated
    )
    # two hours after the start: nobody watches then
    hour = (clock.now().hour + 2) % 24
    plan = replace(shipped_plan(), rules=rules, digest_hour=hour)
    receivers = [Receiver("team", ("ticket",), inbox, "daily")]

    def service(store: Store) -> Service:
        source = PagesSource({server.url: {"instance": "host:8000"}}, clock=clock)
        return Service([source], plan, store, receivers, clock)

    with Store.open(tmp_path / "d.db") as store:
        running = service(store)
        for at, _ in recorded:
            if at < start + 14 * 60:
                clock.set(datetime.fromtimestamp(at, UTC))
                running.tick_once()
                running.deliver_once()
        running.stop()
        assert [one.severity for one in store.incidents(state="firing")] == ["notice"]
    assert inbox.messages == []
    clock.set(clock.now() + timedelta(hours=5))
    for _ in range(2):
        with Store.open(tmp_path / "d.db") as store:
            running = service(store)
            for _ in range(2):
                running.tick_once()
                running.deliver_once()
                clock.set(clock.now() + timedelta(seconds=15))
            running.stop()
    (message,) = inbox.messages
    assert (message.kind, message.event, message.reason) == ("digest", "digest", "scheduled")
    assert message.payload["counts"] == {"began": 1, "ended": 0, "open": 1}
    assert message.idempotency_key == f"{message.subject}-digest"


def test_a_ticket_that_reaches_nobody_is_in_metric_and_log_until_a_route_takes_it(
    server: ReplayedExposition,
    clock: ManualClock,
    tmp_path: Path,
    recorded: list[tuple[float, str | None]],
) -> None:
    start, inbox = recorded[0][0], Inbox()
    rules = tuple(replace(r, severity="ticket") for r in shipped_plan().rules if r.is_evaluated)
    plan = replace(shipped_plan(), rules=rules)
    receivers = [Receiver("lead", ("page",), inbox)]
    with Store.open(tmp_path / "d.db") as store, capture_logs() as logs:
        source = PagesSource({server.url: {"instance": "host:8000"}}, clock=clock)
        running = Service([source], plan, store, receivers, clock)
        for at, _ in recorded:
            if at < start + 14 * 60:
                clock.set(datetime.fromtimestamp(at, UTC))
                running.tick_once()
        running.deliver_once()
        unrouted = running.metrics.registry.get_sample_value("driftwatch_unrouted_incidents")
        (incident,) = store.incidents(state="firing")
        assert (unrouted, inbox.messages) == (1, [])
        (line,) = [one for one in logs if one["event"] == "reaches nobody"]
        assert (line["id"], line["log_level"]) == (incident.id, "error")
        assert line["why"] == "no receiver takes tickets, and there is no fallback_receiver"
        # a reload brings a route: what fires is sent then
        route = Route(("lead",), (parse_matcher("severity=ticket"),))
        running.adopt(replace(plan, routes=(route,)), receivers)
        clock.set(clock.now() + timedelta(seconds=15))
        running.tick_once()
        running.deliver_once()
        unrouted = running.metrics.registry.get_sample_value("driftwatch_unrouted_incidents")
        running.stop()
    assert unrouted == 0
    assert [(one.event, one.subject) for one in inbox.messages] == [("firing", incident.id)]
