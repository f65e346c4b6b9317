"""What every page shares: settings, plan, database, clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from driftwatch.clock import Clock
from driftwatch.pipeline.plan import Plan
from driftwatch.settings.web import WebSettings, listen_address
from driftwatch.web.database import WebDatabase
from driftwatch.web.fleet_minutes import FleetMinutes
from driftwatch.web.guard import hosts_of
from driftwatch.web.people import People


@dataclass(frozen=True, slots=True)
class Web:
    """One web process.

    ``nonce``: a new text that nobody can guess, at each call.
    """

    settings: WebSettings
    plan: Plan
    database: WebDatabase
    people: People
    clock: Clock
    nonce: Callable[[], str]
    fleet: FleetMinutes
    external_url: str | None = None

    @property
    def root(self) -> str:
        """Path below which it is served, without a slash at its end; empty = everything."""
        return "" if self.external_url is None else urlsplit(self.external_url).path.rstrip("/")

    @property
    def hosts(self) -> frozenset[str]:
        """The names that it answers to."""
        host, _ = listen_address(self.settings.listen)
        return hosts_of(host, self.external_url, self.settings.hosts)

    @property
    def is_https(self) -> bool:
        """Whether people reach it by https, so that cookies may ask for it."""
        return (self.external_url or "").lower().startswith("https://")
