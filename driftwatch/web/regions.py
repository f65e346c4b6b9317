"""The fleets of other regions, each of a driftwatch of its own, as their webs show them.

A thread asks every region's ``/api/v1/targets``; a page shows what came last and never waits. A
region that does not answer keeps its last fleet, with its age and since when it is silent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from driftwatch.clock import Clock, SystemClock
from driftwatch.collect.http import Bounds, Gets, Response
from driftwatch.settings.web import RegionSettings
from driftwatch.web.fleet_states import RANK
from driftwatch.web.paging import MOST_ROWS

EACH_SECONDS = 15.0
# a fleet's first 200 targets are some 200 kB
BOUNDS = Bounds(connect_seconds=2.0, read_seconds=5.0, total_seconds=10.0, body_bytes=4_000_000)
_PAGE = f"/api/v1/targets?size={MOST_ROWS}"
_Name = Annotated[str, Field(max_length=1000)]
_Count = Annotated[int, Field(ge=0, le=10_000_000)]


class _Part(BaseModel):
    """What is read of a region's page; a newer release may have more."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Row(_Part):
    pool: _Name
    state: _Name


class _States(_Part):
    name: _Name
    targets: _Count


class _Line(_Part):
    text: _Name


class RegionFleet(_Part):
    """A region's fleet page."""

    schema_version: Literal[1]
    end: datetime | None
    is_stale: bool
    targets: _Count
    states: tuple[_States, ...] = Field(max_length=100)
    untaken: tuple[_Line, ...] = Field(max_length=100)
    pools: tuple[_Name, ...] = Field(max_length=1000)
    rows: tuple[_Row, ...] = Field(max_length=MOST_ROWS)

    def pool_states(self) -> dict[str, str | None]:
        """Pool → its worst state; None where none of its targets is among the rows, the worst."""
        worst: dict[str, str | None] = dict.fromkeys(self.pools)
        for row in sorted(self.rows, key=lambda one: RANK.get(one.state, 0)):
            if worst.get(row.pool) is None:
                worst[row.pool] = row.state
        return worst


@dataclass(frozen=True, slots=True)
class Region:
    """What is known of one region."""

    name: str
    url: str
    fleet: RegionFleet | None = None  # None = it never answered
    answered_at: datetime | None = None
    silent_since: datetime | None = None  # None = the last request was answered
    reason: str | None = "not asked yet"  # why the last request was not answered

    def after(self, answer: Response) -> Region:
        """What is known after one more request."""
        reason = answer.reason
        if answer.body is not None:
            try:
                fleet = RegionFleet.model_validate_json(answer.body)
            except ValidationError:
                reason = "answers with something else than a fleet"
            else:
                return replace(
                    self, fleet=fleet, answered_at=answer.time, silent_since=None, reason=None
                )
        return replace(self, silent_since=self.silent_since or answer.time, reason=reason)


class Regions:
    """The other regions of one web; none without settings."""

    def __init__(self, settings: Sequence[RegionSettings] = (), clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.current = tuple(Region(one.name, one.url.rstrip("/")) for one in settings)

    @contextmanager
    def kept_fresh(self) -> Iterator[None]:
        """Ask all of them in a thread while the context lasts."""
        if not self.current:
            yield
            return
        ending = threading.Event()
        gets = Gets([(one.url, one.name) for one in self.current], self._clock, BOUNDS)

        def keep() -> None:
            while not ending.is_set():
                for name, answer in gets.answers(gets.beside(_PAGE)):
                    # one assignment: a page sees the answers before or these
                    self.current = tuple(
                        one.after(answer) if one.name == name else one for one in self.current
                    )
                ending.wait(EACH_SECONDS)

        thread = threading.Thread(target=keep, name="driftwatch-regions", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            gets.close()
