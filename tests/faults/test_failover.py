"""A leader that goes between a page and its resolve: the next one resolves, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from open_incident_cases import Inbox, Server, Tell, stories

from driftwatch.database_place import PostgresPlace, place_of
from driftwatch.errors import StoreError
from driftwatch.service.leadership import Leadership
from driftwatch.store.lease import Leases
from driftwatch.testing.loopback import Answer, Request
from driftwatch.testing.postgres_server import PostgresServer

WAITS = [Server("chat-0:8000", (1, 9))]
# it is paged of at minute 2
OVER = 13.0
LEASE_SECONDS = 60.0
LEASE_ENDS = "UPDATE leases SET expires_at = clock_timestamp() - interval '1 second'"


class Office(Inbox):
    """Takes every page; something may happen while a resolve is on its way."""

    def __init__(self) -> None:
        super().__init__()
        self.on_the_way: Callable[[], object] = lambda: None

    def judge(self, request: Request) -> Answer:
        if b'"event":"resolved"' in request.body.replace(b" ", b""):
            self.on_the_way()
            self.on_the_way = lambda: None
        return super().judge(request)

    def sent(self) -> list[str]:
        """The event in the key of each message."""
        return [one.headers["idempotency-key"].partition("-")[2] for one in self.requests]


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
            hooks=("oncall",),
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
    ("goes", "resolves"),
    [
        ("killed before it", 1),
        ("before it decides", 1),
        ("before it sends", 1),
        ("before it marks", 2),  # with the same key
    ],
)
def test_the_next_leader_resolves_once(
    goes: str, resolves: int, postgres: PostgresServer, postgres_url: str, tmp_path: Path
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

        if goes == "before it marks":
            office.on_the_way = take_over
            old.refused(lambda: old.story.tick(OVER))
        elif goes == "before it sends":
            old.story.decide(OVER)
            take_over()
            old.refused(old.story.service.deliver_once)
        else:
            take_over()
        if goes == "before it decides":
            old.refused(lambda: old.story.tick(OVER))
        for minute in (OVER, OVER + 1):
            new.story.tick(minute)
        old.refused(lambda: old.story.tick(OVER + 2))
        assert office.sent() == ["firing", *["resolved"] * resolves]
        assert len(new.story.store.incidents()) == 1
        for one in (old, new):
            one.leadership.end()
