"""The past of an API, which has to answer for all of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from driftwatch.collect.schema import Collected, Source
from driftwatch.errors import Unavailable

# A database that restarts or is overloaded is back in seconds; one that is gone stays away.
PAUSES_SECONDS = (2.0, 8.0)

Pause = Callable[[float], None]


class RetryingSource:
    """A source whose past is read once: asked again where it does not answer, then it is an error.

    A service that is live goes on without a source that is silent, and says so of every target; a
    past must not take a database's absence for that of the servers.

    ``help_text``: what to check where it never answered; None = nothing is known to.
    """

    def __init__(
        self, source: Source, pause: Pause = time.sleep, help_text: str | None = None
    ) -> None:
        self._help_text = help_text
        self.name, self.settle_seconds = source.name, source.settle_seconds
        self._source, self._pause = source, pause
        self._answered = False

    def collect(self, since: datetime, until: datetime) -> Collected:
        """As the source.

        Raises Unavailable: it does not answer, where it did before not after :data:`PAUSES_SECONDS`
        either.
        """
        collected = self._source.collect(since, until)
        for seconds in PAUSES_SECONDS if self._answered else ():  # or the address is a wrong one
            if _has_answer(collected):
                break
            self._pause(seconds)
            collected = self._source.collect(since, until)
        if not _has_answer(collected):
            why = (collected.silent or "").removeprefix("Unavailable: ")
            raise Unavailable(
                f"{self.name} does not answer from {since:%Y-%m-%dT%H:%M:%SZ} on: {why}",
                help_text=None if self._answered else self._help_text,
            )
        self._answered = True
        return collected

    def close(self) -> None:
        """Give back connections."""
        self._source.close()


def _has_answer(collected: Collected) -> bool:
    """It said something; what it left out is named in its problems."""
    return (
        collected.silent is None or not collected.was_asked or bool(collected.scrapes["ok"].any())
    )
