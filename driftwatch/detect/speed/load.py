"""The work of an engine in a minute, and the time it took: the covariates of step time.

A token waits for one forward pass, and passes that many requests share have more tokens. So the
mean over passes differs from the mean over tokens, which ITL is. The difference is measured, not
assumed: the overlap o = ITL × passes per second is 1 where the engine always runs and passes are
alike, and more where bursts make some passes long and full (Little's law on both sides). A token
meets a batch of ``n·max(1, o)²`` and a prefill of ``P·o``: on engines that follow their model
exactly this took the misfit of ln r from 2.6 % to 1.3 %. Where o is below 1 a token meets up to P,
as few requests share a pass: the fit takes ``P·max(1, o)`` and ``P·min(1, o)`` as two covariates.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from driftwatch.arrays import Floats
from driftwatch.collect.registry import BY_COLUMN
from driftwatch.collect.schema import TIME
from driftwatch.model import Reason

MIN_TOKENS = 20.0  # of a minute: the mean of fewer says little


def _absent(column: str) -> Reason:
    """The reason for a missing input, in doctor's words."""
    return Reason("input_missing", f"{BY_COLUMN[column].wire_name}: not on the page")


_NO_INTERVAL = "so there is no time between two"
# Why there is no speed at equal load.
WHY_NOT = (
    Reason("", ""),
    Reason("not_scraped", "no usable scrape"),
    _absent("iteration_tokens"),
    Reason(
        "overcounted",
        "perhaps several API servers, each counting every forward pass: the page has no process "
        "start; name --api-server-count in serving.arguments",
    ),
    Reason("idle", "fewer than 20 generated tokens in the minute"),
    Reason(
        "preempting",
        "requests are preempted, so step times cannot be compared",
    ),
    Reason("not_finite", "a number of the load is not finite"),
    _absent("itl_seconds"),
    _absent("kv_cache_usage_ratio"),
    _absent("prompt_tokens_total"),
    Reason("pooling", f"not applicable: a pooling engine generates no tokens, {_NO_INTERVAL}"),
    Reason("one_token", f"not applicable: one token a request, {_NO_INTERVAL}"),
    Reason("warming_up", "warming up after a restart"),
    Reason("gap", "the minutes before were not scraped"),
)
(
    COMPLETE,
    UNSEEN,
    NO_PASSES,
    OVERCOUNTED,
    IDLE,
    PREEMPTING,
    INCOMPLETE,
    NO_ITL,
    NO_USAGE,
    NO_PROMPTS,
    POOLING,
    ONE_TOKEN,
    WARMING,
    GAP,
) = range(14)
# Reasons that stay until a setting or a release changes.
LASTING = (NO_PASSES, OVERCOUNTED, INCOMPLETE, NO_ITL, NO_USAGE, NO_PROMPTS, POOLING)
RESTARTED, CHANGED = 2, 1

VERDICTS = ("slower_at_equal_load", "slower_than_pool")

# The covariates, singles: times in seconds, n per pass, KV and prefill in tokens.
COVARIATES = ("itl", "requests", "kv", "prefill", "overlap", "passes", "queued", "first")
LENGTH_PARTS = (
    "prompt_tokens_sum",
    "prompt_tokens_count",
    "generation_tokens_sum",
    "generation_tokens_count",
)
WORK_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(("instance", "engine", "pool"), pl.Categorical),
    "end": TIME,
    **dict.fromkeys(COVARIATES, pl.Float32),
    "why": pl.Int8,  # index into WHY_NOT; covariates are known with COMPLETE and PREEMPTING only
    "changed": pl.Int8,  # CHANGED a knob or the release, RESTARTED; else 0
    "scrapes": pl.Float32,
    "sound": pl.Boolean,  # no limit binds with the SLO missed, and the engine is not stuck
    "limited": pl.Boolean,  # a limit binds, and the SLO is missed or unknown
    **dict.fromkeys(LENGTH_PARTS, pl.Float64),
    "waited": pl.Float32,  # seconds in the queue: of served requests, or of waiting ones (Little)
    "begun": pl.Float32,  # first tokens
    "given_up": pl.Float32,  # requests that got a first token and will not finish
    "slower": pl.Boolean,  # the stored verdict, at equal load or than the pool; NULL is unknown
}


def work_of(minutes: pl.DataFrame) -> pl.DataFrame:
    """The work of minutes for detectors, row for row: :data:`WORK_SCHEMA`.

    ``minutes``: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, with the verdicts about speed
    where they are known already.
    """
    work = minutes.select(
        "instance",
        "engine",
        "pool",
        "end",
        *LENGTH_PARTS,
        itl=_ITL,
        requests=(_TOKENS + _FIRST.fill_null(0.0)) / _PASSES,
        kv=_USAGE * pl.col("kv_cache_tokens").fill_null(1.0),  # usage alone is a covariate as well
        prefill=_computed_prompts() / _PASSES,
        overlap=_ITL * _PASSES / _SECONDS,
        passes=_PASSES / _SECONDS,
        queued=_queued(),
        first=_FIRST.fill_null(0.0) / (_TOKENS + _FIRST.fill_null(0.0)),
        why=_why(),
        changed=_changed(),
        scrapes=pl.col("scrapes").fill_null(0.0),
        sound=_sound(),
        limited=_binds() & pl.col("slo_missed").fill_null(True),
        waited=_waited(),
        begun=_FIRST.fill_null(0.0),
        given_up=pl.col("given_up_requests").fill_null(0.0),
        slower=_slower(minutes),
    ).select(pl.col(name).cast(dtype) for name, dtype in WORK_SCHEMA.items())
    finite = pl.all_horizontal(pl.col(COVARIATES).is_finite()).fill_null(value=False)
    odd = ~finite & pl.col("why").is_in((COMPLETE, PREEMPTING))
    work = work.with_columns(why=pl.when(odd).then(pl.lit(INCOMPLETE, pl.Int8)).otherwise("why"))
    known = pl.col("why").is_in((COMPLETE, PREEMPTING))
    return work.with_columns(pl.when(known).then(pl.col(name)).alias(name) for name in COVARIATES)


def no_work() -> pl.DataFrame:
    """Work of no minute."""
    return pl.DataFrame(schema=WORK_SCHEMA)


_TOKENS, _TOKEN_SECONDS = pl.col("itl_seconds_count"), pl.col("itl_seconds_sum")
_FIRST = pl.col("ttft_seconds_count")
_SECONDS, _PASSES = pl.col("duration_seconds"), pl.col("forward_passes")
_USAGE, _PREEMPTIONS = pl.col("kv_cache_usage_ratio"), pl.col("preemptions_total")
_ITL = _TOKEN_SECONDS / _TOKENS


def _holds(condition: pl.Expr) -> pl.Expr:
    """Whether a condition holds; false where it is unknown."""
    return condition.fill_null(value=False)


def _computed_prompts() -> pl.Expr:
    """Prompt tokens that were computed."""
    # older pages count hits in blocks: their share is the same in any unit
    queries = pl.col("prefix_cache_queries_total")
    missed_share = 1.0 - pl.col("prefix_cache_hits_total") / queries
    return pl.coalesce(
        "prompt_tokens_computed_total",
        pl.when(queries > 0).then(pl.col("prompt_tokens_total") * missed_share.clip(0.0, 1.0)),
        "prompt_tokens_total",
    )


def _why() -> pl.Expr:
    """Why the load of a minute is unknown: an index into :data:`WHY_NOT`."""
    reasons = (
        (~_holds(pl.col("scrapes") > 0) | ~_holds(_SECONDS > 0), UNSEEN),
        (pl.col("forward_passes_overcounted"), OVERCOUNTED),
        (_PASSES.is_null(), NO_PASSES),
        (_TOKENS.is_null() | _TOKEN_SECONDS.is_null(), NO_ITL),
        ((_FIRST > 0) & (pl.col("generation_tokens_total") == 0), POOLING),
        ((_FIRST >= MIN_TOKENS) & (_TOKENS == 0), ONE_TOKEN),
        ((_TOKENS < MIN_TOKENS) | (_PASSES <= 0) | (_TOKEN_SECONDS <= 0), IDLE),
        (_USAGE.is_null(), NO_USAGE),
        (_computed_prompts().is_null(), NO_PROMPTS),
        (_PREEMPTIONS > 0, PREEMPTING),
    )
    return pl.coalesce(*(pl.when(holds).then(code) for holds, code in reasons), COMPLETE)


def _changed() -> pl.Expr:
    knob, release = pl.col("configuration_changed"), pl.col("release_changed")
    changed = pl.when(_holds(knob) | _holds(release)).then(CHANGED).otherwise(0)
    return pl.when(_holds(pl.col("restarted"))).then(RESTARTED).otherwise(changed)


def _queued() -> pl.Expr:
    """Mean wait in the queue in units of ITL; without its histogram an upper bound."""
    waited = (pl.col("queue_seconds_sum") / pl.col("queue_seconds_count")).fill_nan(0.0)
    # the first token comes after the wait and one pass or more
    most = (pl.col("ttft_seconds_sum") / _FIRST).fill_nan(0.0) - _ITL
    return (pl.coalesce(waited, most) / _ITL).clip(0.0).fill_null(0.0)


def _slower(minutes: pl.DataFrame) -> pl.Expr:
    known = [name for name in VERDICTS if name in minutes.columns]
    return pl.any_horizontal(known) if known else pl.lit(None)


def _waited() -> pl.Expr:
    served = (pl.col("queue_seconds_sum") / pl.col("queue_seconds_count")).fill_nan(0.0)
    waiting = pl.when(_FIRST > 0).then(pl.col("waiting_requests") * _SECONDS / _FIRST)
    return pl.max_horizontal(served, waiting).fill_null(0.0)


def _sound() -> pl.Expr:
    stuck = pl.col("seconds_since_last_token").fill_null(0.0) > 60.0
    return ~(_holds(pl.col("slo_missed")) & _binds()) & ~stuck


def _binds() -> pl.Expr:
    return pl.col("limit_binding_share_10m_ratio").fill_null(0.0) >= 0.5


def token_met(values: Mapping[str, Floats]) -> tuple[Floats, ...]:
    """The covariates as a token met them: 1, requests, KV tokens, most and least prefill tokens."""
    overlap, prefill = values["overlap"], values["prefill"]
    crowd, idle = np.maximum(1.0, overlap), np.minimum(1.0, overlap)
    one = np.ones_like(overlap)
    return one, values["requests"] * crowd**2, values["kv"], prefill * crowd, prefill * idle
