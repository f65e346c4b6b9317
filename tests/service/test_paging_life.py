"""One incident's whole life through the store and the planner: what receivers are sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fakes.manual_clock import ManualClock
from made_incidents import with_values
from page_cases import CAP
from service_cases import shipped_plan

from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.silence import parse_matchers
from driftwatch.notify.page import Page
from driftwatch.notify.terminal import render
from driftwatch.receivers.sender import Message
from driftwatch.service.batches import commit_planned
from driftwatch.service.run import Receiver, Service
from driftwatch.store.store import Store, TickRecord
from tests.outbox import due_deliveries, mark_failed, mark_sent

SCHEMA = Page.model_json_schema()
PAGE = CAP.page()
FIRED = PAGE.times.evaluated_at
PLAN = shipped_plan()
INCIDENT = CAP.incident.model_copy(update={"page": PAGE})


class Silent:
    """Takes everything."""

    def send(self, message: Message) -> None:
        pass


RECEIVERS = (Receiver("oncall", ("page",), Silent()), Receiver("boss", ("page",), Silent()))


def tick(store: Store, minutes: float, *happened: Transition) -> None:
    """One commit, with nothing in memory but what the database holds."""
    at = FIRED + timedelta(minutes=minutes)
    before = store.open_incidents()
    after = {**before, **{t.incident.key: t.incident for t in happened}}
    open_now: Mapping[str, Incident] = {k: i for k, i in after.items() if i.state != "resolved"}
    commit_planned(store, PLAN, RECEIVERS, TickRecord(at), before, open_now, happened)
    for one in due_deliveries(store, at):
        mark_sent(store, one, at)


def night(open_store: Callable[[], Store]) -> list[dict[str, Any]]:
    """Fires, is taken, given back, taken again, silenced, and ends."""
    seen: list[dict[str, Any]] = []

    def step(minutes: float, *happened: Transition) -> None:
        store = open_store()
        tick(store, minutes, *happened)
        seen[:] = [
            {"to": one.receiver, "event": one.event, "page": one.payload}
            for one in store.deliveries(INCIDENT.id)
        ]

    step(0, Transition(INCIDENT, "firing", FIRED))
    at = FIRED + timedelta(minutes=40)
    open_store().acknowledge(INCIDENT.id, "Ana", at, comment="restarting <it>", via="slack")
    step(40)
    at = FIRED + timedelta(minutes=60)
    open_store().unacknowledge(INCIDENT.id, "Ana", at, comment="not mine")
    step(60)
    step(301)
    at = FIRED + timedelta(minutes=310)
    open_store().acknowledge(INCIDENT.id, "Bob", at)
    step(310)
    at = FIRED + timedelta(minutes=320)
    open_store().unacknowledge(INCIDENT.id, "Bob", at)
    step(320)
    silenced = parse_matchers([f"alert={INCIDENT.alert}"])
    at = FIRED + timedelta(minutes=380)
    until = at + timedelta(hours=2)
    open_store().add_silence(silenced, until=until, by="Ana", at=at, comment="load test")
    step(380)
    step(490)
    over = with_values(INCIDENT, resolved_at=FIRED + timedelta(minutes=495))
    step(495, Transition(over, "resolved", FIRED + timedelta(minutes=495)))
    return seen


@pytest.mark.parametrize(
    ("form", "statuses"),
    [
        ("alertmanager", ["sent", "withdrawn", "sent"]),
        ("webhook", ["sent", "sent", "sent"]),
    ],
)
def test_a_resolve_that_was_not_taken_never_ends_what_fires_again(
    tmp_path: Path, form: str, statuses: list[str]
) -> None:
    receivers = [Receiver("oncall", ("page",), Silent(), form=form)]
    again = with_values(INCIDENT, id="b" * 12)
    over = with_values(INCIDENT, resolved_at=FIRED)
    with Store.open(tmp_path / "d.db") as store:
        for minutes, incident, event_name in (
            (0, INCIDENT, "firing"),
            (20, over, "resolved"),
            (30, again, "firing"),
        ):
            at = FIRED + timedelta(minutes=minutes)
            before = store.open_incidents()
            after = {} if event_name == "resolved" else {incident.key: incident}
            happened = [Transition(incident, event_name, at)]  # type: ignore[arg-type]
            commit_planned(store, PLAN, receivers, TickRecord(at), before, after, happened)
            while (one := store.claim("oncall", at)) is not None:
                if minutes == 20:
                    mark_failed(store, one, at, "503", at + timedelta(hours=1))
                else:
                    mark_sent(store, one, at)
        rows = [*store.deliveries(INCIDENT.id), *store.deliveries(again.id)]
    assert [one.status for one in rows] == statuses
    sent = sorted((one for one in rows if one.sent_at), key=lambda one: (one.sent_at, one.id))
    assert (sent[-1].subject, sent[-1].event) == (again.id, "firing")


def test_what_receivers_are_sent_of_one_night(
    database: str, golden: Callable[[str, str], None]
) -> None:
    with Store.open(database) as store:
        sent = night(lambda: store)
    events = ["firing", "updated", "updated", "firing", "updated", "updated", "resolved"]
    names = ("boss", "oncall")
    assert [(one["to"], one["event"]) for one in sent] == [(n, e) for e in events for n in names]
    screens = []
    for one in (one for one in sent if one["to"] == "oncall"):
        page = one["page"]
        jsonschema.validate(page.document(), SCHEMA)
        if one["event"] != "resolved":
            screens.append(render(page, mark=True))
    golden("notify/life.txt", "\n\n".join(screens) + "\n")


@pytest.mark.parametrize("action", ["acknowledge", "unacknowledge"])
def test_what_people_do_is_planned_between_ticks(database: str, action: str) -> None:
    with Store.open(database) as store:
        tick(store, 0, Transition(INCIDENT, "firing", FIRED))
        clock = ManualClock(FIRED + timedelta(minutes=5))
        service = Service([], PLAN, store, RECEIVERS, clock)
        assert service.plan_actions_once() is False
        store.acknowledge(INCIDENT.id, "Ana", clock.now())
        if action == "unacknowledge":
            store.unacknowledge(INCIDENT.id, "Ana", clock.now())
        assert service.plan_actions_once() is True
        assert service.plan_actions_once() is False
        (*_, last) = store.deliveries(INCIDENT.id)
        assert (last.receiver, last.event) == ("oncall", "updated")
        is_taken = store.incident(INCIDENT.id).acknowledgement is not None
        assert is_taken is (action == "acknowledge")


def test_a_page_whose_text_cannot_be_made_goes_out_as_it_was(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("times")

    monkeypatch.setattr("driftwatch.service.batches.sent_page", broken)
    with Store.open(database) as store:
        tick(store, 0, Transition(INCIDENT, "firing", FIRED))
        assert [one.payload for one in store.deliveries(INCIDENT.id)] == [PAGE] * 2
