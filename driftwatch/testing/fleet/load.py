"""What a simulated server was loaded with, minute by minute: truth that no page has to show.

Taken from the scheduler itself, whatever was scraped: how many waited for room, and which limit
they met. Written beside a compact recording (``NNNN.load.parquet``), for whoever judges.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.testing.fleet.naming import instance_of
from driftwatch.testing.fleet.scenario import Scenario

Floats = npt.NDArray[np.float64]

LOAD_SECONDS = 60.0
LOAD_SCHEMA = pl.Schema(
    {
        "instance": pl.String(),
        "time": pl.Datetime("us", "UTC"),
        "arrived_requests": pl.Int64(),  # since the row before
        "running_requests": pl.Int64(),  # after the last step
        "waiting_requests": pl.Int64(),  # for room, not for an adapter or a transfer
        "preemptions": pl.Int64(),  # since the row before
        "ended_requests": pl.Int64(),  # since the row before, those that clients gave up left out
        "in_ttft_requests": pl.Int64(),  # of them, with their first token within the target
        "in_tpot_requests": pl.Int64(),  # of them, with their tokens within the target
        "busy_ratio": pl.Float64(),  # share of the time in which a step ran
        "sequences_ratio": pl.Float64(),  # of max_num_seqs
        "step_tokens_ratio": pl.Float64(),  # mean tokens of a step, of max_num_batched_tokens
        "kv_cache_ratio": pl.Float64(),  # of the blocks; null where they never bind
    }
)


def load_times(first: float, last: float) -> Floats:
    """When the load is taken in first <= time < last: at whole minutes."""
    return np.arange(np.ceil(first / LOAD_SECONDS) * LOAD_SECONDS, last, LOAD_SECONDS)


def load_rows(
    scrapes: pl.DataFrame,
    arrivals: Floats,
    ended: pl.DataFrame,
    scenario: Scenario,
    number: int,
    configuration: SchedulerConfiguration,
) -> pl.DataFrame:
    """Rows of one process in LOAD_SCHEMA, the first of them lost to the differences.

    Args:
        scrapes: of ``Outcome.scrapes`` at :func:`load_times`, the last of those before as well.
        arrivals: of the requests that were sent in that time, in seconds.
        ended: requests that ended in that time (``Outcome.requests``).
        scenario: whose targets are met or missed; without a target each request meets it.
        number: of the server.
        configuration: of its scheduler.
    """
    times = scrapes["time_seconds"].to_numpy()
    if len(times) < 2:
        return LOAD_SCHEMA.to_frame()

    def grown(name: str) -> Floats:
        return np.diff(scrapes[name].cast(pl.Float64).to_numpy())

    steps = np.maximum(grown("steps_all"), 1.0)
    tokens = (grown("prefill_tokens_total") + grown("decode_seqs_total")) / steps

    def at_rows(which: pl.DataFrame) -> Floats:
        return np.diff(np.searchsorted(which["end_seconds"].sort().to_numpy(), times))

    judged = ended.filter(pl.col("status").is_in(["finished", "timed_out", "rejected"]))
    in_ttft, in_tpot = _in_targets(judged, scenario)
    running = scrapes["running"].to_numpy()[1:]
    start = scenario.start
    most = configuration.max_num_active_seqs or configuration.max_num_seqs
    return pl.DataFrame(
        {
            "instance": [instance_of(scenario, number)] * (len(times) - 1),
            "time": [start + timedelta(seconds=float(at)) for at in times[1:]],
            "arrived_requests": np.diff(np.searchsorted(arrivals, times)),
            "running_requests": running,
            "waiting_requests": scrapes["waiting_capacity"][1:],
            "preemptions": grown("preemptions").astype(np.int64),
            "ended_requests": at_rows(judged),
            "in_ttft_requests": at_rows(in_ttft),
            "in_tpot_requests": at_rows(in_tpot),
            "busy_ratio": grown("busy_seconds") / np.diff(times),
            "sequences_ratio": running / most,
            "step_tokens_ratio": tokens / configuration.max_num_batched_tokens,
            "kv_cache_ratio": scrapes["kv_cache_usage_ratio"][1:],
        },
        schema=LOAD_SCHEMA,
    )


def _in_targets(judged: pl.DataFrame, scenario: Scenario) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Requests that met each of the two targets."""
    slo = scenario.pool.slo
    ttft = np.inf if slo is None or slo.ttft_seconds is None else slo.ttft_seconds
    tpot = np.inf if slo is None or slo.tpot_seconds is None else slo.tpot_seconds
    after = (pl.col("generated_tokens") - 1).clip(lower_bound=1)
    each = (pl.col("e2e_seconds") - pl.col("ttft_seconds")) / after
    done = judged.filter(pl.col("status") == "finished")
    return done.filter(pl.col("ttft_seconds") <= ttft), done.filter(each <= tpot)


def load_file(folder: Path, number: int) -> Path:
    """Where the load of a server stands beside a compact recording."""
    return folder / f"{number:04d}.load.parquet"
