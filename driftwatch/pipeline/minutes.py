"""Past minutes of targets: stored ones, and those that a tick evaluates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import polars as pl

from driftwatch.collect.schema import KEY, keys_frame
from driftwatch.model import TargetKey
from driftwatch.signals.minutes import MINUTE_KEY, MINUTE_SCHEMA
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store

# A question covers this much.
WINDOW = timedelta(hours=1)

# verdict on the engine's speed → its ratio
_SPEED = {
    "slower_at_equal_load": "speed_at_equal_load_ratio",
    "slower_than_pool": "speed_against_pool_ratio",
}
_JUDGED = (*MINUTE_SCHEMA, *_SPEED, *_SPEED.values(), "gpu_model")
_ANOTHER_ENGINE = ("restarted", "configuration_changed", "release_changed")


class _Ahead(NamedTuple):
    """Rows read at once for many questions."""

    keys: frozenset[TargetKey]
    since: datetime
    until: datetime
    columns: frozenset[str]
    rows: pl.DataFrame


class PastMinutes:
    """Minutes of targets: evaluated ones, and older ones from a store.

    An evaluated minute replaces a stored one. Minutes of one target are read once.

    Args:
        evaluated: frames of :data:`driftwatch.store.minute_columns.STORED_SCHEMA`.
    """

    def __init__(self, store: Store | None = None, evaluated: Sequence[pl.DataFrame] = ()) -> None:
        self.store = store
        self._evaluated = tuple(evaluated)
        self._read: dict[tuple[TargetKey, datetime, datetime], pl.DataFrame] = {}
        self._ahead: _Ahead | None = None

    def with_minutes(self, minutes: pl.DataFrame) -> PastMinutes:
        """These minutes with more evaluated ones."""
        return PastMinutes(self.store, (*self._evaluated, minutes))

    def rows(
        self,
        keys: Collection[TargetKey],
        since: datetime,
        until: datetime,
        columns: Collection[str] = tuple(STORED_SCHEMA),
    ) -> pl.DataFrame:
        """Columns of STORED_SCHEMA of minutes that end in (since, until], by target and end."""
        named = keys_frame(set(keys))
        inside = (pl.col("end") > since) & (pl.col("end") <= until)
        if (
            (ahead := self._ahead) is not None
            and ahead.since <= since
            and until <= ahead.until
            and ahead.keys.issuperset(keys)
            and ahead.columns.issuperset(columns)
        ):
            own = ahead.rows.filter(inside)
            return own.join(named, on=KEY, how="semi", maintain_order="left").select(*columns)
        found = [pl.DataFrame(schema=STORED_SCHEMA).select(*columns)]
        if self.store is not None:
            stored = self.store.past(since, until, keys, columns)
            found.append(stored.filter(pl.col("seconds") == MINUTE).select(*columns))
        for minutes in self._evaluated:
            own = minutes.filter(inside).join(named, on=KEY, how="semi")
            found.append(own.select(*columns))
        return pl.concat(found).unique(MINUTE_KEY, keep="last").sort(*MINUTE_KEY)

    def read_ahead(
        self,
        keys: Collection[TargetKey],
        since: datetime,
        until: datetime,
        columns: Collection[str],
    ) -> None:
        """Read many targets' rows at once; later :meth:`rows` of a part of them read nothing."""
        rows = self.rows(keys, since, until, columns)
        self._ahead = _Ahead(frozenset(keys), since, until, frozenset(columns), rows)

    def minutes(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        """:data:`MINUTE_SCHEMA` of the minutes that end in (since, until], by end."""
        return self.judged(key, since, until).select(*MINUTE_SCHEMA)

    def judged(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        """The same, with the verdicts on speed."""
        question = (key, since, until)
        if question not in self._read:
            self._read[question] = self.rows([key], since, until, _JUDGED)
        return self._read[question]


def with_last_speed(row: Mapping[str, Any], past: pl.DataFrame) -> dict[str, Any]:
    """The row; an unknown speed gets the verdict "slower" if its last known verdict was that.

    A slower engine may preempt or stall. Its speed is then unknown, just when nobody must raise a
    setting. A known speed without a verdict is not slower. Verdicts before a restart or a change do
    not count.

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
        is_measured = values.get(verdict) is not None or values.get(ratio) is not None
        if verdict not in past.columns or is_measured:
            continue
        judged = past.filter(pl.col(verdict).is_not_null())
        if len(judged) and judged[verdict][-1]:
            values[verdict] = True
            if ratio in past.columns:
                values[ratio] = judged[ratio][-1]
    return values


def is_slow(past: pl.DataFrame) -> bool:
    """Whether a target's last verdict on speed is "slower"; ``past``: its minutes in order."""
    known = (past[name].drop_nulls() for name in _SPEED if name in past.columns)
    return any(len(one) > 0 and one[-1] for one in known)


def after_last_slow(past: pl.DataFrame) -> pl.DataFrame:
    """The minutes after the last slow one, if the target is no longer slow.

    Step times of a slow engine do not describe the current one.
    """
    for verdict in _SPEED:
        if verdict not in past.columns:
            continue
        slow = past[verdict].fill_null(False).arg_true()
        if len(slow) and past[verdict].drop_nulls()[-1] is False:
            past = past.slice(int(slow[-1]) + 1)
    return past
