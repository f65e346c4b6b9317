"""How far back the traffic was like that of the last ten minutes.

A page fires minutes after traffic changed. A replay of the whole hour would size the knob for a mix
of before and after that no server ever sees again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]

# recommendation.md refuses fewer than 10 busy windows and about 500 finished requests.
_LEAST_SECONDS = 600.0
_LEAST_FINISHED = 500.0
# A minute belongs to it while mean lengths are within this factor of the last ten minutes', beyond
# what chance makes of a minute's mean: detection.md asks for x1.5 before lengths count as moved.
_FACTOR = 1.35
_CHANCE = 3.0  # standard errors, with a coefficient of variation of 1
_LENGTHS = ("prompt_tokens", "generation_tokens")
_WAITING_AT_LEAST = 0.5


def recent_regime(minutes: pl.DataFrame) -> pl.DataFrame:
    """The last minutes that are alike, ten of them and 500 finished requests at least.

    Alike: mean lengths of what finished, and whether requests wait for capacity. Three minutes in a
    row that are not end it.

    Args:
        minutes: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA` of one engine, in order.
    """
    seconds = minutes["duration_seconds"].fill_null(0.0).to_numpy()
    back = np.cumsum(seconds[::-1])[::-1]  # from each row's start to the end
    finished = _column(minutes, "generation_tokens_count")
    told = np.cumsum(np.nan_to_num(finished)[::-1])[::-1]
    base = back <= _LEAST_SECONDS + 1.0
    if base.all() or not base.any():
        return minutes
    unlike = _unlike(minutes, base)
    run, first = 0, int(np.argmax(base))
    row = first
    while row > 0:
        row -= 1
        enough = told[row + 1] >= _LEAST_FINISHED
        run = run + 1 if unlike[row] else 0
        if run >= 3 and enough:
            break
        if run == 0 or not enough:
            first = row
    return minutes.slice(first)


def _unlike(minutes: pl.DataFrame, base: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Rows that differ from those of ``base`` together."""
    found = np.zeros(len(minutes), dtype=bool)
    for name in _LENGTHS:
        total, count = _column(minutes, f"{name}_sum"), _column(minutes, f"{name}_count")
        whole = np.nansum(count[base])
        if not whole:
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = total / count
            off = np.abs(np.log(mean / (np.nansum(total[base]) / whole)))
            bound = np.log(_FACTOR) + _CHANCE / np.sqrt(count)
        found |= np.where(np.isfinite(off) & np.isfinite(bound), off > bound, False)
    capacity = _column(minutes, "waiting_capacity_requests")
    waiting = np.where(np.isnan(capacity), _column(minutes, "waiting_requests"), capacity)
    queued = waiting >= _WAITING_AT_LEAST
    known = ~np.isnan(waiting)
    if known[base].any():
        now = bool(np.mean(queued[base & known]) > 0.5)
        found |= known & (queued != now)
    return found


def _column(minutes: pl.DataFrame, name: str) -> Floats:
    return minutes[name].cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)
