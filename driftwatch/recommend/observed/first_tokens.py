"""When requests came, by when they got their first token and how long they had waited for it.

A row counts its first tokens and the times to them. A first token at T after a time τ is a request
that came at T - τ: in a queue of half a minute that is another row than the one that counts it, and
the spread of τ shows bursts that no count of a minute does. Without a queue τ is nothing beside a
row, and where in it the request came is drawn.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from driftwatch.recommend.observed.clean import Clean, Floats
from driftwatch.simulate.workload.histograms import LengthHistogram, sample_lengths

Integers = npt.NDArray[np.int64]

# Times are drawn as whole numbers of these.
UNIT_SECONDS = 1e-3
# Longest wait that is drawn beside the last bucket edge, in windows.
LONGEST_WINDOWS = 2.0


def came_at(stretch: Clean, waiting_last: int, rng: np.random.Generator) -> Floats | None:
    """Arrival of every request that got a first token in the stretch, or waited when it ended.

    Args:
        stretch: the rows.
        waiting_last: how many waited when it ended: they came after the last that was served.
        rng: the randomness.

    Returns:
        Seconds on the stretch's clock, sorted; below 0 for those that waited when it began. None
        where the times to first tokens are not on every page.
    """
    found_in = histograms(stretch)
    if found_in is None:
        return None
    means = np.array([h.total_tokens / max(h.counts.sum(), 1) for h in found_in], float)
    counts = np.array([int(h.counts.sum()) for h in found_in])
    trend = _trend(means, counts)
    longest = round(LONGEST_WINDOWS * max(stretch.seconds, 1.0) / UNIT_SECONDS)
    found = []
    for row, histogram in enumerate(found_in):
        width = float(stretch.edges[row + 1] - stretch.edges[row])
        places = np.sort(rng.random(int(counts[row])))
        waited = sample_lengths(histogram, int(counts[row]), rng, longest=longest)
        ordered = _in_order(waited.astype(np.float64), trend[row], rng) * UNIT_SECONDS
        found.append(stretch.edges[row] + places * width - ordered)
    came = np.concatenate(found) if found else np.zeros(0)
    last = stretch.seconds - (means[counts > 0][-1] * UNIT_SECONDS if counts.any() else 0.0)
    waiting = last + rng.random(waiting_last) * (stretch.seconds - last)
    return np.sort(np.concatenate((came, waiting)))


def histograms(stretch: Clean) -> list[LengthHistogram] | None:
    """Times to first tokens of each row, in :data:`UNIT_SECONDS`; None where a row has none."""
    found = []
    rows = stretch.rows.select("ttft_seconds_buckets", "ttft_seconds_edges", "ttft_seconds_sum")
    for buckets, edges, total in rows.iter_rows():
        if buckets is None or edges is None or total is None or len(buckets) != len(edges):
            return None
        counts = np.maximum(np.rint(np.diff(np.array(buckets), prepend=0.0)), 0).astype(np.int64)
        finite = np.rint(np.array(edges[:-1]) / UNIT_SECONDS)
        found.append(LengthHistogram(finite, counts, float(total) / UNIT_SECONDS))
    return found


def _trend(means: Floats, counts: Integers) -> Floats:
    """By how much the mean wait changes over each row, in the units of ``means``."""
    known = np.flatnonzero(counts > 0)
    if len(known) < 2:
        return np.zeros(len(means))
    filled = np.interp(np.arange(len(means)), known, means[known])
    slope: Floats = np.gradient(filled)
    return slope


def _in_order(waited: Floats, change: float, rng: np.random.Generator) -> Floats:
    """Waits in the order of the first tokens: rising or falling through a row as the means do.

    Of a wait that changes by ``change`` over a row the spread is change / √12; as much of the
    spread as that is has an order, the rest has none.
    """
    spread = float(waited.std()) if len(waited) > 1 else 0.0
    weight = 0.0 if spread == 0.0 else float(np.clip(change / np.sqrt(12.0) / spread, -1.0, 1.0))
    places = np.linspace(-1.0, 1.0, len(waited)) * np.sqrt(3.0)
    mixed = weight * places + np.sqrt(1.0 - weight * weight) * rng.standard_normal(len(waited))
    found = np.empty_like(waited)
    found[np.argsort(mixed, kind="stable")] = np.sort(waited)
    return found
