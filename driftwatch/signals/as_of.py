"""What was known at a window's edge: the nearest scrape of the same target."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS

_KEY = list(KEY_COLUMNS)
_Ints = npt.NDArray[np.int64]
# All targets stand on one line of whole microseconds, which must fit into 64 bits.
_LONGEST = 1 << 62


def keys(frame: pl.DataFrame) -> list[str]:
    """What says whose a row is: a number where targets are numbered, else instance and engine."""
    return ["target"] if "target" in frame.columns else _KEY


def at_end(
    windows: pl.DataFrame,
    levels: pl.DataFrame,
    *,
    inclusive: bool = False,
    tolerance: timedelta | None = None,
) -> pl.DataFrame:
    """Each window with the last row before its end.

    Args:
        windows: instance, engine, end (``target`` too where the levels have it).
        levels: instance, engine or ``target``, ``time`` and what is wanted of it; by target and
            time.
        inclusive: a row exactly at the end counts (a person's window); on the minute grid it
            belongs to the next minute.
        tolerance: how much older than the end a row may be; None = however old.

    Returns:
        ``window`` (the row's number in ``windows``, ascending), the window's columns and those of
        the level; NULL where there is none.
    """
    before, first, _ = _last_before(windows, levels, "end", inclusive=inclusive)
    found = _joined(windows, levels, np.where(before >= first, before, -1))
    if tolerance is None:
        return found
    near = pl.col("time") >= pl.col("end") - tolerance
    of_level = [c for c in levels.columns if c not in keys(levels)]
    return found.with_columns(pl.when(near).then(pl.col(c)).alias(c) for c in of_level)


def at_start(windows: pl.DataFrame, levels: pl.DataFrame) -> pl.DataFrame:
    """Each window with the first row at or after its start; otherwise as :func:`at_end`."""
    before, _, last = _last_before(windows, levels, "start", inclusive=False)
    return _joined(windows, levels, np.where(before < last, before + 1, -1))


def _joined(windows: pl.DataFrame, levels: pl.DataFrame, rows: _Ints) -> pl.DataFrame:
    """Windows beside the levels' rows of these numbers; NULL where the number is below 0."""
    numbered = pl.DataFrame({"row": rows}).select(pl.when(pl.col("row") >= 0).then(pl.col("row")))
    of_level = levels.drop(keys(levels)).select(pl.all().gather(numbered.to_series()))
    return windows.with_row_index("window").hstack(of_level)


def _last_before(
    windows: pl.DataFrame, levels: pl.DataFrame, edge: Literal["start", "end"], *, inclusive: bool
) -> tuple[_Ints, _Ints, _Ints]:
    """Per window: the last row before its edge, the first and the last row of its target.

    The last row before may be that of the target before; without rows 0 is first and -1 last.
    """
    by = keys(levels)
    begins = pl.any_horizontal((pl.col(c) != pl.col(c).shift(1)).fill_null(True) for c in by)
    begun = levels.select(*by, begins=begins).with_row_index("first").filter("begins")
    firsts = begun["first"].to_numpy().astype(np.int64)
    lasts = np.append(firsts, len(levels))[1:] - 1
    whose = windows.select(by).join(
        begun.select(by).with_row_index("whose"), on=by, how="left", maintain_order="left"
    )["whose"]
    known = whose.is_not_null().to_numpy()
    if not known.any():
        none = np.full(len(windows), -1, dtype=np.int64)
        return none, none + 1, none
    number = whose.fill_null(0).cast(pl.Int64).to_numpy()
    times = levels["time"].dt.epoch("us").to_numpy()
    edges = windows[edge].dt.epoch("us").to_numpy()
    side: Literal["left", "right"] = "right" if inclusive else "left"
    if (int(times.max()) - int(times.min()) + 3) * len(firsts) >= _LONGEST:
        # too far apart to stand on one line: their ranks do; an edge's rank counts what is before
        ranked = np.unique(times)
        times, edges = np.searchsorted(ranked, times), np.searchsorted(ranked, edges, side)
        side = "left"
    low, high = int(times.min()), int(times.max())
    apart = high - low + 3
    line = np.repeat(np.arange(len(firsts)), lasts - firsts + 1) * apart + (times - low + 1)
    asked = number * apart + (np.clip(edges, low - 1, high + 1) - low + 1)
    before = np.searchsorted(line, asked, side) - 1
    return (
        np.where(known, before, -1),
        np.where(known, firsts[number], 0),
        np.where(known, lasts[number], -1),
    )
