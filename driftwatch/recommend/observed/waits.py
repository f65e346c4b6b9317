"""How long the requests of each minute waited for their first token, as its buckets tell it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from driftwatch.recommend.observed.clean import Clean
from driftwatch.recommend.observed.first_tokens import LONGEST_WINDOWS, UNIT_SECONDS, histograms
from driftwatch.simulate.workload.histograms import sample_lengths

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class RowWaits:
    """The times to first token of one row, from the shortest to the longest.

    Attributes:
        above_seconds: lower edge of the bucket of each.
        below_seconds: its upper edge; inf in the last bucket.
        drawn_seconds: a time inside each bucket, so that their sum is the histogram's.
    """

    above_seconds: Floats
    below_seconds: Floats
    drawn_seconds: Floats

    def of(self, many: int) -> RowWaits:
        """So many of them, evenly chosen: the others belong to requests that are not replayed."""
        have = len(self.drawn_seconds)
        if many == have or not have:
            return self
        at = np.minimum(((np.arange(many) + 0.5) * have / many).astype(np.int64), have - 1)
        return RowWaits(self.above_seconds[at], self.below_seconds[at], self.drawn_seconds[at])

    def moved(self, replayed: Floats) -> Floats:
        """The least that replayed waits must be moved so that the row's buckets hold them.

        All are shifted by what their mean is off; those that the shift leaves in the wrong bucket
        are spread over it.

        Args:
            replayed: as many as the row has, sorted.
        """
        shifted = replayed + (self.drawn_seconds.mean() - replayed.mean())
        found = self.drawn_seconds.copy()
        for low in np.unique(self.above_seconds):
            inside = self.above_seconds == low
            high = float(self.below_seconds[inside][0])
            first, last = float(shifted[inside].min()), float(shifted[inside].max())
            if last <= low or first >= high:
                continue
            begin, end = max(low, first), min(high, last)
            scale = (end - begin) / (last - first) if last > first else 0.0
            found[inside] = begin + (shifted[inside] - first) * scale
        return np.sort(found)

    def off(self, replayed: Floats) -> Floats:
        """By how much each replayed wait misses its bucket, as the size of its logarithm."""
        least = UNIT_SECONDS / 10.0
        wait = np.maximum(replayed, least)
        nearest = np.clip(wait, np.maximum(self.above_seconds, least), self.below_seconds)
        return np.asarray(np.abs(np.log(wait / nearest)))


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """Times to first token of a stretch.

    Attributes:
        edges: seconds at each edge of the rows.
        rows: one less than edges.
        waiting_first: how many of the first row's first tokens belong to requests that waited when
            the stretch began.
        bucket_edges: seconds, from 0 to inf.
    """

    edges: Floats
    rows: tuple[RowWaits, ...]
    waiting_first: int
    bucket_edges: Floats

    def as_if(self, arrival: Floats, token: Floats) -> Waits:
        """What the same pages would have told of other requests.

        Args:
            arrival: of each request; those at 0 were there before and are not counted.
            token: when each got its first token; inf = not in the window.
        """
        waited, rows = token - arrival, []
        for low, high in itertools.pairwise(self.edges):
            inside = (arrival > 0) & (token > low) & (token <= high)
            own = np.sort(waited[inside])
            cell = np.searchsorted(self.bucket_edges, own, side="left") - 1
            cell = np.clip(cell, 0, len(self.bucket_edges) - 2)
            rows.append(RowWaits(self.bucket_edges[cell], self.bucket_edges[cell + 1], own))
        return replace(self, rows=tuple(rows), waiting_first=0)


def waits_of(stretch: Clean, waiting_first: int, seed: int) -> Waits | None:
    """The waits of a stretch; None where their buckets are not on every page.

    Args:
        stretch: its rows.
        waiting_first: requests that waited when it began.
        seed: of where inside its bucket a wait lies.
    """
    found = histograms(stretch)
    if found is None:
        return None
    rng = np.random.default_rng([seed, len(found)])
    longest = round(LONGEST_WINDOWS * max(stretch.seconds, 1.0) / UNIT_SECONDS)
    rows, edges = [], np.array([0.0, np.inf])
    for one in found:
        edges = np.concatenate(([0.0], one.edges, [np.inf])) * UNIT_SECONDS
        cell = np.repeat(np.arange(len(one.counts)), one.counts)
        drawn = sample_lengths(one, len(cell), rng, longest=longest)
        rows.append(
            RowWaits(edges[cell], edges[cell + 1], np.sort(drawn.astype(np.float64)) * UNIT_SECONDS)
        )
    return Waits(stretch.edges, tuple(rows), waiting_first, edges)
