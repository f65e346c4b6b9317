"""Recorded runs of vLLM on real GPUs: what the first half says, held against the second."""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from engine_minutes import by_hand

from driftwatch.recommend.demand import Demand
from driftwatch.recommend.server import Server
from driftwatch.recommend.steps import Prior, Work, prior_of, recomputed_tokens, step_times
from driftwatch.recommend.window import Window
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import shipped_hardware
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Trial

RUNS = {
    "RTX4090_Llama-3.1-8B": "NVIDIA GeForce RTX 4090",
    "RTXPRO6000_Llama-3.1-8B": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
}
_TIMES = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
_PART_SECONDS = 8.0  # stands for a minute: a run lasts three


@dataclass(frozen=True)
class GpuRun:
    """300 requests on the engine's own clock, 0 at the first of them."""

    name: str
    meta: dict[str, Any]
    rows: pl.DataFrame
    ticks: pl.DataFrame  # each second: what the engine said

    @cached_property
    def half(self) -> float:
        """The middle of its time."""
        return float(self.rows["last_token_ts"].max()) / 2

    @cached_property
    def settings(self) -> SchedulerConfiguration:
        """Its own."""
        said, kv = self.meta["engine_kwargs"], self.meta.get("kv_cache") or {}
        return SchedulerConfiguration(
            said["max_num_seqs"],
            said["max_num_batched_tokens"],
            num_gpu_blocks=kv.get("num_gpu_blocks"),
            max_model_len=said["max_model_len"],
        )

    @cached_property
    def lengths(self) -> Demand:
        """Of its requests."""
        lengths = (self.rows[n].to_numpy() for n in ("input_toks", "output_toks"))
        return Demand(*lengths, np.ones(1), np.ones(1), 0.0, 16)

    @cached_property
    def prior(self) -> Prior:
        """The roofline of its GPU and model."""
        server = Server(model=self.meta["model"], gpu=RUNS[self.name], tensor_parallel=1)
        window = Window(by_hand(1))
        return prior_of(server, window, self.lengths, shipped_hardware())

    @cached_property
    def fitted(self) -> StepTime:
        """The likeliest model of its first half."""
        found = step_times(self._work(), self.prior, draws=0, seed=0)
        assert found is not None
        return found.likeliest

    def _work(self) -> Work:
        """Of its first half: an engine that never idles, whose passes are alike."""
        t = self.ticks["t"].to_numpy()
        parts = np.arange(0.0, self.half, _PART_SECONDS)[:-1]
        met, itl = [], []
        for start in parts:
            tick = self.ticks.filter((t > start) & (t <= start + _PART_SECONDS))
            decoding = float(tick["running"].mean())
            passes = float(tick["gen_throughput"].mean()) / decoding
            end = start + _PART_SECONDS
            again = self._resumed(start, end) * recomputed_tokens(self.lengths)
            prefill = (self._prefill_tokens(start, end) + again) / _PART_SECONDS / passes
            prompts = self.rows["input_toks"].to_numpy().astype(float)
            pairs = prefill * (prompts**2).mean() / (2 * prompts.mean())
            context = self._context_tokens(start + _PART_SECONDS / 2)
            met.append((1.0, prefill, decoding, decoding * context, pairs))
            itl.append(1.0 / passes)
        return Work(np.array(met), np.array(itl))

    def _resumed(self, start: float, end: float) -> float:
        """Preempted requests that were admitted again: what the running ones grew by beside the
        new ones, second by second."""
        t, running = self.ticks["t"].to_numpy(), self.ticks["running"].to_numpy()
        admitted, last = (self.rows[n].to_numpy() for n in ("scheduled_ts", "last_token_ts"))
        grown = [
            np.diff(running)[number]
            + ((last > before) & (last <= after)).sum()
            - ((admitted > before) & (admitted <= after)).sum()
            for number, (before, after) in enumerate(itertools.pairwise(t))
            if start < after <= end
        ]
        return float(np.clip(grown, 0, None).sum())

    def _prefill_tokens(self, start: float, end: float) -> float:
        """Prompt tokens computed, each request's evenly from its admission to its first token."""
        begin, first = (self.rows[n].to_numpy() for n in ("scheduled_ts", "first_token_ts"))
        inside = np.clip(np.minimum(first, end) - np.maximum(begin, start), 0.0, None)
        share = inside / np.maximum(first - begin, 1e-9)
        return float((self.rows["input_toks"].to_numpy() * share).sum())

    def _context_tokens(self, at: float) -> float:
        """Mean context of those that decode."""
        first, last = (self.rows[n].to_numpy() for n in ("first_token_ts", "last_token_ts"))
        inside = (first <= at) & (last > at)
        done = (at - first) / np.maximum(last - first, 1e-9)
        context = self.rows["input_toks"].to_numpy() + done * self.rows["output_toks"].to_numpy()
        return float(context[inside].mean())


@cache
def gpu_run(shared_data: Path, name: str) -> GpuRun:
    """A recorded run."""
    folder = shared_data / "gpu-runs" / name
    with gzip.open(folder / "requests.jsonl.gz") as lines:
        rows = pl.DataFrame([json.loads(line) for line in lines]).sort("queued_ts")
    rows = rows.with_columns((pl.col(one) - rows["queued_ts"].min()) for one in _TIMES)
    ticks = pl.read_csv(folder / "timeseries.csv")
    meta = json.loads((folder / "meta.json").read_text())
    return GpuRun(name, meta, rows, ticks)


def end_to_end_error(run: GpuRun, step_time: StepTime) -> float:
    """Median absolute relative end-to-end error of what ended in the second half."""
    rows = run.rows
    requests = make_requests(
        *(rows[name].to_numpy() for name in ("queued_ts", "input_toks", "output_toks"))
    )
    said = Trial(requests, run.settings).run(step_time).requests["e2e_seconds"].to_numpy()
    seen = (rows["last_token_ts"] - rows["queued_ts"]).to_numpy()
    late = rows["last_token_ts"].to_numpy() > run.half
    return float(np.median(np.abs(said - seen)[late] / seen[late]))
