"""The last hour of a target's minutes, for replays: from the store, or from what ticks carry."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

import polars as pl

from driftwatch.model import TargetKey
from driftwatch.signals.minutes import MINUTE_KEY, MINUTE_SCHEMA
from driftwatch.store.store import Store

# What is replayed, and what a tick without a store carries of it.
WINDOW = timedelta(hours=1)
CARRIED = timedelta(minutes=65)


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


class StoredMinutes:
    """Minutes of the store: what earlier ticks committed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def minutes(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        """As :meth:`PastMinutes.minutes`."""
        return self._store.minutes(since, until, [key])


class SeenMinutes:
    """Minutes of a frame, behind those of another past.

    Args:
        frame: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`; of a minute that both know, this
            one counts.
        before: None = nothing is known besides the frame.
    """

    def __init__(self, frame: pl.DataFrame, before: PastMinutes | None = None) -> None:
        self.frame = frame
        self._before = before

    def minutes(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        """As :meth:`PastMinutes.minutes`."""
        own = self.frame.filter(
            (pl.col("instance") == key.instance)
            & (pl.col("engine") == key.engine)
            & (pl.col("end") > since)
            & (pl.col("end") <= until)
        ).select(*MINUTE_SCHEMA)
        if self._before is None:
            return own.sort("end")
        known = self._before.minutes(key, since, until).select(*MINUTE_SCHEMA)
        both = pl.concat([known, own])
        return both.unique(MINUTE_KEY, keep="last", maintain_order=True).sort("end")


def carried(frame: pl.DataFrame, last: datetime) -> pl.DataFrame:
    """What a later minute may ask of minutes, after the one that ends at ``last``."""
    return frame.filter(pl.col("end") > last - CARRIED)
