"""How many requests came, when, and how many were there at the edges of the rows.

A request is counted when it waits (a gauge), at its first token (TTFT's count) and when it finishes
(the lengths' count). A first token at T after a time τ is a request that came at T - τ; where these
times are unknown, arrivals are first tokens + Δwaiting. Finished + Δrunning + Δwaiting is the
check, short of the requests whose clients left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftwatch.arrays import Floats, Integers
from driftwatch.errors import NoVerdict
from driftwatch.recommend.traffic.observed import UNIT_SECONDS
from driftwatch.recommend.traffic.stretch import Clean
from driftwatch.simulate.workload.histograms import LengthHistogram, sample_lengths

# Longest wait that is drawn beside the last bucket edge, in windows.
LONGEST_WINDOWS = 2.0


def came_at(stretch: Clean, waiting_last: int, rng: np.random.Generator) -> Floats | None:
    """Arrival of every request that got a first token in the stretch, or waited when it ended.

    ``waiting_last``: how many waited when it ended: they came after the last that was served.
    Returns seconds on the stretch's clock, sorted; below 0 for those that waited when it began.
    None where the times to first tokens are not on every page.
    """
    found_in = histograms(stretch)
    if found_in is None:
        return None
    means = np.array([h.total_tokens / max(h.counts.sum(), 1) for h in found_in], float)
    counts = np.array([int(h.counts.sum()) for h in found_in])
    trend = _trend(means, counts)
    longest = round(LONGEST_WINDOWS * max(stretch.seconds, 1.0) / UNIT_SECONDS)
    by_row = []
    for row, histogram in enumerate(found_in):
        width = float(stretch.edges[row + 1] - stretch.edges[row])
        places = np.sort(rng.random(int(counts[row])))
        waited = sample_lengths(histogram, int(counts[row]), rng, longest=longest)
        ordered = _in_order(waited.astype(np.float64), trend[row], rng) * UNIT_SECONDS
        by_row.append(stretch.edges[row] + places * width - ordered)
    arrivals = np.concatenate(by_row) if by_row else np.zeros(0)
    last = stretch.seconds - (means[counts > 0][-1] * UNIT_SECONDS if counts.any() else 0.0)
    waiting = last + rng.random(waiting_last) * (stretch.seconds - last)
    return np.sort(np.concatenate((arrivals, waiting)))


def histograms(stretch: Clean) -> list[LengthHistogram] | None:
    """Times to first tokens of each row, in :data:`UNIT_SECONDS`; None where a row has none."""
    by_row = []
    rows = stretch.rows.select("ttft_seconds_buckets", "ttft_seconds_edges", "ttft_seconds_sum")
    for buckets, edges, total in rows.iter_rows():
        if buckets is None or edges is None or total is None or len(buckets) != len(edges):
            return None
        counts = np.maximum(np.rint(np.diff(np.array(buckets), prepend=0.0)), 0).astype(np.int64)
        finite = np.rint(np.array(edges[:-1]) / UNIT_SECONDS)
        by_row.append(LengthHistogram(finite, counts, float(total) / UNIT_SECONDS))
    return by_row


def _trend(means: Floats, counts: Integers) -> Floats:
    """By how much the mean wait changes over each row, in the units of ``means``."""
    finite = np.flatnonzero(counts > 0)
    if len(finite) < 2:
        return np.zeros(len(means))
    filled = np.interp(np.arange(len(means)), finite, means[finite])
    slope: Floats = np.gradient(filled)
    return slope


def _in_order(waited: Floats, change: float, rng: np.random.Generator) -> Floats:
    """Waits in the order of the first tokens: rising or falling through a row as the means do."""
    spread = float(waited.std()) if len(waited) > 1 else 0.0
    weight = 0.0 if spread == 0.0 else float(np.clip(change / np.sqrt(12.0) / spread, -1.0, 1.0))
    places = np.linspace(-1.0, 1.0, len(waited)) * np.sqrt(3.0)
    mixed = weight * places + np.sqrt(1.0 - weight * weight) * rng.standard_normal(len(waited))
    ordered = np.empty_like(waited)
    ordered[np.argsort(mixed, kind="stable")] = np.sort(waited)
    return ordered


# The two counts may differ by so much before it is said: 3 standard deviations of a Poisson count
# and a share for what gauges cannot tell inside a minute.
_SAID_FROM_SHARE = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Flows:
    """Counts of requests; edges are one more than rows."""

    arrived: Integers
    finished: Integers
    running_first: int
    waiting_first: int
    running_last: int
    waiting_last: int
    came_at: Floats  # when each of the arrived came, in seconds since the start; sorted
    notes: tuple[str, ...]

    @property
    def unfinished(self) -> int:
        """Requests that had arrived and not finished when the stretch ended."""
        offered = self.running_first + self.waiting_first + int(self.arrived.sum())
        return offered - int(self.finished.sum())


def flows(stretch: Clean, rng: np.random.Generator | None = None) -> Flows:
    """Counts of one stretch.

    ``rng``: the randomness of where in a row a request came; None = that of seed 0. Raises
    NoVerdict: neither first tokens nor finished requests are counted.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    first = stretch.column("ttft_seconds_count")
    finished = stretch.column("generation_tokens_count")
    running, waiting = stretch.column("running_requests"), stretch.column("waiting_requests")
    notes = []
    if np.isnan(finished).any():
        raise NoVerdict("request_generation_tokens not on the page: how many finished is unknown")
    if np.isnan(waiting).all():
        notes.append("num_requests_waiting not on the page: taken as none")
    if np.isnan(running).all():
        notes.append("num_requests_running not on the page: the simulation starts empty")
    at_waiting = _at_edges(_filled(waiting), np.zeros_like(waiting))
    if np.isnan(first).any():
        at_running = _at_edges(_filled(running), np.zeros_like(running))
        arrived = finished + np.diff(at_running) + np.diff(at_waiting)
        notes.append(
            "time_to_first_token not on the page: arrivals are finished + Δrunning + Δwaiting"
        )
        arrivals = None
    else:
        at_running = _at_edges(_filled(running), first - finished)
        arrived = first + np.diff(at_waiting)
        notes += _checked(arrived, finished, at_running, at_waiting)
        arrivals = came_at(stretch, round(at_waiting[-1]), rng)
    if arrivals is None:
        whole_waiting, counts = round(at_waiting[0]), _whole(arrived)
        inside = _spread_evenly(stretch, counts, rng)
    else:
        whole_waiting, inside = int((arrivals <= 0).sum()), arrivals[arrivals > 0]
        counts = np.histogram(inside, stretch.edges)[0].astype(np.int64)
    whole_running = round(at_running[0])
    done = np.rint(finished).astype(np.int64)
    # who finished was there: gauges are means and can tell too few
    short = int(done.sum()) - (whole_waiting + whole_running + int(counts.sum()))
    return Flows(
        arrived=counts,
        finished=done,
        running_first=whole_running + max(short, 0),
        waiting_first=whole_waiting,
        running_last=round(at_running[-1]),
        waiting_last=round(at_waiting[-1]),
        came_at=inside,
        notes=tuple(notes),
    )


def _spread_evenly(stretch: Clean, counts: Integers, rng: np.random.Generator) -> Floats:
    """Arrivals inside the rows that count them, evenly."""
    row = np.repeat(np.arange(len(counts)), counts)
    widths = np.diff(stretch.edges)
    return np.sort(stretch.edges[:-1][row] + rng.random(len(row)) * widths[row])


def _checked(
    arrived: Floats, finished: Floats, at_running: Floats, at_waiting: Floats
) -> list[str]:
    """What the other count says, where it says something else."""
    other = finished.sum() + at_running[-1] - at_running[0] + at_waiting[-1] - at_waiting[0]
    total = float(arrived.sum())
    off = total - float(other)
    if abs(off) <= _SAID_FROM_SHARE * total + 3 * np.sqrt(max(total, 1.0)):
        return []
    if off > 0:
        return [
            f"{off:,.0f} of {total:,.0f} requests got a first token and were never seen to finish: "
            "their clients left; lengths are those of the others"
        ]
    return [f"{-off:,.0f} more requests finished than got a first token: counters disagree"]


def _filled(gauge: Floats) -> Floats:
    """Unknown rows take the nearest known one's value; all unknown is none."""
    finite = np.flatnonzero(~np.isnan(gauge))
    if not len(finite):
        return np.zeros_like(gauge)
    return np.interp(np.arange(len(gauge)), finite, gauge[finite])


def _at_edges(mean: Floats, change: Floats) -> Floats:
    """A gauge at the edges of rows, from its mean in each row and its known change over each."""
    end = mean - change / 2
    begin = mean + change / 2
    inner = (begin[:-1] + end[1:]) / 2
    first, last = float(end[0]), float(begin[-1])
    if len(mean) > 2 and not change.any():
        if _goes_on(mean[:3]):
            first = 2 * mean[0] - inner[0]
        if _goes_on(mean[-3:]):
            last = 2 * mean[-1] - inner[-1]
    edges: Floats = np.maximum(np.concatenate(([first], inner, [last])), 0.0)
    return edges


def _goes_on(rows: Floats) -> bool:
    steps = np.diff(rows)
    return bool((steps > 0).all() or (steps < 0).all())


def _whole(counts: Floats) -> Integers:
    """Whole counts whose running total stays next to the given one's and never falls."""
    total = np.maximum.accumulate(np.concatenate(([0.0], np.cumsum(counts))))
    whole: Integers = np.diff(np.rint(total)).astype(np.int64)
    return whole
