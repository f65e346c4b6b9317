"""A workload rebuilt from what a server's /metrics said, window by window.

Arrivals of a window are finished + Δwaiting + Δrunning; where in the window they fell is drawn
(uniformly: a Poisson process given its count). Lengths are drawn inside the cells of the scraped
histograms, as often in each cell as it was observed, and so that their total is the scraped
``_sum`` to the token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import Floats, Integers, Requests, make_requests

CANNOT_KNOW = (
    "which prompt length came with which generation length: paired at random",
    "when in its window a request arrived: drawn uniformly, bursts inside a window are lost",
    "lengths inside a bucket: drawn so that the window's mean is exact",
    "lengths of requests that were cancelled or are still running: as of those that finished",
)


@dataclass(frozen=True, slots=True, eq=False)
class LengthHistogram:
    """Growth of one histogram of tokens over a window."""

    edges: Floats  # its finite ``le`` edges, rising
    # observations in each cell, (edge before, edge]; one more than edges: +Inf last
    counts: Integers
    total_tokens: float  # growth of its ``_sum``


@dataclass(frozen=True, slots=True, eq=False)
class ScrapedWindow:
    """What /metrics said of one window of one server."""

    start_seconds: float  # its beginning, on the clock that the arrivals shall have
    end_seconds: float  # its end
    running_before: int  # num_requests_running at its beginning
    running_after: int  # at its end
    waiting_before: int  # num_requests_waiting at its beginning
    waiting_after: int  # at its end
    prompt: LengthHistogram  # request_prompt_tokens
    generation: LengthHistogram  # request_generation_tokens
    # prefix_cache_hits over prefix_cache_queries; None = unknown
    prefix_hit_ratio: float | None = None

    @property
    def finished(self) -> int:
        """Requests that finished in it."""
        return int(self.generation.counts.sum())

    @property
    def arrived(self) -> int:
        """Requests that arrived in it; below 0 where clients left or a counter was reset."""
        return (
            self.finished
            + (self.running_after - self.running_before)
            + (self.waiting_after - self.waiting_before)
        )


def rebuild(
    windows: Sequence[ScrapedWindow],
    rng: np.random.Generator,
    *,
    max_model_len: int | None = None,
    block_size: int = 16,
) -> tuple[Requests, tuple[str, ...]]:
    """Requests that would have left these histograms, and what was taken for what they do not hold.

    ``windows``: one after the other, no overlap; in one of them a request finished;
    ``max_model_len``: bounds the cell above the last edge; ``block_size``: prefix hits come in
    whole blocks of so many tokens. Raises WorkloadError: a sum contradicts its buckets, or the last
    cell is in use and its bound unknown.
    """
    if problems := _problems(windows, max_model_len):
        raise WorkloadError(tuple(problems))
    unknown = list(CANNOT_KNOW)
    arrivals, prompts, generations, cached = [], [], [], []
    owed = 0
    source = next(window for window in windows if window.finished)
    for window in windows:
        count = window.arrived
        if count < 0:
            owed, count = owed - count, 0
        # a window in which requests arrive but none ends has no lengths of its own
        source = window if window.finished else source
        span = window.end_seconds - window.start_seconds
        arrivals.append(window.start_seconds + np.sort(rng.random(count)) * span)
        prompts.append(sample_lengths(source.prompt, count, rng, longest=max_model_len))
        generations.append(sample_lengths(source.generation, count, rng, longest=max_model_len))
        cached.append(_cached(prompts[-1], window.prefix_hit_ratio, block_size, rng))
    if owed:
        unknown.append(
            f"{owed:,} requests left without finishing (cancelled, or a restart): not rebuilt"
        )
    if any(window.prefix_hit_ratio is None for window in windows):
        unknown.append("prefix hits: not scraped in every window, taken as none there")
    else:
        unknown.append("which request hit the prefix cache: each hits the window's ratio")
    requests = make_requests(
        np.concatenate(arrivals),
        np.concatenate(prompts),
        np.concatenate(generations),
        cached_tokens=np.concatenate(cached),
    )
    return requests, tuple(unknown)


def _problems(windows: Sequence[ScrapedWindow], max_model_len: int | None) -> list[str]:
    problems = []
    for number, window in enumerate(windows):
        for name, histogram in (("prompt", window.prompt), ("generation", window.generation)):
            if histogram.counts[-1] and max_model_len is None:
                problems.append(
                    f"window {number}: {histogram.counts[-1]:,} {name} lengths above "
                    f"{histogram.edges[-1]:g} and max_model_len unknown"
                )
                continue
            low, high = _cells(histogram, max_model_len)
            least, most = histogram.counts @ low, histogram.counts @ high
            if not least <= histogram.total_tokens <= most:
                problems.append(
                    f"window {number}: {name} _sum {histogram.total_tokens:,.0f} is outside what "
                    f"its buckets allow, {least:,}…{most:,}"
                )
    return problems


def _cells(histogram: LengthHistogram, longest: int | None) -> tuple[Integers, Integers]:
    """Smallest and largest whole length of each cell; of one without any, both are its bound."""
    edges = np.floor(histogram.edges).astype(np.int64)
    low = np.concatenate(([1], edges + 1))
    high = np.append(edges, low[-1] if longest is None else max(longest, low[-1]))
    if longest is not None:
        high = np.minimum(high, np.maximum(longest, low))
    return np.minimum(low, np.maximum(high, 1)), np.maximum(high, 1)


def sample_lengths(
    histogram: LengthHistogram,
    count: int,
    rng: np.random.Generator,
    *,
    longest: int | None = None,
) -> Integers:
    """``count`` lengths with the histogram's shape and, to the nearest token, its mean.

    Cells get their share of ``count`` (exactly their counts where as many finished; the rest by
    chance). Inside a cell lengths are drawn uniformly, then all are bent together towards the
    cells' low or high ends until the mean is right, and the last tokens are spread one by one.

    Raises ValueError: the histogram is empty and ``count`` is not 0.
    """
    if not count:
        return np.zeros(0, dtype=np.int64)
    observed = int(histogram.counts.sum())
    if not observed:
        raise ValueError("an empty histogram holds no lengths")
    low, high = _cells(histogram, longest)
    exact = histogram.counts * (count / observed)
    per_cell = np.floor(exact + 1e-9).astype(np.int64)
    rest = count - int(per_cell.sum())
    if rest > 0:
        remainder = np.maximum(exact - per_cell, 0.0)
        # systematic sampling: each cell's expectation is its share, whatever the remainders
        picks = (rng.random() + np.arange(rest)) / rest * remainder.sum()
        cells = np.searchsorted(np.cumsum(remainder), picks, side="right")
        np.add.at(per_cell, np.minimum(cells, len(per_cell) - 1), 1)
    cell = np.repeat(np.arange(len(per_cell)), per_cell)
    floor, room = low[cell], high[cell] - low[cell]
    target = round(histogram.total_tokens * count / observed)
    target = int(np.clip(target, floor.sum(), (floor + room).sum()))
    lengths: Integers = floor + _bent(rng.random(count), room, target - int(floor.sum()))
    rng.shuffle(lengths)
    return lengths


def _bent(share: Floats, room: Integers, target: int) -> Integers:
    """Whole parts of ``room`` that add up to ``target``: round(room · share^power), power > 0."""
    low, high = -60.0, 60.0
    for _ in range(80):  # the total falls as the power rises
        middle = (low + high) / 2
        total = float((room * share ** np.exp(middle)).sum())
        low, high = (middle, high) if total > target else (low, middle)
    parts: Integers = np.minimum(np.rint(room * share ** np.exp(high)).astype(np.int64), room)
    while (short := target - int(parts.sum())) != 0:
        open_ones = np.flatnonzero(parts < room) if short > 0 else np.flatnonzero(parts > 0)
        some = open_ones[: abs(short)]
        parts[some] += 1 if short > 0 else -1
    return parts


def _cached(
    prompt: Integers, ratio: float | None, block_size: int, rng: np.random.Generator
) -> Integers:
    """Cached tokens of each prompt, in whole blocks, so that hits over queries is the ratio."""
    if ratio is None or not len(prompt):
        return np.zeros(len(prompt), dtype=np.int64)
    blocks = prompt * ratio / block_size
    whole = np.floor(blocks + rng.random(len(prompt))).astype(np.int64)
    tokens: Integers = np.minimum(whole, (prompt - 1) // block_size) * block_size
    return tokens
