"""How far another machine's clock is from ours, by the ``Date`` of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime

import requests

from driftwatch.clock import Clock
from driftwatch.collect.http_session import EndableSession

_CONNECT_SECONDS, _READ_SECONDS = 2.0, 3.0


_AT_ONCE = 16


def clock_offset(url: str, clock: Clock, *, verify: bool | str = True) -> float | None:
    """Seconds that the server's clock is ahead of ours; None where it does not say.

    Whatever it answers, a refusal too, carries the time. It is told in whole seconds, so an
    offset below two seconds says nothing.

    ``url``: any address of the server, without credentials; ``verify``: check TLS certificates:
    True, or a file of authorities.
    """
    with EndableSession() as session, suppress(requests.RequestException, OSError, ValueError):
        began = clock.now()
        with session.head(
            url,
            allow_redirects=False,
            stream=True,
            verify=verify,
            timeout=(_CONNECT_SECONDS, _READ_SECONDS),
        ) as answer:
            server_time = parsedate_to_datetime(answer.headers.get("Date", ""))
        half = (clock.now() - began) / 2
        if server_time.tzinfo is None:  # "-0000": a time of no stated zone is UTC here
            server_time = server_time.replace(tzinfo=UTC)
        # the header is cut to the second, half a second is lost in the mean
        return round((server_time - began - half).total_seconds() + 0.5, 1)
    return None


def clock_offsets(urls: Mapping[str, str], clock: Clock) -> dict[str, float]:
    """Name → offset of each server that says one, several asked at once."""
    if not urls:
        return {}
    with ThreadPoolExecutor(min(_AT_ONCE, len(urls)), "driftwatch-clock") as pool:
        offsets = pool.map(lambda url: clock_offset(url, clock), urls.values())
        return {name: ahead for name, ahead in zip(urls, offsets, strict=True) if ahead is not None}
