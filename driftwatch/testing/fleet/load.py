"""What a simulated server was loaded with, minute by minute: truth that no page has to show.

Taken from the scheduler itself, whatever was scraped: how many waited for room, and which limit
they met. Written beside a compact recording (``NNNN.load.parquet``), for whoever judges.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.simulate.configuration import SchedulerConfiguration

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
    configuration: SchedulerConfiguration,
    start: datetime,
    instance: str,
) -> pl.DataFrame:
    """Rows of one process in LOAD_SCHEMA, the first of them lost to the differences.

    Args:
        scrapes: of ``Outcome.scrapes`` at :func:`load_times`, the last of those before as well.
        arrivals: of the requests that were sent in that time, in seconds.
        configuration: of its scheduler.
        start: the scenario's second 0.
        instance: of the server.
    """
    times = scrapes["time_seconds"].to_numpy()
    if len(times) < 2:
        return LOAD_SCHEMA.to_frame()

    def grown(name: str) -> Floats:
        return np.diff(scrapes[name].cast(pl.Float64).to_numpy())

    steps = np.maximum(grown("steps_all"), 1.0)
    tokens = (grown("prefill_tokens_total") + grown("decode_seqs_total")) / steps
    running = scrapes["running"].to_numpy()[1:]
    most = configuration.max_num_active_seqs or configuration.max_num_seqs
    return pl.DataFrame(
        {
            "instance": [instance] * (len(times) - 1),
            "time": [start + timedelta(seconds=float(at)) for at in times[1:]],
            "arrived_requests": np.diff(np.searchsorted(arrivals, times)),
            "running_requests": running,
            "waiting_requests": scrapes["waiting_capacity"][1:],
            "preemptions": grown("preemptions").astype(np.int64),
            "busy_ratio": grown("busy_seconds") / np.diff(times),
            "sequences_ratio": running / most,
            "step_tokens_ratio": tokens / configuration.max_num_batched_tokens,
            "kv_cache_ratio": scrapes["kv_cache_usage_ratio"][1:],
        },
        schema=LOAD_SCHEMA,
    )


def load_file(folder: Path, number: int) -> Path:
    """Where the load of a server stands beside a compact recording."""
    return folder / f"{number:04d}.load.parquet"
