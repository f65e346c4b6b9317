"""A leader that goes between a page and its escalation: the next one escalates, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from open_incident_cases import Inbox, Server, Tell, stories

from driftwatch.database_place import PostgresPlace, place_of
from driftwatch.errors import StoreError
from driftwatch.incidents.routing import Route
from driftwatch.service.leadership import Leadership
from driftwatch.store.lease import Leases
from driftwatch.testing.loopback import Answer, Request
from driftwatch.testing.postgres_server import PostgresServer

WAITS = [Server("chat-0:8000", (1, 9))]
# it is paged of at minute 2
ESCALATED, OVER = 7.0, 13.0
ROUTES = (Route(("oncall",), (), 0.0, ((300.0, ("boss",)),)),)
LEASE_SECONDS = 60.0
LEASE_ENDS = "UPDATE leases SET expires_at = clock_timestamp() - interval '1 second'"


class Office(Inbox):
    """Takes every page; something may happen while one is on its way to the boss."""

    def __init__(self) -> None:
        super().__init__()
        self.on_the_way: Callable[[], object] = lambda: None

    def judge(self, request: Request) -> Answer:
        if request.path == "/boss":
            self.on_the_way()
            self.on_the_way = lambda: None
        return super().judge(request)

    def sent_to(self, name: str) -> list[tuple[str, str]]:
        """Key of each message to a receiver, and why it was sent."""
        return [
            (request.headers["idempotency-key"].partition("-")[2], page.get("reason", "first"))
            for request, page in zip(self.requests, self.pages, strict=True)
            if request.path == f"/{name}"
        ]


class Scheduler:
    """One of two on a database: its part in the lease, and a service that lives through a story."""

    def __init__(self, tell: Tell, url: str, office: Office) -> None:
        place = place_of(url)
        assert isinstance(place, PostgresPlace)
        self.leadership = Leadership(Leases(place, LEASE_SECONDS), LEASE_SECONDS)
        self.story, _ = tell(
            WAITS,
            url,
            inbox=office,
            hooks=("oncall", "boss"),
            routes=ROUTES,
            may_send=self.leadership.may_act,
        )

    def lead(self) -> None:
        """Take the lease, and begin from what is stored."""
        assert self.leadership.campaign()
        self.story.store.lease = self.leadership.lease
        self.story.restart()

    def refused(self, act: Callable[[], object]) -> None:
        """It does not do that any more."""
        with pytest.raises(StoreError) as caught:
            act()
        assert caught.value.code == "lease-lost"


@pytest.mark.parametrize(
    ("goes", "boss"),
    [
        ("killed before it", ["escalated"]),
        ("killed before it, acknowledged", []),
        ("before it decides", ["escalated"]),
        ("before it sends", ["escalated"]),
        ("before it marks", ["escalated", "escalated"]),  # with the same key
    ],
)
def test_the_next_leader_escalates_once(
    goes: str, boss: list[str], postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    name = postgres_url.partition("@/")[2].partition("?")[0]
    with Office() as office, stories(tmp_path) as tell:
        old, new = (Scheduler(tell, postgres_url, office) for _ in range(2))
        old.lead()
        for minute in (1.0, 2.0, 4.0):
            old.story.tick(minute)

        def take_over() -> None:
            assert not new.leadership.campaign()
            postgres.query(LEASE_ENDS, name)
            new.lead()

        if goes.endswith("acknowledged"):
            (incident,) = old.story.store.open_incidents().values()
            old.story.store.acknowledge(incident.id, "ana", old.story.clock.now())
        if goes == "before it marks":
            office.on_the_way = take_over
            old.refused(lambda: old.story.tick(ESCALATED))
        elif goes == "before it sends":
            old.story.decide(ESCALATED)
            take_over()
            old.refused(old.story.service.deliver_once)
        else:
            take_over()
        if goes == "before it decides":
            old.refused(lambda: old.story.tick(ESCALATED))
        for minute in (ESCALATED, ESCALATED + 1, 10.0, OVER):
            new.story.tick(minute)
        old.refused(lambda: old.story.tick(OVER + 1))
        told = [("acknowledged", "acknowledged")] if not boss else []
        assert office.sent_to("oncall") == [("firing", "first"), *told, ("resolved", "first")]
        ends = [("resolved", "first")] if boss else []
        assert office.sent_to("boss") == [*(("firing", why) for why in boss), *ends]
        assert len(new.story.store.incidents()) == 1
        for one in (old, new):
            one.leadership.end()
