"""Evidence rows: the order of their columns, and their states (a limit is full, lengths moved).

Rules and trees name the states. Each follows from other columns of the same row, so an SRE can
write a condition with another threshold on the numbers. NULL is unknown; AND and OR are SQL's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.detect.lengths import LONGER, SHORTER
from driftwatch.detect.reference import REFERENCE_COLUMNS
from driftwatch.diagnose.limits import waits_are_most
from driftwatch.evidence import BY_NAME, COLUMNS, TEXTS, DType
from driftwatch.minutes.engine import STUCK_SECONDS
from driftwatch.signals.minutes import MINUTE_SCHEMA

CLOCK_DOWN_RATIO = 0.9  # of the baseline's SM clock, as in the trees
# Half of the scrapes: a batch that is full for 10 to 50 % of busy time is healthy.
HALF_OF_SCRAPES = 0.5
# Scrapes sample the time: a half must be reached with 95 % certainty (a normal deviate). A share of
# exactly a half, as in waves, still pages in one minute of twenty.
SHARE_Z = 1.645
FEWEST_SCRAPES = 3
# From here on (all scrapes but one or two) the limit is full for any cause.
ALWAYS_FULL = 0.95
# Users feel a second of waiting; a limit makes at least half of the TTFT.
LONG_WAIT_SECONDS, LONG_WAIT_SHARE = 1.0, 0.5
# Share of the queue left of that while the limit was full: below it the limit has let go.
QUEUE_STANDS = 0.5
# Least time observed of ten minutes, with gaps between scrapes; a KV storm shows in three minutes.
SEEN_SECONDS, STORM_SEEN_SECONDS = 450.0, 150.0
MIX_MOVED = 2.0  # prompt over generation length, divided by the baseline's
# Room above the speed threshold: a slow engine fills its batch before the speed rule is certain.
NEAR_THRESHOLD = 0.95
# 15 % fewer tokens a step, or 15 % more to compute, cost as much as a loss of speed that pages.
LOSS_RATIO = 0.15

_SLO_COLUMNS = (
    "slo_share",
    "ttft_in_target_10m_upper_ratio",
    "tpot_in_target_10m_upper_ratio",
)
LIMITS = ("max_num_seqs", "max_num_batched_tokens", "kv_cache")
UNKNOWN_LIMIT, NO_LIMIT = "unknown", "none"

DTYPES: Mapping[DType, type[pl.DataType]] = {
    "float": pl.Float64,
    "bool": pl.Boolean,
    "string": pl.String,
}
_TYPES = pl.Schema({c.name: DTYPES[c.dtype] for c in COLUMNS})
_KEYS = (*KEY, "pool", "start", "end")
# Columns that minutes are made of, and that pages and reasons read besides.
_EXTRA = {
    "gpu_count_source",
    "gpu_reasons",
    "gpus_lost_names",
    "gpus_of_server",
    "model_name",
    "cache_config",
    "first_time",
    "last_time",
    "kv_block_tokens",
    "max_num_batched_tokens_configured",
    "max_num_seqs_configured",
    "running_requests_max_of_process",
    "step_tokens_max_of_process",
    "slo_ttft_seconds",
    "slo_tpot_seconds",
    *_SLO_COLUMNS,
    "allows_max_num_seqs",
    "allows_max_num_batched_tokens",
    "allows_kv_cache",
    "binding_requests",
    "binding_since",
    "deferred_since",
    *TEXTS,
    "reference_kind",
    "reference_since",
    "reference_until",
    *REFERENCE_COLUMNS,
    *MINUTE_SCHEMA,
}.difference(BY_NAME, _KEYS)


def in_schema_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Evidence columns in the schema's order (NULL where nothing filled them), then the rest."""
    missing = [pl.lit(None).alias(name) for name in _TYPES if name not in rows.columns]
    extra = [name for name in rows.columns if name in _EXTRA]
    return rows.with_columns(missing).select(*_KEYS, *_TYPES, *extra).cast(_TYPES)


def with_states(rows: pl.DataFrame) -> pl.DataFrame:
    """Evidence rows with :data:`STATES`; columns of these names are replaced."""
    absent = [name for name in _SLO_COLUMNS if name not in rows.columns]  # of a rule test
    rows = rows.with_columns(pl.lit(None, pl.Float64).alias(name) for name in absent)
    return rows.with_columns(**_STATES).with_columns(**_DERIVED_STATES).drop(absent)


def _missed() -> pl.Expr:
    """``slo_missed``; false while TTFT is kept and buckets cannot tell whether TPOT is.

    Nothing else ends an incident about waiting where TPOT's target lies inside a bucket for good.
    """
    ttft_kept = pl.col("ttft_in_target_10m_ratio") >= pl.col("slo_share")
    return pl.coalesce("slo_missed", pl.when(ttft_kept).then(False))


def _requests_wait() -> pl.Expr:
    finished = pl.col("batch_assembly_wait_10m_seconds") > LONG_WAIT_SECONDS
    finished &= waits_are_most(LONG_WAIT_SHARE)
    # requests that still wait are in no histogram
    queued, ttft = pl.col("queue_wait_estimate_10m_seconds"), pl.col("ttft_10m_seconds")
    waiting = (queued > LONG_WAIT_SECONDS) & (ttft.is_null() | (queued >= LONG_WAIT_SHARE * ttft))
    # where no request finished, the queue alone decides: an idle server is not "unknown"
    return pl.coalesce(finished | waiting, waiting)


def _stuck() -> pl.Expr:
    return (pl.col("seconds_since_last_token") >= STUCK_SECONDS).fill_null(False)


def _limit_full() -> pl.Expr:
    stands = pl.col("waiting_capacity_requests") >= QUEUE_STANDS * pl.col(
        "binding_waiting_requests"
    )
    preempted = pl.col("preemptions_per_second")
    share = pl.col("limit_binding_share_10m_ratio")
    storm = (pl.col("binding_limit") == "kv_cache") & (
        60 * preempted >= pl.col("binding_running_requests")
    )
    half = (_lower_end() >= HALF_OF_SCRAPES) | (storm & (share >= HALF_OF_SCRAPES))
    slower = pl.col("slower_at_equal_load")
    near = NEAR_THRESHOLD * pl.col("speed_threshold_ratio")
    speed_is_sure = slower.is_null() | slower | (pl.col("speed_at_equal_load_ratio") > near)
    limit_is_sure = pl.col("binding_limit").is_not_null() | _missed()
    always = share >= ALWAYS_FULL
    full = stands & half & (always | (speed_is_sure & limit_is_sure))
    seconds = pl.col("observed_10m_seconds")
    seen = (seconds >= SEEN_SECONDS) | ((seconds >= STORM_SEEN_SECONDS) & (preempted > 0))
    named = pl.col("binding_limit").is_in(LIMITS).fill_null(False)
    limit = pl.when(named).then("binding_limit").otherwise(pl.lit(UNKNOWN_LIMIT))
    return pl.when(seen & ~_stuck()).then(
        pl.when(full).then(limit).when(~full).then(pl.lit(NO_LIMIT))
    )


def _lower_end() -> pl.Expr:
    """Lower end of the 90 % interval of the sampled share (Wilson's score)."""
    share, n, z2 = pl.col("limit_binding_share_10m_ratio"), pl.col("scrapes_10m"), SHARE_Z**2
    spread = (share * (1 - share) / n + z2 / (4 * n**2)).sqrt()
    return pl.when(n >= FEWEST_SCRAPES).then(
        (share + z2 / (2 * n) - SHARE_Z * spread) / (1 + z2 / n)
    )


def _moved(name: str) -> pl.Expr:
    ratio = pl.col(f"{name}_mean_ratio")
    return (ratio >= LONGER) | (ratio <= SHORTER)


def _slower() -> pl.Expr:
    """By either verdict: a target as fast as its peers may be slower together with them."""
    return pl.col("slower_at_equal_load") | pl.col("slower_than_pool").fill_null(False)


def _held_back() -> pl.Expr:
    waits = _missed().is_null() & _requests_wait()
    return (
        _deferred()
        | _missed().fill_null(False)
        | ((pl.col("limit_binding_share_10m_ratio") >= HALF_OF_SCRAPES) & waits)
    )


def _deferred() -> pl.Expr:
    """On the decode side of a disaggregated pair every request waits for its KV cache first."""
    decodes = (pl.col("engine_kind") == "decode_only").fill_null(False)
    return (pl.col("waiting_deferred_share_10m_ratio") >= HALF_OF_SCRAPES) & ~decodes


def _drafts_rejected() -> pl.Expr:
    accepted, per_step = pl.col("spec_decode_acceptance_ratio"), pl.col("tokens_per_output")
    before = pl.col("reference_tokens_per_output")
    fewer = accepted < pl.col("reference_spec_decode_acceptance_ratio")
    return fewer & (per_step <= (1 - LOSS_RATIO) * before)


def _prefix_hits_lost() -> pl.Expr:
    half = pl.col("prefix_cache_hit_ratio") <= 0.5 * pl.col("reference_prefix_cache_hit_ratio")
    by_hits = pl.col("lost_prefix_hits_prefill_ratio")
    # at least a third of the rise's logarithm; unknown against a server's own last days
    hit, longer = pl.col("reference_prefix_cache_hit_ratio"), pl.col("prompt_tokens_mean_ratio")
    by_prompts = pl.when(longer > 1).then((longer - hit) / (1 - hit)).otherwise(longer)
    demand = pl.col("requests_per_second_ratio") * by_prompts
    most = demand.is_null() | (by_hits**2 >= demand)
    return half & (by_hits >= 1 + LOSS_RATIO) & most


def _phase_mix() -> pl.Expr:
    mix = pl.col("prompt_tokens_mean_ratio") / pl.col("generation_tokens_mean_ratio")
    usual = pl.col("prompt_tokens_usual_ratio") * pl.col("generation_tokens_usual_ratio")
    least = usual.clip(lower_bound=MIX_MOVED)
    decode = pl.when(mix <= 1 / least).then(pl.lit("decode")).otherwise(pl.lit("none"))
    words = pl.when(mix >= least).then(pl.lit("prefill")).otherwise(decode)
    return pl.when(mix.is_not_null() & least.is_not_null()).then(words)


_REJECTED, _SERVED = pl.col("rejected_requests_per_second"), pl.col("requests_per_second")
_STATES: Mapping[str, pl.Expr] = {
    "requests_wait": _requests_wait(),
    "limit_full": _limit_full(),
    "requests_deferred": _deferred(),
    "lengths_moved": _moved("prompt_tokens") | _moved("generation_tokens"),
    "phase_mix": _phase_mix(),
    "slower": _slower(),
    "held_back": _held_back(),
    "drafts_rejected": _drafts_rejected(),
    "prefix_hits_lost": _prefix_hits_lost(),
    "rejected_requests_ratio": pl.when(_REJECTED == 0)
    .then(0.0)
    .when(_REJECTED + _SERVED > 0)
    .then(_REJECTED / (_REJECTED + _SERVED)),
}
_DERIVED_STATES: Mapping[str, pl.Expr] = {
    # in a stuck engine no wait ends
    "target_missed": pl.when(~_stuck()).then(pl.coalesce(_missed(), "requests_wait")),
}
STATES = (*_STATES, *_DERIVED_STATES)


def columns_behind(states: Collection[str]) -> set[str]:
    """The columns that these states depend on."""
    behind = [_DERIVED_STATES[name] for name in states if name in _DERIVED_STATES]
    inputs = {column for state in behind for column in state.meta.root_names()}
    first = [name for name in _STATES if name in {*states, *inputs}]
    return inputs.union(*(_STATES[name].meta.root_names() for name in first))


def unknown_inputs(column: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    """The unknown inputs of a state; of another column only itself."""
    inputs = columns_behind([column]).difference(STATES) if column in STATES else set()
    unknown = (name for name in inputs & BY_NAME.keys() if row.get(name) is None)
    return tuple(sorted(unknown)) or (column,)
