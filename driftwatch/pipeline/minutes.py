"""The last hour of a target's minutes: stored ones, and those that a tick evaluates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.model import TargetKey
from driftwatch.signals.minutes import MINUTE_KEY, MINUTE_SCHEMA
from driftwatch.store.minute_columns import STORED_SCHEMA, stored_rows
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store

# Columns of a question.
WINDOW = timedelta(hours=1)

# Verdicts about the engine's speed, each with its number.
_SPEED = {
    "slower_at_equal_load": "speed_at_equal_load_ratio",
    "slower_than_pool": "speed_against_pool_ratio",
}
SPEED_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(_SPEED, pl.Boolean),
    **dict.fromkeys(_SPEED.values(), pl.Float64),
}
RECENT_SCHEMA = {**MINUTE_SCHEMA, **SPEED_SCHEMA}
_ANOTHER_ENGINE = ("restarted", "configuration_changed", "release_changed")


class PastMinutes:
    """Minutes of one target at a time: evaluated ones, and older ones from a store.

    If both have a minute, the evaluated one counts. Stored minutes are read once.

    Args:
        frame: :data:`driftwatch.store.minute_columns.STORED_SCHEMA`; what it lacks is unknown.
    """

    def __init__(
        self,
        frame: pl.DataFrame | None = None,
        store: Store | None = None,
        evaluated: Sequence[tuple[pl.DataFrame, pl.DataFrame]] = (),
    ) -> None:
        self.store = store
        self._given = frame
        self._evaluated = tuple(evaluated)
        self._read: dict[tuple[TargetKey, datetime, datetime], pl.DataFrame] = {}

    def with_rows(self, rows: pl.DataFrame, minute_rows: pl.DataFrame) -> PastMinutes:
        """The past with minutes under evaluation: evidence, and ROW_SCHEMA beside it."""
        return PastMinutes(self._given, self.store, (*self._evaluated, (rows, minute_rows)))

    @cached_property
    def _at_hand(self) -> pl.DataFrame:
        given = pl.DataFrame() if self._given is None else self._given
        there = set(given.columns)
        schema = STORED_SCHEMA.items()
        whole = given.select(
            (pl.col(name) if name in there else pl.lit(None)).cast(dtype).alias(name)
            for name, dtype in schema
        )
        return pl.concat([whole, *(stored_rows(*pair) for pair in self._evaluated)])

    def rows(self, keys: pl.DataFrame, since: datetime, until: datetime) -> pl.DataFrame:
        """Stored rows (STORED_SCHEMA) of some targets' minutes that end in (since, until], by
        target and end.

        ``keys``: instance, engine.
        """
        named = [TargetKey(*key) for key in keys.select(*KEY_COLUMNS).unique().iter_rows()]
        own = self._at_hand.filter((pl.col("end") > since) & (pl.col("end") <= until))
        own = own.join(keys, on=KEY_COLUMNS, how="semi")
        return self._with_stored(own, named, since, until, STORED_SCHEMA)

    def minutes(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        """:data:`MINUTE_SCHEMA` of the minutes that end in (since, until], by end."""
        return self.judged(key, since, until).select(*MINUTE_SCHEMA)

    def judged(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        """The same with the verdicts about speed: :data:`RECENT_SCHEMA`."""
        question = (key, since, until)
        if question not in self._read:
            own = self._at_hand.filter(
                (pl.col("instance") == key.instance)
                & (pl.col("engine") == key.engine)
                & (pl.col("end") > since)
                & (pl.col("end") <= until)
            ).select(*RECENT_SCHEMA)
            self._read[question] = self._with_stored(own, [key], since, until, RECENT_SCHEMA)
        return self._read[question]

    def _with_stored(
        self,
        own: pl.DataFrame,
        keys: Sequence[TargetKey],
        since: datetime,
        until: datetime,
        columns: Mapping[str, object],
    ) -> pl.DataFrame:
        if self.store is None:
            return own.sort(*MINUTE_KEY)
        stored = self.store.past(since, until, keys, columns)
        both = [stored.filter(pl.col("seconds") == MINUTE).select(*columns), own]
        return pl.concat(both).unique(MINUTE_KEY, keep="last").sort(*MINUTE_KEY)


def with_last_speed(row: Mapping[str, Any], past: pl.DataFrame) -> dict[str, Any]:
    """The row; an unknown verdict on speed becomes true if the last known one was.

    A slower engine fills its batch and leaves the loads that its baseline covers: its speed is
    unknown just when no knob must be raised. A restart or a change begins another engine.

    Args:
        past: minutes of the same target before its end, by time, with the detectors' verdicts.

    >>> past = pl.DataFrame({"slower_at_equal_load": [False, True, None]})
    >>> with_last_speed({"slower_at_equal_load": None}, past)["slower_at_equal_load"]
    True
    >>> with_last_speed({"slower_at_equal_load": False}, past)["slower_at_equal_load"]
    False
    """
    values = dict(row)
    for name in _ANOTHER_ENGINE:
        if name in past.columns and past[name].fill_null(False).any():
            past = past.slice(int(past[name].fill_null(False).arg_true()[-1]) + 1)
    for verdict, ratio in _SPEED.items():
        if verdict not in past.columns or values.get(verdict) is not None:
            continue
        judged = past.filter(pl.col(verdict).is_not_null())
        if len(judged) and judged[verdict][-1]:
            values[verdict] = True
            if ratio in past.columns and values.get(ratio) is None:
                values[ratio] = judged[ratio][-1]
    return values


def since_slow(past: pl.DataFrame) -> pl.DataFrame:
    """The minutes after the last slow one, if the target is slow no longer.

    Step times of a slow engine do not describe the one that runs now.
    """
    for verdict in _SPEED:
        if verdict not in past.columns:
            continue
        slow = past[verdict].fill_null(False).arg_true()
        if len(slow) and past[verdict].drop_nulls()[-1] is False:
            past = past.slice(int(slow[-1]) + 1)
    return past
