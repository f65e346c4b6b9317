"""Observed traffic played through the scheduler under a law, read as the metrics were read.

vLLM's own bookkeeping is the simulator's (``Outcome.scrapes``): a forward pass counts when it
brings a token, gauges are those after the last step, a request's time to first token is booked when
that token comes. So a replay is scraped at the edges of the chunks and on a grid between them, and
never looked at from inside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.recommend.calibration.fitted import RESIDUALS
from driftwatch.recommend.observed.traffic import Observed
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

Floats = npt.NDArray[np.float64]

_SCRAPES = 1200  # of one replay, at most: gauges are means over them
_SHORTEST_SECONDS = 0.25  # between two of them
_FEWEST_REQUESTS = 20  # that a chunk must hold to be compared
MOST_REQUESTS = 25_000  # of one replay; of a longer window its end


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """One replay, chunk by chunk.

    Attributes:
        values: a row a chunk, a column a name of ``RESIDUALS``; NaN = nothing to say.
        mean_composition: prefill tokens above 0, decoding requests and KV tokens read a step.
        steps: forward passes.
    """

    values: Floats
    mean_composition: tuple[float, float, float]
    steps: int


@dataclass(slots=True, eq=False)
class Playback:
    """The same traffic under any law; counts the replays.

    Args:
        observed: the traffic.
        configuration: today's settings.
    """

    observed: Observed
    configuration: SchedulerConfiguration
    replays: int = 0
    requests: Requests = field(init=False)
    starts: Floats = field(init=False)
    ends: Floats = field(init=False)
    seen: Floats = field(init=False)
    counts: Floats = field(init=False)
    _times: Floats = field(init=False)
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        chunks = self.observed.chunks
        self.starts = chunks["start_seconds"].to_numpy()
        self.ends = chunks["end_seconds"].to_numpy()
        seen = [chunks[name].cast(float).fill_null(np.nan).to_numpy() for name in RESIDUALS]
        self.seen = np.array(seen, dtype=float).T.reshape(len(chunks), len(RESIDUALS)).copy()
        arrival = self.observed.requests.arrival_seconds
        self.requests = self.observed.requests
        if len(arrival) > MOST_REQUESTS:
            first = int(np.searchsorted(self.starts, arrival[-MOST_REQUESTS]))
            kept = min(first, len(self.starts) - 1)
            self.requests = self.requests.take(arrival >= self.starts[kept])
            # the engine starts empty there: what it makes of the first chunk is not compared
            self.seen[: kept + 1] = np.nan
        if self.observed.saturated and self.observed.source == "metrics":
            self.seen[:, RESIDUALS.index("ttft_seconds")] = np.nan
        self.seen[self.seen <= 0] = np.nan
        arrival = self.requests.arrival_seconds
        self.counts = (
            np.searchsorted(arrival, self.ends) - np.searchsorted(arrival, self.starts)
        ).astype(float)
        self._until = float(self.ends[-1]) if len(self.ends) else 0.0
        begin = float(self.starts[0]) if len(self.starts) else 0.0
        apart = max(_SHORTEST_SECONDS, (self._until - begin) / _SCRAPES)
        grid = np.arange(begin, self._until, apart)
        self._times = np.unique(np.concatenate([grid, self.starts, self.ends]))

    def play(self, law: StepTime, requests: Requests | None = None) -> Played:
        """One replay; ``requests``: others than those observed.

        Raises:
            ImpossibleConfiguration: vLLM would refuse the settings, or a request never fits.
            NoVerdict: the engine makes no progress.
        """
        from driftwatch.simulate.engine import Observe, simulate

        self.replays += 1
        outcome = simulate(
            self.requests if requests is None else requests,
            self.configuration,
            law,
            observe=Observe(self._times),
            until_seconds=self._until,
        )
        if (rows := outcome.scrapes) is None:
            raise TypeError("a replay that was asked for scrapes has none")
        counted = {
            name: rows[name].to_numpy().astype(float)
            for name in (
                "generation_tokens",
                "steps_observed",
                "itl_seconds_sum",
                "itl_seconds_count",
                "running",
                "prefill_tokens_total",
                "decode_seqs_total",
                "kv_tokens_read_total",
            )
        }
        usage = rows["kv_cache_usage_ratio"].fill_null(np.nan).to_numpy()
        low, high = (
            np.searchsorted(self._times, self.starts),
            np.searchsorted(self._times, self.ends),
        )

        def grown(name: str) -> Floats:
            return np.asarray(counted[name][high] - counted[name][low])

        with np.errstate(divide="ignore", invalid="ignore"):
            tokens = grown("generation_tokens")
            columns = {
                "generation_tokens_per_second": tokens / (self.ends - self.starts),
                "itl_seconds": grown("itl_seconds_sum") / grown("itl_seconds_count"),
                "ttft_seconds": self._ttft(outcome.requests),
                "steps_per_generation_token": grown("steps_observed") / tokens,
                "running_requests": _means(counted["running"], low, high),
                "kv_cache_usage_ratio": _means(usage, low, high),
            }
        steps = max(int(rows["steps_all"][-1]), 1)
        mean = tuple(
            float(counted[name][-1]) / steps
            for name in ("prefill_tokens_total", "decode_seqs_total", "kv_tokens_read_total")
        )
        values = np.array([columns[name] for name in RESIDUALS], dtype=float).T
        return Played(values, (mean[0], mean[1], mean[2]), steps)

    def _ttft(self, rows: pl.DataFrame) -> Floats:
        """Mean of a chunk's first tokens, without those that were inside at the start."""
        known = rows.filter(
            pl.col("first_token_seconds").is_not_null() & (pl.col("arrival_seconds") > 0)
        )
        at = known["first_token_seconds"].to_numpy()
        order = np.argsort(at, kind="stable")
        at, total = at[order], np.cumsum(known["ttft_seconds"].to_numpy()[order])
        total = np.concatenate([[0.0], total])
        low, high = np.searchsorted(at, self.starts), np.searchsorted(at, self.ends)
        return np.asarray((total[high] - total[low]) / (high - low))

    @property
    def comparable(self) -> npt.NDArray[np.bool_]:
        """Chunks with enough requests."""
        return self.counts >= min(_FEWEST_REQUESTS, max(1.0, float(np.median(self.counts))))


def _means(values: Floats, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]) -> Floats:
    """Means of the scrapes after ``low`` up to ``high``."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray((total[high + 1] - total[low + 1]) / (high - low))
