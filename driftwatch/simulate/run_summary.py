"""One simulated run in figures: latencies, throughput, batch, and what made requests wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import NO_ADAPTER, Floats, Requests

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
TIMES = ("ttft_seconds", "itl_seconds", "e2e_seconds", "queue_seconds")
STATUSES = ("finished", "rejected", "cancelled", "timed_out", "unfinished")
LIMITS = ("max_num_seqs", "max_num_batched_tokens", "kv_cache", "max_loras", "other")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Figures of a run."""

    statuses: dict[str, int]  # requests by how they ended
    # for each of ``TIMES`` p50, p90, p99, mean, max in seconds and n; None where no request has it.
    # Quantiles interpolate linearly between requests; one behind which fewer than 1 / (1 - q)
    # requests stand is None.
    latency: dict[str, dict[str, float | None] | None]
    # requests, prompt tokens and generated tokens a second, from the first arrival to the last end;
    # None where that is no time
    throughput: dict[str, float | None]
    # decode requests and tokens a step, steps, and the share of the span in steps
    batch: dict[str, float | None]
    preemptions: int  # how often a request lost its KV blocks
    # share of the time in steps in which requests waited because of each limit
    waited: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """The same, with units in the names."""
        return {
            "requests": self.statuses,
            "latency": self.latency,
            "throughput": self.throughput,
            "batch": self.batch,
            "preemptions": self.preemptions,
            "waited_busy_time_ratio": self.waited,
        }


def with_itl(requests: pl.DataFrame) -> pl.DataFrame:
    """``Outcome.requests`` with ``itl_seconds``: a request's mean time between two tokens.

    The same as vLLM's time per output token: (e2e - ttft) / (generated - 1); null for one token.
    """
    gaps = pl.col("generated_tokens") - 1
    return requests.with_columns(
        pl.when((pl.col("status") == "finished") & (gaps > 0))
        .then((pl.col("e2e_seconds") - pl.col("ttft_seconds")) / gaps)
        .alias("itl_seconds")
    )


class RunTally:
    """Adds up a run piece by piece; 32 bytes a request are kept, nothing else.

    ``requests``: all of the run; ``configuration``: what runs, to tell which limit binds.
    """

    def __init__(self, requests: Requests, configuration: SchedulerConfiguration) -> None:
        self._times = {name: np.full(len(requests), np.nan) for name in TIMES}
        self._configuration = configuration
        # only where what waits for blocks must be told apart from what waits for another limit
        adapters = configuration.max_loras is not None and (requests.adapter != NO_ADAPTER).any()
        self._adapters = bool(adapters)
        whole = not configuration.enable_chunked_prefill
        self._prompts = np.sort(requests.prompt_tokens) if adapters or whole else None
        self._statuses = dict.fromkeys(STATUSES, 0)
        self._tokens = dict.fromkeys(("prompt_tokens", "generated_tokens"), 0)
        self._first = np.inf
        self._steps = dict.fromkeys(("decode_seqs", "prefill_tokens"), 0)
        self._held_back: dict[str, float] = {}

    def take(self, requests: pl.DataFrame, steps: pl.DataFrame) -> None:
        """One more piece.

        ``requests``: rows of ``Outcome.requests`` that ended, with ``itl_seconds``; ``steps``: rows
        of ``Outcome.steps``.
        """
        for name, count in requests["status"].value_counts().iter_rows():
            self._statuses[name] += count
        finished = requests.filter(pl.col("status") == "finished")
        for name, values in self._times.items():
            values[finished["index"].to_numpy()] = finished[name].fill_null(np.nan).to_numpy()
        self._tokens["prompt_tokens"] += int(finished["prompt_tokens"].sum())
        self._tokens["generated_tokens"] += int(requests["generated_tokens"].sum())
        if requests["arrival_seconds"].count():
            self._first = min(self._first, float(requests["arrival_seconds"].min()))  # type: ignore[arg-type]
        for name in self._steps:
            self._steps[name] += int(steps[name].sum())
        for limit, seconds in self._waited(steps).items():
            self._held_back[limit] = self._held_back.get(limit, 0.0) + seconds

    def _waited(self, steps: pl.DataFrame) -> dict[str, float]:
        """Seconds in steps by what held requests back meanwhile, ``none`` among it."""
        settings = self._configuration
        cap = settings.max_num_active_seqs or settings.max_num_seqs
        tokens = pl.col("prefill_tokens") + pl.col("decode_seqs")
        held_back = (
            pl.when(pl.col("waiting") == 0)
            .then(pl.lit("none"))
            .when(pl.col("preempted") > 0)
            .then(pl.lit("kv_cache"))
            .when(pl.col("running") >= cap)
            .then(pl.lit("max_num_seqs"))
            .when(tokens >= settings.max_num_batched_tokens)
            .then(pl.lit("max_num_batched_tokens"))
            .otherwise(pl.Series(self._rest(steps), dtype=pl.String))
            .alias("held_back")
        )
        seconds = (pl.col("end_seconds") - pl.col("start_seconds")).sum()
        return dict(steps.group_by(held_back).agg(seconds).iter_rows())

    def _rest(self, steps: pl.DataFrame) -> list[str]:
        """For each step, who would hold back a request that finds a place and some budget."""
        settings, prompts = self._configuration, self._prompts
        if prompts is None:
            return ["other" if settings.num_gpu_blocks is None else "kv_cache"] * steps.height
        no_blocks = no_budget = np.zeros(steps.height)
        if settings.num_gpu_blocks is not None:
            reserve = int(settings.watermark * settings.num_gpu_blocks)
            free = (steps["free_blocks"].to_numpy() - reserve) * settings.block_size
            no_blocks = 1.0 - np.searchsorted(prompts, free, side="right") / len(prompts)
        if not settings.enable_chunked_prefill:
            spent = (steps["prefill_tokens"] + steps["decode_seqs"]).to_numpy()
            unspent = settings.max_num_batched_tokens - spent
            no_budget = 1.0 - np.searchsorted(prompts, unspent, side="right") / len(prompts)
        names = np.where(no_blocks > no_budget, "kv_cache", "max_num_batched_tokens")
        if self._adapters:
            names = np.where(np.maximum(no_blocks, no_budget) < 0.5, "max_loras", names)
        return [str(name) for name in names]

    def summary(self, totals: dict[str, float | int]) -> RunSummary:
        """Figures of the run; ``totals``: ``Outcome.summary`` of its end."""
        span = max(0.0, float(totals["end_seconds"]) - self._first)
        done = {
            "requests_per_second": self._statuses["finished"],
            "prompt_tokens_per_second": self._tokens["prompt_tokens"],
            "generation_tokens_per_second": self._tokens["generated_tokens"],
        }
        steps = int(totals["steps"])
        decode, prefill = self._steps["decode_seqs"], self._steps["prefill_tokens"]
        passed = sum(self._held_back.values())
        return RunSummary(
            statuses=dict(self._statuses),
            latency={name: _distribution(values) for name, values in self._times.items()},
            throughput={
                **{name: value / span if span > 0 else None for name, value in done.items()},
                "span_seconds": span,
            },
            batch={
                "steps": steps,
                "busy_ratio": float(totals["busy_seconds"]) / span if span > 0 else None,
                "decode_seqs_per_step": decode / steps if steps else None,
                "tokens_per_step": (decode + prefill) / steps if steps else None,
            },
            preemptions=int(totals["preemptions"]),
            waited={
                limit: self._held_back.get(limit, 0.0) / passed if passed else 0.0
                for limit in LIMITS
            },
        )


def _distribution(values: Floats) -> dict[str, float | None] | None:
    finite = values[~np.isnan(values)]
    if not len(finite):
        return None
    shares = np.quantile(finite, list(QUANTILES.values()))
    return {
        **{
            name: float(value) if len(finite) >= round(1 / (1 - share)) else None
            for (name, share), value in zip(QUANTILES.items(), shares, strict=True)
        },
        "mean": float(finite.mean()),
        "max": float(finite.max()),
        "n": len(finite),
    }
