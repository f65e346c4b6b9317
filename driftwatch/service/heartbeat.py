"""The heartbeat: something outside hears of each complete tick, and tells people when it stops.

A tick is complete when it is committed and every source has answered. A failed scrape of a server
is an answer, as a coverage alert tells of it; a source that cannot say which servers exist gives
none. No heartbeat is sent either while an incident is open that no receiver has taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from prometheus_client import Counter, Gauge

from driftwatch.clock import Clock
from driftwatch.errors import ConfigError, DeliveryError
from driftwatch.receivers.http import post
from driftwatch.service.source_threads import Gathered
from driftwatch.service.trouble import Trouble
from driftwatch.settings.service import HeartbeatSettings
from driftwatch.store.progress import unwatched
from driftwatch.store.store import Store

# A page that no receiver has taken for this long withholds the heartbeat.
UNDELIVERED = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Ping:
    """A URL of a dead man's switch, such as a check of healthchecks.io: GET, any 2xx."""

    read_url: Callable[[], str] = field(repr=False)  # read for each ping: it may be changed

    def send(self) -> None:
        """Ask for the URL.

        Raises DeliveryError: it did not answer so, or the URL cannot be read.
        """
        try:
            url = self.read_url()
        except ConfigError as error:
            problem = error.problems[0].message
            raise DeliveryError(f"heartbeat: {problem}", permanent=True) from None
        post("heartbeat", url, b"", {}, method="GET")


def ping_of(settings: HeartbeatSettings) -> Ping:
    """Who hears the heartbeat of a configuration.

    Raises ConfigError: the URL cannot be read.
    """
    settings.read_url()
    return Ping(settings.read_url)


class Answering:
    """Which sources have answered last."""

    def __init__(self) -> None:
        self._silent: dict[str, str] = {}

    def why_incomplete(self, gathered: Gathered) -> str | None:
        """Why a tick with these answers tells nothing of some source; None = all have answered."""
        for name in gathered.names:
            self._silent.pop(name, None)
        # one that was not asked again since it failed is as silent as before
        self._silent |= {name: f"{name} cannot answer" for name in gathered.failed}
        silent = {**self._silent, **gathered.late}
        return next((silent[name] for name in sorted(silent)), None)


def why_withheld(store: Store, blind: str | None, now: datetime) -> str | None:
    """Why nobody outside is told that every batch was ticked; None = they are.

    ``blind``: why this process cannot evaluate anything.
    """
    progress = store.batches()
    if (why := next((one.incomplete for one in progress if one.incomplete), blind)) is not None:
        return why
    if silent := unwatched(progress, now):
        return f"no tick of batch {', '.join(map(str, silent))}"
    unheard = store.unheard_count(now - UNDELIVERED)
    word = "incident" if unheard == 1 else "incidents"
    return f"no receiver has taken the page of {unheard} open {word}" if unheard else None


class Heartbeat:
    """Sends in a thread of its own; no tick waits for it.

    ``counts``: label ``result`` (sent, failed, withheld); ``succeeded``: when one was last taken.
    """

    def __init__(
        self, ping: Ping, every_seconds: float, clock: Clock, counts: Counter, succeeded: Gauge
    ) -> None:
        self._ping, self._every_seconds, self._clock = ping, every_seconds, clock
        self._counts, self._succeeded = counts, succeeded
        self._thread = ThreadPoolExecutor(1, "driftwatch-heartbeat")
        self._sending: Future[None] | None = None
        self._withheld = Trouble("heartbeat withheld", "heartbeat goes on")
        self._failing = Trouble("heartbeat not taken", "heartbeat taken again")
        self._taken_at: float | None = None  # monotonic
        for result in ("sent", "failed", "withheld"):
            counts.labels(result)

    def ticked(self, why_withheld: str | None) -> None:
        """A tick is committed; ``why_withheld``: why nobody is told of it, None = they are."""
        self._withheld.note(why_withheld)
        if why_withheld is not None:
            self._counts.labels("withheld").inc()
        elif self._sending is None or self._sending.done():
            self._sending = self._thread.submit(self._send_if_due)

    def end(self) -> None:
        """Wait for what is on its way, and send no more."""
        self._thread.shutdown()

    def _send_if_due(self) -> None:
        began = time.monotonic()
        if not due(self._taken_at, began, self._every_seconds):
            return
        why = None
        try:
            self._ping.send()
        except Exception as error:  # noqa: BLE001 - the next one may be taken
            why = str(error) if isinstance(error, DeliveryError) else repr(error)
        self._failing.note(why)
        self._counts.labels("sent" if why is None else "failed").inc()
        if why is None:
            self._taken_at = began
            self._succeeded.set(self._clock.now().timestamp())


def due(taken_at: float | None, now: float, every_seconds: float) -> bool:
    """Whether the next heartbeat is due at a tick; seconds of one monotonic clock.

    A tick comes a little early or late: a twentieth early is on time. One that was not taken is
    tried again at the next tick.

    >>> due(None, 5.0, 60.0), due(5.0, 50.0, 60.0), due(5.0, 62.5, 60.0)
    (True, False, True)
    """
    return taken_at is None or now - taken_at >= 0.95 * every_seconds
