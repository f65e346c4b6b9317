"""What was known at a window's edge: the nearest scrape of the same target."""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS

_KEY = list(KEY_COLUMNS)


def at_end(
    windows: pl.DataFrame,
    levels: pl.DataFrame,
    *,
    inclusive: bool = False,
    tolerance: timedelta | None = None,
) -> pl.DataFrame:
    """Each window with the last row before its end.

    Args:
        windows: instance, engine, start, end.
        levels: instance, engine, ``time`` and what is wanted of it.
        inclusive: a row exactly at the end counts (a person's window); on the minute grid it
            belongs to the next minute.
        tolerance: how much older than the end a row may be; None = however old.

    Returns:
        ``window`` (the row's number in ``windows``, ascending), the window's columns and those of
        the level; NULL where there is none.
    """
    return (
        windows.with_row_index("window")
        .sort("end")
        .join_asof(
            levels.sort("time"),
            left_on="end",
            right_on="time",
            by=_KEY,
            strategy="backward",
            allow_exact_matches=inclusive,
            tolerance=tolerance,
            check_sortedness=False,
        )
        .sort("window")
    )


def at_start(windows: pl.DataFrame, levels: pl.DataFrame) -> pl.DataFrame:
    """Each window with the first row at or after its start; otherwise as :func:`at_end`."""
    return (
        windows.with_row_index("window")
        .sort("start")
        .join_asof(
            levels.sort("time"),
            left_on="start",
            right_on="time",
            by=_KEY,
            strategy="forward",
            check_sortedness=False,
        )
        .sort("window")
    )
