"""The long tail (Teams, Telegram, ntfy, ...) through Apprise: best effort, its own time-outs."""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from driftwatch.address_guard import REFUSED, refused
from driftwatch.errors import ConfigError, DeliveryError, Problem
from driftwatch.receivers.letter import harmless, letter_of
from driftwatch.receivers.sender import Configured, Message
from driftwatch.settings.receivers import AppriseReceiver

BODY_LIMIT = 1800  # the services' own limits begin at 2,000 characters (Discord)


@dataclass(frozen=True, slots=True)
class AppriseSender(Configured[AppriseReceiver]):
    """Sends title and text to one service."""

    def check(self) -> None:
        """Raises ConfigError: Apprise is not installed, or the address cannot be read."""
        if importlib.util.find_spec("apprise") is None:
            text, install = "it needs Apprise, which is not installed", "vllm-driftwatch[apprise]"
            place = f"receiver {self.name}", None, None
            raise ConfigError((Problem(*place, "not-installed", text, f"pip install '{install}'"),))
        self.settings.read("address")

    def send(self, message: Message) -> None:
        """Send once.

        Raises DeliveryError: the service did not take it.
        """
        from apprise import Apprise, AppriseAsset  # it loads every service

        logging.getLogger("apprise").propagate = False  # its lines hold parts of the address
        service = Apprise(asset=AppriseAsset(http_redirects=False, secure_logging=True))
        address = self.settings.read("address") or ""
        if _is_refused(address):
            raise DeliveryError(f"{self.name}: {REFUSED}", permanent=True)
        if not service.add(address):
            raise DeliveryError(f"{self.name}: apprise does not know its address", permanent=True)
        if not service.notify(**job_of(message), body_format="text"):
            raise DeliveryError(f"{self.name}: apprise could not send it", permanent=False)


def _is_refused(address: str) -> bool:
    """The host is the number of a refused address. No name is looked up: it may be a secret."""
    try:
        return refused(urlsplit(address).hostname or "")
    except ValueError:
        return False


def job_of(message: Message) -> dict[str, Any]:
    """What Apprise is to send: no text of it formats, mentions or links; whole lines, as many as
    have room.
    """
    letter = letter_of(message)
    rows = [harmless(f"{label}: {text}" if label else text) for label, text in letter.lines]
    rows += [harmless(command) for command in letter.commands]
    rows += [f"{word}: {address}" for word, address in letter.links]
    rows += [harmless(letter.signature)] if letter.signature else []
    body = ""
    for row in rows or ["-"]:
        if len(body) + len(row) + 2 > BODY_LIMIT:
            body += "…"
            break
        body += f"{row}\n"
    kind = {"resolved": "success", "firing": "failure"}.get(message.event, "info")
    return {"title": harmless(letter.title), "body": body.rstrip("\n"), "notify_type": kind}
