"""What was last known of an engine's speed, where it is unknown now.

An engine that is slower fills its batch, runs out of the range of loads that its pin has seen, and
its speed is then unknown: the one time when it must not be told to raise a knob. What the last hour
knew holds until a restart or a change says that another engine runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

# a verdict, and the figure that is told with it
_VERDICTS = {
    "slower_at_equal_load": "speed_at_equal_load_ratio",
    "slower_than_pool": "speed_against_pool_ratio",
}
_ANOTHER = ("restarted", "configuration_changed", "release_changed")


def with_last_speed(row: Mapping[str, Any], past: pl.DataFrame) -> dict[str, Any]:
    """The row, "slower" where it is unknown now and the last known minute said so.

    Args:
        row: evidence of a window.
        past: minutes of the same target before its end, by time, with what the detectors said.

    >>> past = pl.DataFrame({"slower_at_equal_load": [False, True, None]})
    >>> with_last_speed({"slower_at_equal_load": None}, past)["slower_at_equal_load"]
    True
    >>> with_last_speed({"slower_at_equal_load": False}, past)["slower_at_equal_load"]
    False
    """
    found = dict(row)
    for name in _ANOTHER:
        if name in past.columns and past[name].fill_null(False).any():
            last = int(past[name].fill_null(False).arg_true()[-1])
            past = past.slice(last + 1)
    for verdict, ratio in _VERDICTS.items():
        if verdict not in past.columns or found.get(verdict) is not None:
            continue
        known = past.filter(pl.col(verdict).is_not_null())
        if len(known) and known[verdict][-1]:
            found[verdict] = True
            if ratio in past.columns and found.get(ratio) is None:
                found[ratio] = known[ratio][-1]
    return found


def since_slow(past: pl.DataFrame) -> pl.DataFrame:
    """The minutes after the last one in which the engine was slower, where it no longer is.

    What steps took while it was slower is no law of the engine that runs now.

    Args:
        past: minutes of one target, by time, with what the detectors said where that is known.
    """
    for verdict in _VERDICTS:
        if verdict not in past.columns:
            continue
        slow = past[verdict].fill_null(False).arg_true()
        if len(slow) and past[verdict].drop_nulls()[-1] is False:
            past = past.slice(int(slow[-1]) + 1)
    return past
