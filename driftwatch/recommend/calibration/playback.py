"""Observed traffic under a step-time model, read as the metrics were read, and the noise of what is
compared.

A forward pass counts when it brings a token, gauges are those after the last step, a request's time
to first token is booked when that token comes. The noise of a residual: what other draws of the
same counts differ by, what no model of this form can say (``FLOORS``), and a gauge's few samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.recommend.calibration.fits import RESIDUALS
from driftwatch.recommend.traffic.observed import Observed
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Observe
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Run, Trial

_SCRAPES = 1200  # of one simulation, at most: gauges are means over them
_SHORTEST_SECONDS = 0.25  # between two of them
_FEWEST_TOKENS = 200.0  # that a chunk must hold to be compared
_FEWEST_FIRST = 5  # first tokens, for their mean
# Of one simulation; of a longer window its end is taken. A simulation of so much takes 7 ms.
_MOST_REQUESTS = 15_000
_MOST_STEPS = 150_000
_FEWEST_CHUNKS = 6
_LEAST_LOAD = 0.5  # running requests: less of them is no other batch
_AS_WIDE = float(np.log(1.25))  # a stretch may vary by so much less where it is a later one
_BACKLOG_REQUESTS = 1.0  # mean of num_requests_waiting


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """One simulation, chunk by chunk."""

    values: Floats  # a row a chunk, a column a name of ``RESIDUALS``; NaN = nothing to say
    # prefill tokens above 0, decoding requests and KV tokens read a step
    mean_composition: tuple[float, float, float]
    steps: int
    waiting: Floats


class Playback:
    """The same traffic under any step-time model; counts the simulations.

    A row a chunk: ``measured``: what was observed, as ``Played.values``; ``waiting``: mean of
    num_requests_waiting, NaN = unknown; ``counts``: requests that it is about, those that arrived
    or were served on. ``requests``: those that are simulated, a part where there are too many.
    """

    def __init__(self, observed: Observed, configuration: SchedulerConfiguration) -> None:
        self.observed, self.configuration, self.simulations = observed, configuration, 0
        chunks = observed.chunks
        self.starts: Floats = chunks["start_seconds"].to_numpy()
        self.ends: Floats = chunks["end_seconds"].to_numpy()
        columns = [chunks[name].cast(float).fill_null(np.nan).to_numpy() for name in RESIDUALS]
        shape = len(chunks), len(RESIDUALS)
        self.measured: Floats = np.array(columns, dtype=float).T.reshape(shape).copy()
        self.waiting: Floats = chunks["waiting_requests"].fill_null(np.nan).to_numpy()
        self.requests = observed.requests
        # when they came; NaN where that is unknown, or they were admitted before
        self._arrivals = _later(self.requests)
        if observed.came_seconds is not None:
            self._arrivals[: len(observed.came_seconds)] = observed.came_seconds
        begin_chunk, after = self._usable()
        if begin_chunk > 0:
            self._from(begin_chunk)
            # the engine starts empty there: what it makes of the first chunk is not compared
            self.measured[: begin_chunk + 1] = np.nan
        if after < len(self.starts):
            self.measured[after:] = np.nan
            until = int(np.searchsorted(self.requests.arrival_seconds, self.ends[after - 1]))
            self.requests, self._arrivals = self.requests.take(slice(until)), self._arrivals[:until]
        self._whole = np.logical_or.reduce(np.isfinite(self.measured), axis=1)
        if self.observed.source == "metrics":
            self.measured[self._queued(), RESIDUALS.index("ttft_seconds")] = np.nan
        self.measured[self.measured <= 0] = np.nan
        arrival = self.requests.arrival_seconds
        self._until = float(self.ends[after - 1]) if after else 0.0
        self.seconds = self._until - float(self.starts[begin_chunk]) if after else 0.0
        arrived = np.searchsorted(arrival, self.ends) - np.searchsorted(arrival, self.starts)
        spans = self.ends - self.starts
        rates = chunks["generation_tokens_per_second"].fill_null(np.nan).to_numpy()
        mean = float(self.requests.generation_tokens.mean()) if len(arrival) else 1.0
        self.tokens = np.where(np.isnan(rates), arrived * mean, rates * spans)
        self.counts = np.maximum(arrived, self.tokens / mean)
        self.measured[arrived < _FEWEST_FIRST, RESIDUALS.index("ttft_seconds")] = np.nan
        begin = float(self.starts[0]) if len(self.starts) else 0.0
        apart = max(_SHORTEST_SECONDS, (self._until - begin) / _SCRAPES)
        grid = np.arange(begin, self._until, apart)
        self._times = np.unique(np.concatenate([grid, self.starts, self.ends]))
        self._low = np.searchsorted(self._times, self.starts)
        self._high = np.searchsorted(self._times, self.ends)
        self._trial = self._ready(self.requests)

    def _from(self, chunk: int) -> None:
        """Leave out what came before a chunk; of a request log those that wait then are kept."""
        arrival, since = self.requests.arrival_seconds, float(self.starts[chunk])
        first = int(np.searchsorted(arrival, since))
        if self.observed.source == "request log":
            around = self.waiting[max(chunk - 1, 0) : chunk + 1]
            waiting = around[np.isfinite(around)]
            first -= min(first, round(float(waiting.mean())) if len(waiting) else 0)
        requests = self.requests.take(slice(first, None))
        late = np.maximum(requests.arrival_seconds, since)
        self.requests, self._arrivals = (
            replace(requests, arrival_seconds=late),
            self._arrivals[first:],
        )

    def _usable(self) -> tuple[int, int]:
        """First chunk, and the one after the last, of what can be simulated often enough."""
        chunks = self.observed.chunks
        steps = (
            chunks["steps_per_generation_token"].fill_null(1.0)
            * chunks["generation_tokens_per_second"].fill_null(0.0)
            * (chunks["end_seconds"] - chunks["start_seconds"])
        ).to_numpy()
        arrival, count = self.observed.requests.arrival_seconds, len(self.starts)
        passed = np.concatenate([[0.0], np.cumsum(steps)])
        since, until = (np.searchsorted(arrival, at) for at in (self.starts, self.ends))
        running = chunks["running_requests"].fill_null(0.0).to_numpy()
        load = np.log(np.maximum(running, _LEAST_LOAD))
        candidates: list[tuple[float, int, int]] = []
        for after in range(count, min(_FEWEST_CHUNKS, count) - 1, -1):
            fits = (passed[after] - passed[:after] <= _MOST_STEPS) & (
                until[after - 1] - since[:after] <= _MOST_REQUESTS
            )
            last = max(after - _FEWEST_CHUNKS, 0)  # whatever it costs
            first = min(int(np.argmax(fits)) if fits.any() else last, last)
            compared = load[first + (first > 0) : after]  # the first of a part is not compared
            candidates.append((float(np.ptp(compared)) if len(compared) else 0.0, first, after))
            if first == 0:
                break
        if not candidates:
            return 0, count
        widest = max(spread for spread, _, _ in candidates)
        return next(
            (first, after) for spread, first, after in candidates if spread >= widest - _AS_WIDE
        )

    def _queued(self) -> Flags:
        """Chunks whose first tokens a backlog delays: it adds up every error of the counts."""
        if self.observed.saturated:
            return np.ones(len(self.starts), dtype=np.bool_)
        waits = np.nan_to_num(self.waiting) >= _BACKLOG_REQUESTS
        return np.asarray(waits | np.concatenate([[False], waits[:-1]]))

    def play(self, step_time: StepTime, wander: Floats) -> Played:
        """One simulation of the observed requests.

        ``wander``: log of a factor on the step times of each chunk. Raises NoVerdict: the engine
        makes no progress.
        """
        return self._figures_of(self._run(self._trial, step_time, wander), self._arrivals)

    def replace_requests(self, requests: Requests) -> None:
        """Simulate these from now on: as many in each chunk, at other times in their minutes."""
        self.requests, self._arrivals = requests, _later(requests)
        self._trial = self._ready(requests)

    def play_others(self, step_time: StepTime, wander: Floats, requests: Requests) -> Played:
        """One simulation of other requests.

        Raises ImpossibleConfiguration: one of them never fits; NoVerdict: the engine makes no
        progress.
        """
        return self._figures_of(
            self._run(self._ready(requests), step_time, wander), _later(requests)
        )

    def _ready(self, requests: Requests) -> Trial:
        return Trial(
            requests,
            self.configuration,
            observe=Observe(self._times),
            factor_seconds=self.starts,
        )

    def _run(self, trial: Trial, step_time: StepTime, wander: Floats) -> Run:
        return trial.run(step_time, factors=np.exp(wander), until_seconds=self._until)

    def _figures_of(self, run: Run, arrivals: Floats) -> Played:
        self.simulations += 1
        low, high = self._low, self._high

        def grown(values: Floats) -> Floats:
            return np.asarray(values[high] - values[low])

        tokens = grown(run.scraped("generation_tokens"))
        token = run.first_token_seconds
        usage = run.kv_cache_usage_ratio
        usage = np.full(len(self._times), np.nan) if usage is None else usage
        begun = np.where(np.isfinite(arrivals), run.first_scheduled_seconds, np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):  # inf - inf: never came
            columns = {
                "generation_tokens_per_second": tokens / (self.ends - self.starts),
                "itl_seconds": grown(run.scraped("itl_seconds_sum"))
                / grown(run.scraped("itl_seconds_count")),
                "ttft_seconds": self._mean_by(token, token - arrivals),
                "prefill_seconds": self._mean_by(run.end_seconds, token - begun),
                "steps_per_generation_token": grown(run.scraped("steps_observed")) / tokens,
                "running_requests": _means(run.scraped("running").astype(float), low, high),
                "kv_cache_usage_ratio": _means(usage, low, high),
            }
        steps = max(int(run.scraped("steps_all")[-1]), 1)
        prefill, decode, kv_tokens = (
            float(run.scraped(name)[-1]) / steps
            for name in ("prefill_tokens_total", "decode_seqs_total", "kv_tokens_read_total")
        )
        values = np.array([columns[name] for name in RESIDUALS], dtype=float).T
        waiting = _means(run.waiting.astype(float), low, high)
        return Played(values, (prefill, decode, kv_tokens), steps, waiting)

    def _mean_by(self, at: Floats, spans: Floats) -> Floats:
        """Mean of requests' spans by the chunk in which they are booked; NaN where none is."""
        finite = np.isfinite(at) & np.isfinite(spans)
        at, spans = at[finite], spans[finite]
        order = np.argsort(at, kind="stable")
        total = np.concatenate([[0.0], np.cumsum(spans[order])])
        low = np.searchsorted(at[order], self.starts)
        high = np.searchsorted(at[order], self.ends)
        return np.asarray((total[high] - total[low]) / (high - low))

    @property
    def compared(self) -> Flags:
        """Which of ``measured`` a simulation is held against."""
        return np.asarray(np.isfinite(self.measured) & self.comparable[:, None])

    @property
    def comparable(self) -> Flags:
        """Chunks that are simulated whole and in which enough was served for a mean."""
        return np.asarray(self._whole & (self.tokens >= _FEWEST_TOKENS))


def _later(requests: Requests) -> Floats:
    """When requests came; NaN for those that were inside at second 0."""
    arrival = requests.arrival_seconds
    return np.where(arrival > 0, arrival, np.nan)


def _means(values: Floats, low: Integers, high: Integers) -> Floats:
    """Means of the scrapes after ``low`` up to ``high``."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray((total[high + 1] - total[low + 1]) / (high - low))


# Stated: step jitter, stalls, the few scrapes of a gauge, work outside the engine.
FLOORS = {
    "generation_tokens_per_second": 0.02,
    "itl_seconds": 0.015,
    "ttft_seconds": 0.06,
    "steps_per_generation_token": 0.02,
    "running_requests": 0.05,
    "kv_cache_usage_ratio": 0.05,
    "prefill_seconds": 0.05,
}
_SCRAPE_SECONDS = 15.0


def first_noise(playback: Playback) -> Floats:
    """Before anything was simulated: the floors and the counting noise of a chunk's requests."""
    counted = 1.0 / np.maximum(playback.counts, 1.0)[:, None]
    return np.asarray(np.sqrt(_stated(playback) + counted))


def noise_of(playback: Playback, played: Sequence[Floats]) -> Floats:
    """Sd of the log residuals, a row a chunk.

    ``played``: values of simulations of requests drawn anew; empty where nothing had to be drawn.
    """
    stated = _stated(playback)
    if not played:
        return np.asarray(np.sqrt(stated))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.array(played))
    logs[~np.isfinite(logs)] = np.nan
    counts = np.maximum(playback.counts, 1.0)
    by_draws = np.zeros_like(logs[0])
    for column in range(logs.shape[2]):
        spread = np.var(logs[:, :, column], axis=0, ddof=1) * counts
        finite = spread[np.isfinite(spread)]
        if len(finite):  # pooled: three draws say little of one chunk
            by_draws[:, column] = finite.mean() / counts
    return np.asarray(np.sqrt(stated + 2.0 * by_draws))


def _stated(playback: Playback) -> Floats:
    """Variance of each residual that is not measured: floors, and the sampling of the gauges."""
    variance = np.array([FLOORS[name] ** 2 for name in RESIDUALS])
    variances = np.repeat(variance[None, :], len(playback.starts), axis=0)
    running = playback.measured[:, RESIDUALS.index("running_requests")]
    scrapes = np.maximum((playback.ends - playback.starts) / _SCRAPE_SECONDS, 1.0)
    sampled = 1.0 / (np.where(running > 0, running, 1.0) * scrapes)
    for name in ("running_requests", "kv_cache_usage_ratio"):
        variances[:, RESIDUALS.index(name)] += sampled
    return variances
