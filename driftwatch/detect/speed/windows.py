"""Statistics of the last minutes, for every target and minute at once; NaN is an unknown minute."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from driftwatch.detect.speed.load import Floats

KNOWN_RATIO = 0.6  # of a window's minutes must be known


def last_quantiles(
    values: Floats, minutes: int, shares: tuple[float, ...], start: int = 0
) -> list[Floats]:
    """Quantiles (linear, as NumPy's) of the last minutes, up to and with each minute.

    Args:
        values: (target, minute).
        minutes: of the window.
        shares: which quantiles.
        start: the first minute that is asked for.

    Returns:
        (target, minute) for each, from ``start`` on; NaN where fewer than KNOWN_RATIO of the
        window are known.
    """
    # what lies before the first window is not sorted only to be thrown away
    before = max(start - minutes + 1, 0)
    values, start = values[:, before:], start - before
    targets, count = values.shape
    found = [np.full((targets, count), np.nan) for _ in shares]
    if count < minutes:
        return [one[:, start:] for one in found]
    ordered = np.sort(sliding_window_view(values, minutes, axis=1), axis=-1)  # NaN last
    known = (~np.isnan(ordered)).sum(axis=-1)
    enough = known >= KNOWN_RATIO * minutes
    for into, share in zip(found, shares, strict=True):
        place = share * (np.maximum(known, 1) - 1)
        low = np.floor(place).astype(np.intp)
        high = np.ceil(place).astype(np.intp)
        below = np.take_along_axis(ordered, low[..., None], axis=-1)[..., 0]
        above = np.take_along_axis(ordered, high[..., None], axis=-1)[..., 0]
        into[:, minutes - 1 :] = np.where(enough, below + (above - below) * (place - low), np.nan)
    return [one[:, start:] for one in found]


def faded_mean(
    values: Floats, age: int, span: int, fading: float, least: int, start: int = 0
) -> Floats:
    """Mean of the minutes ``age`` to ``age + span - 1`` ago, the older the lighter.

    Args:
        values: (target, minute).
        age: minutes left out at the end.
        span: how many are looked at.
        fading: minutes in which a weight falls to 1/e.
        least: known minutes without which the mean is unknown.
        start: the first minute that is asked for.

    Returns:
        (target, minute), from ``start`` on.
    """
    before = max(start - age - span + 1, 0)
    values, start = values[:, before:], start - before
    count = values.shape[1]
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    total, weight = np.zeros(values.shape), np.zeros(values.shape)
    seen = np.zeros(values.shape, dtype=np.int32)
    # minute by minute: all windows at once would take `span` times the room
    for back in range(age, min(age + span, count)):
        share = np.exp(-(back - age) / fading)
        total[:, back:] += share * filled[:, : count - back]
        weight[:, back:] += share * known[:, : count - back]
        seen[:, back:] += known[:, : count - back]
    enough = seen >= least
    found: Floats = np.where(enough, total / np.where(enough, weight, 1.0), np.nan)
    return found[:, start:]


def of_others(values: Floats) -> Floats:
    """Median of the other rows in the same minute; NaN for fewer than two others.

    Args:
        values: (target of one pool, minute).
    """
    rows, count = values.shape
    if rows < 3:
        return np.full((rows, count), np.nan)
    order = np.argsort(values, axis=0, kind="stable")  # NaN last
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(rows)[:, None].repeat(count, axis=1), axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    known = (~np.isnan(values)).sum(axis=0)
    # without a row of rank k the places from k on move up by one; an unknown row takes none away
    others = np.where(np.isnan(values), known, known - 1)
    low, high = np.maximum(others - 1, 0) // 2, others // 2
    cut = np.where(np.isnan(values), rows, rank)
    low, high = low + (low >= cut), high + (high >= cut)
    last = rows - 1
    below = np.take_along_axis(ordered, np.minimum(low, last), axis=0)
    above = np.take_along_axis(ordered, np.minimum(high, last), axis=0)
    return np.where(others >= 2, (below + above) / 2.0, np.nan)
