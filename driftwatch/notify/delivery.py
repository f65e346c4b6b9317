"""What every sender shares: the protocol, and an HTTP answer → a named delivery error. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from driftwatch.errors import DeliveryError
from driftwatch.notify.numbers import clean, cut
from driftwatch.settings.values import redact

# a receiver that asks for longer is tried again after this long
LONGEST_RETRY_AFTER_SECONDS = 3600.0

_TRANSIENT = frozenset((408, 425, 429))
_SHOWN = 120


class Sender(Protocol):
    """Takes a page to one receiver."""

    def send(self, page: Mapping[str, Any]) -> None:
        """Deliver the page, or say why not.

        Raises:
            DeliveryError: the receiver did not take it; ``permanent`` where trying again with the
                same page cannot help, ``retry_after_seconds`` where the receiver named a time.
        """


def refusal(
    receiver: str, status: int, headers: Mapping[str, str], body: str, secrets: Iterable[str]
) -> DeliveryError | None:
    """What an HTTP answer means for the page; None where it was taken (2xx).

    Args:
        receiver: name from the configuration.
        status: HTTP status.
        headers: of the answer; names in any case.
        body: of the answer, or its beginning: the receiver's own reason.
        secrets: texts that must not be in an error (URL, its path, a key).
    """
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        text = f"{receiver} answered {status}: redirects are not followed"
        return DeliveryError(text, permanent=True)
    said = cut(clean(redact(body.strip(), secrets)), _SHOWN)
    text = f"{receiver} answered {status}" + (f": {said}" if said else "")
    transient = status in _TRANSIENT or status >= 500
    return DeliveryError(
        text,
        permanent=not transient,
        retry_after_seconds=retry_after(headers) if transient else None,
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a ``Retry-After`` header, None without a usable one.

    A date counts from the answer's own ``Date``, not from this machine's clock.

    >>> retry_after({"retry-after": "30"}), retry_after({"Retry-After": "soon"})
    (30.0, None)
    """
    found = {name.lower(): text for name, text in headers.items()}
    text = found.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), LONGEST_RETRY_AFTER_SECONDS)
    try:
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(found.get("date", ""))
    except (ValueError, TypeError):
        return None
    return min(max(0.0, wait.total_seconds()), LONGEST_RETRY_AFTER_SECONDS)


def url_secrets(url: str) -> tuple[str, ...]:
    """The parts of a receiver's URL that give it away: all of it, and what follows the host."""
    rest = url.split("://", 1)[-1]
    host, slash, path = rest.partition("/")
    parts = [url, rest, slash + path, path, host.rpartition("@")[0]]
    return tuple(part for part in parts if len(part) > 3)
