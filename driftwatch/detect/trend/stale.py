"""Whether the settings still fit: lengths of the last 24 whole hours against the baseline's.

A score is the Jensen-Shannon distance over what is usual for 24 h: the largest distance of a day of
the target's own past from the days before it in the same part of the week (at most three times
their median), and a shipped value until five of them are known. 24 h of a part of the week that
the baseline has none of are scored, not judged: a Sunday is no reason to tune again.
"""

from __future__ import annotations

import numpy as np

from driftwatch.arrays import Flags, Floats, Indices, Singles
from driftwatch.detect.distributions import aligned, counts_of, js_and_w1
from driftwatch.detect.memory import Array
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.trend.baselines import SCALARS
from driftwatch.detect.trend.creep import part_of_week
from driftwatch.detect.trend.memory import HOLD, HOURS, LENGTHS, PAST_DAYS, SIGNALS, Beside, Memory

# Usual distance of 24 h from other 24 h before five days of it are known: the largest of a day from
# the days before it in real client traffic (ServeGen m-small, days 1-7; Azure's is 0.005).
SHIPPED_USUAL = 0.20
# By how much what is usual must be passed, as for a target against its peers.
THRESHOLD = 1.3
# No day is closer to the next than its sampling allows; below it a score would only count noise.
LEAST_USUAL = 0.02
LEAST_PAST = 5
LEAST_REQUESTS = 100
LEAST_CHANGE = float(np.log(1.15))
LEAST_HOURS = 20  # of the 24, with at least
LEAST_MINUTES = 30  # that were scraped
LONG_ENOUGH = 3  # hours in a row


def write_pin_columns(
    memory: Memory, arrays: dict[str, Array], beside: Beside, settings: DetectSettings, hour: int
) -> None:
    """Write the baseline's columns at the end of an hour (since 1970), in place of the old ones."""
    hold, moved = arrays["held"].copy(), arrays["moved_hours"].copy()
    other = beside.number != arrays["pin"]
    moved[other] = 0
    hold[other, HOLD["pin_lengths_moved"]] = np.nan
    whole: Flags = (arrays["last_hours_sums"][:, :, 4] >= LEAST_MINUTES).sum(axis=1) >= LEAST_HOURS
    rows = np.flatnonzero(whole & beside.is_whole_day)
    is_known, apart = np.zeros(len(whole), dtype=bool), np.zeros(len(whole), dtype=bool)
    for i, signal in enumerate(LENGTHS):
        score, change = _against(memory, arrays, beside, signal, rows)
        mean = _mean_ratio(arrays, beside, i, rows)
        hold[:, HOLD[f"{signal}_pin_score"]] = score
        hold[:, HOLD[f"{signal}_pin_ratio"]] = mean
        is_known |= np.isfinite(score)
        with np.errstate(invalid="ignore"):
            far = np.fmax(change, np.abs(np.log(mean))) >= LEAST_CHANGE
            apart |= (score > THRESHOLD) & far
    parts = {part_of_week(h // 24, settings) for h in range(hour - HOURS + 1, hour + 1)}
    judge = is_known & beside.parts[:, sorted(parts)].all(axis=1)
    moved[judge] = np.clip(moved[judge] + np.where(apart[judge], 1, -1), 0, LONG_ENOUGH)
    column = hold[:, HOLD["pin_lengths_moved"]]
    column[judge & (moved == LONG_ENOUGH)] = 1.0
    column[judge & ((moved == 0) | np.isnan(column))] = 0.0
    column[~is_known] = np.nan
    arrays.update(held=hold, moved_hours=moved, pin=beside.number)


def _against(
    memory: Memory,
    arrays: dict[str, Array],
    beside: Beside,
    signal: str,
    rows: Indices,
) -> tuple[Floats, Floats]:
    """Score and |ln| of the typical ratio of each target [n], NaN where there is none."""
    n = len(arrays["pin"])
    score, change = np.full(n, np.nan), np.full(n, np.nan)
    layout = arrays["layouts"][:, SIGNALS.index(signal)]
    rows = rows[layout[rows] >= 0]
    if not len(rows):
        return score, change
    usual = usual_of(arrays[f"usual_{signal}"])
    pairs = np.stack([layout[rows], beside.of[rows]], axis=1)
    for number, place in np.unique(pairs, axis=0):
        reference = beside.cells[signal][place]
        if reference is None:
            continue
        mine = rows[(pairs[:, 0] == number) & (pairs[:, 1] == place)]
        edges = np.array(memory.layouts[signal][number])
        cells = arrays[f"last_hours_{signal}"][mine, :, : len(edges)].sum(axis=1, dtype=float)
        pair = aligned(counts_of(cells), edges, counts_of(reference[0][None, :]), reference[1])
        if pair is None:
            continue
        counts, of_pin, common = pair
        enough = (np.nan_to_num(counts).sum(axis=1) >= LEAST_REQUESTS) & (
            np.nan_to_num(of_pin).sum() >= LEAST_REQUESTS
        )
        distance, typical = js_and_w1(counts, of_pin, common)
        score[mine] = np.where(enough, distance / usual[mine], np.nan)
        change[mine] = np.where(enough, np.log(typical), np.nan)
    return score, change


def _mean_ratio(arrays: dict[str, Array], beside: Beside, signal: int, rows: Indices) -> Floats:
    """Ratio of means [n], NaN where unknown."""
    sums = arrays["last_hours_sums"].sum(axis=1)
    ratios = np.full(len(sums), np.nan)
    reference = beside.scalars[rows, SCALARS.index(f"{LENGTHS[signal]}_mean")]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = sums[rows, 2 * signal] / sums[rows, 2 * signal + 1] / reference
    ratios[rows] = np.where(np.isfinite(ratio) & (ratio > 0), ratio, np.nan)
    return ratios


def usual_of(distances: Singles) -> Floats:
    """What is usual, from the distances of past days [n, days]."""
    count = np.isfinite(distances).sum(axis=1)
    usual = np.where((count >= LEAST_PAST)[:, None], distances, SHIPPED_USUAL).astype(float)
    largest, median = (
        np.nanmax(usual, axis=1),
        np.nanmedian(usual, axis=1),
    )
    bounded: Floats = np.maximum(np.minimum(largest, 3 * median), LEAST_USUAL)
    return bounded


def day_distances(
    memory: Memory, arrays: dict[str, Array], signal: str, day: int, settings: DetectSettings
) -> Singles:
    """Distance of the day's lengths from those of the days before in the same part of the week [n].

    NaN with fewer than two such days or 100 requests, and while lengths are off the baseline's.
    """
    part = part_of_week(day, settings)
    alike = np.array(
        [part_of_week(day - PAST_DAYS + i, settings) == part for i in range(PAST_DAYS)]
    )
    past = arrays[f"last_days_{signal}"][:, alike]
    today = arrays[f"day_{signal}"]
    days = (past[:, :, :].max(axis=2, initial=0.0) >= LEAST_REQUESTS).sum(axis=1)
    distances = np.full(len(today), np.nan, dtype=np.float32)
    layout = arrays["layouts"][:, SIGNALS.index(signal)]
    before = past.sum(axis=1, dtype=float)
    with np.errstate(invalid="ignore"):
        off = arrays["held"][:, HOLD[f"{signal}_pin_score"]] > 1.0
    for number in np.unique(layout[layout >= 0]):
        edges = np.array(memory.layouts[signal][number])
        cells = len(edges)
        rows = np.flatnonzero((layout == number) & (days >= 2) & ~off)
        rows = rows[today[rows, cells - 1] >= LEAST_REQUESTS]
        own, other = counts_of(today[rows, :cells]), counts_of(before[rows, :cells])
        distances[rows] = js_and_w1(own, other, edges)[0]
    return distances
