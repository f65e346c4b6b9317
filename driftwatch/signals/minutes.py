"""The minute as detectors read it: one row per target and minute.

Counters are increases of the minute and add up over minutes; gauges are means of its scrapes;
``*_buckets`` are the minute's cumulative counts by edge (``+Inf`` last) and add up too where the
edges are equal. NULL is unknown. A minute without a usable scrape has ``scrapes`` 0.
"""

from __future__ import annotations

import polars as pl

from driftwatch.collect.registry import BUCKETED
from driftwatch.collect.schema import KEY, TIME
from driftwatch.minutes.schema import SUMS

GAUGED = (
    "running_requests",
    "waiting_requests",
    "waiting_capacity_requests",
    "waiting_deferred_requests",
    "kv_cache_usage_ratio",
    "kv_cache_tokens",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_count",
    "gpu_sm_clock_hertz",
    "gpu_utilization_ratio",
    "gpu_power_watts",
    "limit_binding_share_10m_ratio",
    "seconds_since_last_token",
)
FLAGGED = (
    "restarted",
    "configuration_changed",
    "release_changed",
    "forward_passes_overcounted",
    "max_num_seqs_inferred",
    "slo_missed",
    "engine_asleep",
)
MINUTE_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "pool": pl.String,
    "end": TIME,
    "scrapes": pl.Float64,
    "duration_seconds": pl.Float64,
    "forward_passes": pl.Float64,  # counted once each, where the number of API servers is known
    **dict.fromkeys(SUMS, pl.Float64),
    **dict.fromkeys(GAUGED, pl.Float64),
    **dict.fromkeys(FLAGGED, pl.Boolean),
    **{f"{name}_{part}": pl.List(pl.Float64) for name in BUCKETED for part in ("buckets", "edges")},
}


def minutes(rows: pl.DataFrame) -> pl.DataFrame:
    """Evidence rows of the minute grid → minutes, row for row.

    ``rows``: from :func:`driftwatch.diagnose.evidence_table.evidence_table`, windows of a minute.
    """
    return rows.select(pl.col(name).cast(dtype) for name, dtype in MINUTE_SCHEMA.items())


def no_minutes() -> pl.DataFrame:
    """A minute table without rows."""
    return pl.DataFrame(schema=MINUTE_SCHEMA)


MINUTE_KEY = (*KEY, "end")
