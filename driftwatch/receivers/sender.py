"""What every receiver shares: the message, what takes it, when to try again. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from driftwatch.errors import DeliveryError
from driftwatch.incidents.delivery import Kind, MessageEvent
from driftwatch.notify.page import Page
from driftwatch.settings.values import read_secrets

FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, JITTER_RATIO = 5.0, 300.0, 0.2
# a receiver that asks for longer is tried again after this long
LONGEST_RETRY_AFTER_SECONDS = 3600.0
# what no receiver took for a day is given up
GIVEN_UP_AFTER = timedelta(hours=24)

# what a receiver calls its message about an incident: its own names and texts
Conversation = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Message:
    """One message to one receiver."""

    kind: Kind  # what it is about
    subject: str  # incident id or week
    event: MessageEvent
    number: int  # 0 the first of this event, 1 its first repeat
    payload: Page | Mapping[str, Any]  # the page, or the report as JSON
    # what this receiver returned for the incident's last message; None before, and of other kinds
    conversation: Conversation | None = None

    @property
    def page(self) -> Page:
        """The page of an incident's message.

        Raises DeliveryError: the message has none, for an earlier version wrote it.
        """
        if not isinstance(self.payload, Page):
            raise DeliveryError("an earlier version wrote this page", permanent=True)
        return self.payload

    @property
    def report(self) -> Mapping[str, Any]:
        """The weekly report of a report's message."""
        return {} if isinstance(self.payload, Page) else self.payload

    @property
    def document(self) -> dict[str, Any]:
        """The page or the report as JSON values."""
        return dict(self.report) if self.kind == "report" else self.page.document()

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this message, another for every other message."""
        again = f"-{self.number}" if self.number else ""
        return f"{self.subject}-{self.event}{again}"


def message_of(payload: Page | Mapping[str, Any]) -> Message:
    """The first message of a page, or of a report, by its own fields."""
    if not isinstance(payload, Page):
        return Message("report", payload["week"]["name"], "report", 0, payload)
    return Message("incident", payload.incident, payload.event, 0, payload)


class Sender(Protocol):
    """Takes messages to one receiver."""

    def send(self, message: Message) -> Conversation | None:
        """Deliver the message.

        Returns what later messages about the same incident need to know of this one; None keeps
        what is known.

        Raises DeliveryError: the receiver did not take it; ``permanent`` where trying again with
        the same message cannot help, ``retry_after_seconds`` where the receiver named a time.
        """


S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Configured(Generic[S]):
    """A sender of a configuration. It reads its secrets for each message, so that a changed file
    counts at once; sending raises ConfigError where one cannot be read just now.
    """

    name: str  # receiver name, the only thing of it that errors print
    settings: S

    def check(self) -> None:
        """Read every secret once. Raises ConfigError: one cannot be used."""
        read_secrets(self.settings)


def next_attempt(
    attempts: int,
    now: datetime,
    key: str,
    planned_at: datetime,
    retry_after_seconds: float | None = None,
) -> datetime | None:
    """When to try again after a failed attempt; None: it is given up, a day after it was planned.

    The delay doubles from 5 s to 5 min and is spread by ±20 %, so that receivers that failed
    together are not asked together again. A ``Retry-After`` is waited out (at most an hour of it),
    never shortened.

    ``attempts``: attempts made, the failed one included; ``now``: when that failed; ``key``: what
    to spread by; ``planned_at``: from when it could be sent; ``retry_after_seconds``: what the
    receiver asked for, at least 0.
    """
    if now - planned_at >= GIVEN_UP_AFTER:
        return None
    digest = hashlib.sha256(f"{key}#{attempts}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2.0**64
    delay = min(FIRST_DELAY_SECONDS * 2.0 ** min(attempts - 1, 16), LONGEST_DELAY_SECONDS)
    delay *= 1.0 + JITTER_RATIO * (2.0 * share - 1.0)
    wish = min(retry_after_seconds or 0.0, LONGEST_RETRY_AFTER_SECONDS)
    return now + timedelta(seconds=max(delay, wish))
