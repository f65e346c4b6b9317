"""The last hour of a target's minutes, for replays: from the store, or from what ticks carry."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

import polars as pl

from driftwatch.model import TargetKey
from driftwatch.signals.minutes import MINUTE_KEY, MINUTE_SCHEMA
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store

# What is replayed, and what a tick without a store carries of it.
WINDOW = timedelta(hours=1)
CARRIED = timedelta(minutes=65)


# What detectors said of a minute, beside it: whether the engine was slower.
SPEED_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "slower_at_equal_load": pl.Boolean,
    "speed_at_equal_load_ratio": pl.Float64,
    "slower_than_pool": pl.Boolean,
    "speed_against_pool_ratio": pl.Float64,
}
RECENT_SCHEMA = {**MINUTE_SCHEMA, **SPEED_SCHEMA}


class PastMinutes(Protocol):
    """Minutes that were, of one target at a time."""

    def minutes(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        """Minutes that end in (since, until], by end.

        Args:
            key: whose.
            since: end of the minute before the first.
            until: end of the last one.

        Returns:
            :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`; empty where nothing is known.
        """
        ...

    def judged(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        """The same with what detectors said of them: :data:`RECENT_SCHEMA`."""
        ...


class StoredMinutes:
    """Minutes of the store: what earlier ticks committed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def minutes(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        """As :meth:`PastMinutes.minutes`."""
        return self._store.minutes(since, until, [key])

    def judged(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        """As :meth:`PastMinutes.judged`."""
        rows = self._store.past(since, until, [key])
        return rows.filter(pl.col("seconds") == MINUTE).select(*RECENT_SCHEMA)


class SeenMinutes:
    """Minutes of a frame, behind those of another past.

    Args:
        frame: :data:`RECENT_SCHEMA`, or minutes without what detectors said; of a minute that both
            know, this one counts.
        before: None = nothing is known besides the frame.
    """

    def __init__(self, frame: pl.DataFrame, before: PastMinutes | None = None) -> None:
        self.frame = frame
        self._before = before

    def minutes(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        """As :meth:`PastMinutes.minutes`."""
        return self.judged(key, since, until).select(*MINUTE_SCHEMA)

    def judged(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        """As :meth:`PastMinutes.judged`."""
        own = self.frame.filter(
            (pl.col("instance") == key.instance)
            & (pl.col("engine") == key.engine)
            & (pl.col("end") > since)
            & (pl.col("end") <= until)
        ).select(
            (pl.col(name) if name in self.frame.columns else pl.lit(None)).cast(dtype).alias(name)
            for name, dtype in RECENT_SCHEMA.items()
        )
        if self._before is None:
            return own.sort("end")
        both = pl.concat([self._before.judged(key, since, until), own])
        return both.unique(MINUTE_KEY, keep="last", maintain_order=True).sort("end")


class Remembered:
    """Minutes that are read once, of whoever they are asked: for as long as nothing is added.

    Args:
        past: where they are read.
    """

    def __init__(self, past: PastMinutes) -> None:
        self._past = past
        self._judged: dict[tuple[TargetKey, datetime, datetime], pl.DataFrame] = {}

    def minutes(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        """As :meth:`PastMinutes.minutes`."""
        return self.judged(key, since, until).select(*MINUTE_SCHEMA)

    def judged(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        """As :meth:`PastMinutes.judged`."""
        asked = (key, since, until)
        if asked not in self._judged:
            self._judged[asked] = self._past.judged(key, since, until)
        return self._judged[asked]


def with_these(
    before: PastMinutes | None, recent: pl.DataFrame, own: pl.DataFrame, rows: pl.DataFrame
) -> SeenMinutes:
    """A past with the minutes that are being evaluated.

    Args:
        before: None = nothing is known besides the rest.
        recent: :data:`RECENT_SCHEMA`.
        own: the minutes, :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`.
        rows: their evidence rows, with what detectors said.
    """
    said = rows.select(pl.col(name).cast(dtype) for name, dtype in SPEED_SCHEMA.items())
    return SeenMinutes(pl.concat([recent, own.hstack(said)]), before)


def carried(frame: pl.DataFrame, last: datetime) -> pl.DataFrame:
    """What a later minute may ask of minutes, after the one that ends at ``last``."""
    return frame.filter(pl.col("end") > last - CARRIED)


def nothing_recent() -> pl.DataFrame:
    """No minute."""
    return pl.DataFrame(schema=RECENT_SCHEMA)
