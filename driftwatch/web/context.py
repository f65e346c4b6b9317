"""What every page shares: settings, plan, database, clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from driftwatch.clock import Clock
from driftwatch.pipeline.plan import Plan
from driftwatch.settings.web import WebSettings
from driftwatch.web.attempts import Attempts
from driftwatch.web.database import WebDatabase
from driftwatch.web.fleet_minutes import FleetMinutes
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
    attempts: Attempts = field(default_factory=Attempts)

    @property
    def root(self) -> str:
        """Path below which it is served, without a slash at its end; empty = everything."""
        return "" if self.external_url is None else urlsplit(self.external_url).path.rstrip("/")

    @property
    def is_https(self) -> bool:
        """Whether people reach it by https, so that cookies may ask for it."""
        return (self.external_url or "").lower().startswith("https://")
