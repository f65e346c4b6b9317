"""A server's requests, rebuilt from its minutes: simulated, they give the same counters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftwatch.arrays import Floats, Integers
from driftwatch.errors import NoVerdict
from driftwatch.recommend.server import Server
from driftwatch.recommend.window import Window, arrivals
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.workload.histograms import LengthHistogram, sample_lengths

_POOL = 4000  # lengths that draws choose from
_MOST_CENSORED = 4.0  # times the mean of those that finished
_BLOCK_MINUTES = 5  # of a bootstrap: bursts last for minutes
_NEXT_EDGE = 2.5  # times the last bucket edge: vLLM's 1-2-5 series ends below max_model_len
_NAMES = ("prompt_tokens", "generation_tokens")


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Requests as they come to one server: counted by the minute, or the log of them."""

    prompt_tokens: Integers  # of some thousand requests, pairwise
    generation_tokens: Integers
    arrived: Floats  # requests in each minute
    durations_seconds: Floats  # of the minutes
    hit_ratio: float  # prefix hits over queries; 0 where unknown
    block_tokens: int
    log: Requests | None = None  # on the clock of the window

    @property
    def requests_per_second(self) -> float:
        """Mean rate."""
        return float(self.arrived.sum() / self.durations_seconds.sum())

    @property
    def context_tokens(self) -> float:
        """Tokens that a decoding request reads, over time: (E[PG] + E[G²] / 2) / E[G]."""
        p, g = self.prompt_tokens.astype(float), self.generation_tokens.astype(float)
        return float(((p * g).mean() + (g * g).mean() / 2) / g.mean())

    @property
    def pairs_per_token(self) -> float:
        """Earlier tokens that a computed prompt token attends to: E[P²] / (2 E[P])."""
        p = self.prompt_tokens.astype(float)
        return float((p * p).mean() / (2 * p.mean()))

    def draw(self, rng: np.random.Generator, seconds: float, factor: float = 1.0) -> Requests:
        """Requests of so many seconds: minutes in another order, in blocks (Künsch, Annals of
        Statistics 17, 1989); ``factor``: on the rate.

        Of a log each request comes at its own second of the minute. Else times and lengths come by
        chance; half of the draws give each prompt its share of prefix hits, half give whole
        prompts, because no metric tells which of both it is.
        """
        minutes = resampled(len(self.arrived), int(np.ceil(seconds / 60.0)), rng)
        if self.log is not None:
            every = _of_log(self.log, minutes, factor, rng)
            return every.take(every.arrival_seconds < seconds)
        counts = factor * self.arrived[minutes] * (60.0 / self.durations_seconds[minutes])
        whole = np.floor(counts + rng.random(len(counts))).astype(np.int64)
        minute = np.repeat(np.arange(len(whole)), whole)
        at = np.sort((minute + rng.random(len(minute))) * 60.0)
        at = at[at < seconds]
        chosen = rng.integers(len(self.prompt_tokens), size=len(at))
        prompt = self.prompt_tokens[chosen]
        ratio: Floats | float = self.hit_ratio
        if ratio and rng.random() < 0.5:
            ratio = (rng.random(len(at)) < ratio).astype(np.float64)
        hits = cached(prompt, ratio, self.block_tokens, rng)
        return make_requests(at, prompt, self.generation_tokens[chosen], cached_tokens=hits)


def _of_log(log: Requests, minutes: Integers, factor: float, rng: np.random.Generator) -> Requests:
    """Minutes of a log one behind the other, each request so many times, by chance."""
    edges = np.searchsorted(log.arrival_seconds, 60.0 * np.arange(minutes.max() + 2))
    places, shifts = [], []
    for number, minute in enumerate(minutes):
        place = np.arange(edges[minute], edges[minute + 1])
        many = np.floor(factor + rng.random(len(place))).astype(np.int64)
        places.append(np.repeat(place, many))
        shifts.append(np.full(len(places[-1]), 60.0 * (number - int(minute))))
    chosen = log.take(np.concatenate(places))
    return chosen.at(chosen.arrival_seconds + np.concatenate(shifts))


def cached(
    prompt: Integers, ratio: Floats | float, block_tokens: int, rng: np.random.Generator
) -> Integers:
    """Cached tokens of each prompt in whole blocks, with this ratio on average.

    The last token is computed always (vLLM ``v1/core/kv_cache_manager.py``).
    """
    blocks = np.floor(prompt * ratio / block_tokens + rng.random(len(prompt))).astype(np.int64)
    return np.asarray(np.minimum(blocks, (prompt - 1) // block_tokens) * block_tokens)


def resampled(rows: int, count: int, rng: np.random.Generator) -> Integers:
    """So many rows, in blocks of neighbours that begin anywhere."""
    block = min(_BLOCK_MINUTES, rows)
    starts = rng.integers(rows - block + 1, size=-(-count // block))
    return np.asarray((starts[:, None] + np.arange(block)).ravel()[:count])


def rebuild_demand(window: Window, server: Server, seed: int) -> Demand:
    """Demand of a steady window.

    Prompts have the mean of those that got a first token. The mean generation is tokens generated
    over requests finished: a mean of the finished alone leaves out the long ones that still run. No
    request is longer than max_model_len and KV cache allow. Raises NoVerdict: naming what is
    missing.
    """
    rng = np.random.default_rng(seed)
    most = longest(server)
    booked = window.ratio("prompt_tokens_total", "ttft_seconds_count")
    generated = window.ratio("generation_tokens_total", "generation_tokens_count")
    prompt, generation = (
        _lengths(_histogram(window, name), mean, least, most, rng)
        for name, mean, least in zip(
            _NAMES, (booked, generated), (1 / _MOST_CENSORED, 1.0), strict=True
        )
    )
    if most is not None:
        prompt = np.minimum(prompt, most - 1)
        generation = np.minimum(generation, most - prompt)
    return Demand(
        prompt,
        generation,
        arrivals(window),
        window.durations_seconds,
        hit_ratio(window) or 0.0,
        server.block_tokens,
    )


def longest(server: Server) -> int | None:
    """Most tokens of a request, prompt and generation; None = unknown."""
    bounds = [server.longest]
    if server.num_gpu_blocks is not None:
        bounds.append((server.num_gpu_blocks - 1) * server.block_tokens)
    return min((one for one in bounds if one is not None), default=None)


def _lengths(
    histogram: LengthHistogram,
    mean: float | None,
    least: float,
    most: int | None,
    rng: np.random.Generator,
) -> Integers:
    """Some thousand lengths of its shape.

    ``mean``: what theirs shall be; None = the histogram's; ``least``: times that it may scale down.
    """
    top = most or int(_NEXT_EDGE * max(histogram.edges[-1:], default=1.0))
    drawn = sample_lengths(histogram, _POOL, rng, longest=max(top - 1, 1))
    if not mean:
        return drawn
    own = histogram.total_tokens / float(histogram.counts.sum())
    times = float(np.clip(mean / own, least, _MOST_CENSORED))
    return np.maximum(np.floor(drawn * times + rng.random(_POOL)).astype(np.int64), 1)


def hit_ratio(window: Window) -> float | None:
    """Prefix hits over queries; None = unknown."""
    known = window.ratio("prefix_cache_hits_total", "prefix_cache_queries_total")
    if known is None:
        computed = window.ratio("prompt_tokens_computed_total", "prompt_tokens_total")
        known = None if computed is None else 1.0 - computed
    return None if known is None else float(np.clip(known, 0.0, 1.0))


def _histogram(window: Window, name: str) -> LengthHistogram:
    """Growth over the window. Raises NoVerdict: it is not on the page, or nothing finished."""
    if (seen := window.histogram(name)) is None:
        raise NoVerdict(f"request_{name}: no histogram on the page")
    edges, cumulative, total = seen
    counts = np.maximum(np.rint(np.diff(cumulative, prepend=0.0)), 0).astype(np.int64)
    if not counts.sum():
        raise NoVerdict("no request finished in the window: their lengths are unknown")
    return LengthHistogram(np.array(edges[:-1], dtype=np.float64), counts, total)
