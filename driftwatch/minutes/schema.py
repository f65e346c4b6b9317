"""The minute row: what the store keeps of one target for one minute.

Counters and histograms are increases of the minute and add up over minutes; ``*_buckets`` are
cumulative counts by edge (``+Inf`` last). Gauges are means of the minute's scrapes. NULL is
unknown. A minute without a usable scrape has ``scrapes`` 0.
"""

from __future__ import annotations

import polars as pl

from driftwatch.collect.registry import BUCKETED, COUNTERS, HISTOGRAMS
from driftwatch.collect.schema import TIME
from driftwatch.minutes.continuity import MEAN_GAUGES

# vLLM looks up in the external cache what its own lacks: both count as hits.
EXTERNAL_HITS = "external_prefix_cache_hits_total"
# Used only to compute other columns.
NOT_KEPT = (EXTERNAL_HITS, "aborted_requests_total")
# Requests whose clients left; vLLM counts no end for most of them.
GIVEN_UP = "given_up_requests"
SUMS = (
    *(c for c in COUNTERS if c not in NOT_KEPT),
    GIVEN_UP,
    *(f"{h}_{part}" for h in HISTOGRAMS for part in ("sum", "count")),
)
BUCKETS = tuple(f"{name}_buckets" for name in BUCKETED)
EDGES = tuple(f"{name}_edges" for name in BUCKETED)
# Counts of scrapes, and sums over them.
COUNTS = (
    "scrapes_queue_known",  # whether requests wait for capacity is known
    "waiting_for_capacity_sum",  # requests, over those scrapes
    "scrapes_deferred_known",
    "scrapes_deferred",
    "deferred_sum",  # requests, over the scrapes with any
)
# One value for each scrape in which requests wait for capacity, in order of time:
# :mod:`driftwatch.diagnose.limits` finds the limit from them and the settings known then.
# Three digits: more say nothing about a scheduler.
QUEUED: dict[str, str] = {
    "queued_second": "second",  # of the minute
    "queued_running": "running",
    "queued_capacity": "capacity",
    "queued_kv": "kv",
    "queued_preempted": "preempted",
    "queued_tokens_per_step": "tokens_per_step",
    "queued_first_tokens_per_step": "first_tokens_per_step",
    "queued_steps_per_second": "steps_per_second",
    "queued_stalled": "stalled",
    "queued_repeats": "repeats",
}
MINUTE_ROW_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "end": TIME,
    # scrapes, failed ones too; 0 = its source answers and does not list it, NULL = not queried
    "looks": pl.Float64,
    "failure": pl.String,  # why the last failed scrape failed
    "scrapes": pl.Float64,
    "duration_seconds": pl.Float64,  # that the increases cover
    "last_scrape_age_seconds": pl.Float64,  # at the minute's end, of the last usable scrape
    "restarted": pl.Boolean,
    "configuration_changed": pl.Boolean,
    "several_api_servers": pl.Boolean,
    "model_name": pl.String,
    "cache_config": pl.String,
    "engine_kind": pl.String,
    "engine_asleep": pl.Boolean,
    # seconds from the last scrape that showed work, or no request at all, to the last usable one;
    # NULL = none in the minute showed it
    "alive_age_seconds": pl.Float64,
    "queue_grew_age_seconds": pl.Float64,  # the same from the last scrape with a longer queue
    "presence_known": pl.Boolean,
    "running_requests_max": pl.Float64,
    **dict.fromkeys(SUMS, pl.Float64),
    **dict.fromkeys(MEAN_GAUGES, pl.Float64),
    **dict.fromkeys(COUNTS, pl.Float64),
    **{c: pl.List(pl.Float64) for pair in zip(BUCKETS, EDGES, strict=True) for c in pair},
    **dict.fromkeys(QUEUED, pl.List(pl.Float64)),
}
