"""What the engine had to do in a minute, and how long it took: the covariates of the load model.

A token waits for one forward pass, and it meets the passes that many requests share more often
than the others. The mean over passes is therefore not what the mean ITL (one per token) saw. How
much they differ is measured, not assumed: ITL × passes per second is 1 where the engine always
runs and passes are alike, and more where bursts make some passes long and full (Little's law on
both sides). With it the batch that a token met is ``n·max(1, o)²`` and the prefill that it met
``P·o``: on engines that keep exactly to their model this took the misfit of ln r from 2.6 % to
1.3 % (docs/methods/speed.md).

A minute with preemptions is known between two bounds. What it shows is the lower one: preempted
requests wait and are computed again, and both count against the engine. The upper one takes what
was computed again for work that was done.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.arrays import Codes, Flags, Floats, Singles
from driftwatch.collect.registry import BY_COLUMN

MIN_TOKENS = 100.0  # of a minute: the mean of fewer is noise of its own
WARM_MINUTES = 3  # from a restart on: graphs are captured, caches are cold
SETTLING_MINUTES = 10  # a minute is clean only so long after a restart or a knob change

# The columns of Load.values. Singles, so that what memory holds is what was computed with.
ITL, REQUESTS, USAGE, CACHE, PREFILL, OVERLAP, PASSES, QUEUED, STANDING, CHANGED, AGAIN = range(11)
FIRST, WIDTH = 11, 12
# Waiting of so many passes with somebody waiting at a scrape, or a full batch, is a queue that
# stands: the engine never rests and its passes are alike, so that the load can be told again.
# Unless the passes on the page do not fill the minute: the others only prefilled, and nothing
# counts them.
_STANDING_PASSES, _STANDING_REQUESTS, _FULL_RATIO = 10.0, 1.0, 0.9
_ALL_PASSES_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why there is no speed at equal load: decisions compare ``code``, people read ``text``."""

    code: str
    text: str
    missing_minutes: float = float("nan")  # of data until there may be a model


def _absent(column: str) -> Unknown:
    """As doctor says it."""
    return Unknown("input_missing", f"{BY_COLUMN[column].wire_name}: not on the page")


_NOT_APPLICABLE = "so there is no time between two"
WHY_NOT = (
    Unknown("", ""),
    Unknown("not_scraped", "no usable scrape"),
    _absent("iteration_tokens"),
    Unknown(
        "overcounted",
        "perhaps several API servers, which count each forward pass once each: no process start is "
        "exported; set api_server_count",
    ),
    Unknown("idle", "idle: fewer than 100 generated tokens in the minute"),
    Unknown(
        "preempting",
        "preempting: what is computed again is in ITL, and so is the wait for it",
    ),
    Unknown("warming_up", "warming up after a restart"),
    Unknown("not_finite", "a number of the load is not finite"),
    Unknown(
        "saturated", "saturated: bursts wait for the token budget, so the load cannot be computed"
    ),
    _absent("itl_seconds"),
    _absent("kv_cache_usage_ratio"),
    _absent("prompt_tokens_total"),
    Unknown("out_of_range", "more prefill per generated token than the baseline has"),
    Unknown("out_of_range", "generations shorter than the baseline's"),
    Unknown("out_of_range", "the engine idler than in the baseline"),
    Unknown("pooling", f"not applicable: a pooling engine generates no tokens, {_NOT_APPLICABLE}"),
    Unknown("one_token", f"not applicable: one token a request, {_NOT_APPLICABLE}"),
)
COMPLETE, UNSEEN, NO_PASSES, OVERCOUNTED, IDLE, PREEMPTING, WARMING, INCOMPLETE = range(8)
SATURATED, NO_ITL, NO_USAGE, NO_PROMPTS, PREFILLED, SHORTER, IDLER, POOLING, ONE_TOKEN = range(
    8, 17
)
# Known as load, and nothing that a given model can answer for.
BEYOND_MODEL = (SATURATED, PREFILLED, SHORTER, IDLER)
# Reasons that no waiting helps against.
FOR_GOOD = (NO_PASSES, OVERCOUNTED, PREEMPTING, INCOMPLETE, NO_ITL, NO_USAGE, NO_PROMPTS, POOLING)
CONFIGURATION, RESTARTED = 1.0, 2.0
UNFILLED = 2.0


@dataclass(frozen=True, slots=True)
class Load:
    """Minutes as numbers."""

    # (row, 12): ITL in seconds; requests per forward pass; KV usage; KV cache tokens (1 where the
    # page does not say: usage alone is the covariate); computed prompt tokens per forward pass; ITL
    # × passes per second; passes per second; mean wait in the queue in units of ITL; 1 where a
    # queue stands, 2 where it does and passes are not on the page; what changed (1 a knob, 2 a
    # restart); prompt and answer tokens per forward pass that preempted requests made it compute
    # again, at most; share of first tokens among the generated ones. NaN where ``why`` is neither 0
    # nor, with all of these known, ``PREEMPTING``.
    values: Singles
    why: Codes  # index into :data:`WHY_NOT`
    scrapes: Floats  # of the minute
    # nothing but its speed may make the minute unfit for a model: no batch limit binds with the SLO
    # missed, the engine is not stuck
    usable: Flags


def load_of(minutes: pl.DataFrame) -> Load:
    """The load of minutes, row for row.

    ``minutes``: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`.
    """
    columns = minutes.select(
        itl=_ITL,
        requests=_REQUESTS,
        usage=_USAGE,
        cache=pl.col("kv_cache_tokens").fill_null(1.0),
        prefill=_computed_prompts() / _FORWARD_PASSES,
        overlap=_ITL * _FORWARD_PASSES / _SECONDS,
        passes=_FORWARD_PASSES / _SECONDS,
        queued=_queued(),
        standing=_stands(),
        changed=_changed(),
        again=_computed_again(),
        first=_FIRST_TOKENS / (_TOKENS + _FIRST_TOKENS),
        why=_why(),
        scrapes=pl.col("scrapes").fill_null(0.0),
        usable=_usable(),
    )
    values = columns.select(pl.nth(range(WIDTH))).cast(pl.Float32).to_numpy(writable=True)
    reasons = columns["why"].to_numpy().copy()
    odd = ~np.isfinite(values).all(axis=1)
    reasons[odd & (reasons == COMPLETE)] = INCOMPLETE
    values[odd | ~np.isin(reasons, (COMPLETE, PREEMPTING)), :CHANGED] = np.nan
    values[odd, AGAIN] = 0.0
    values[odd, FIRST] = 0.0
    return Load(values, reasons, columns["scrapes"].to_numpy(), columns["usable"].to_numpy())


_TOKENS, _TOKEN_SECONDS = pl.col("itl_seconds_count"), pl.col("itl_seconds_sum")
_FIRST = pl.col("ttft_seconds_count")
_SECONDS, _FORWARD_PASSES = pl.col("duration_seconds"), pl.col("forward_passes")
_USAGE, _PREEMPTIONS = pl.col("kv_cache_usage_ratio"), pl.col("preemptions_total")
_ITL = _TOKEN_SECONDS / _TOKENS
_FIRST_TOKENS = pl.col("ttft_seconds_count").fill_null(0.0)
_REQUESTS = (_TOKENS + _FIRST_TOKENS) / _FORWARD_PASSES


def _holds(condition: pl.Expr) -> pl.Expr:
    """True where it is known to hold."""
    return condition.fill_null(pl.lit(value=False))


def _computed_prompts() -> pl.Expr:
    """Prompt tokens that were computed."""
    # older pages count hits in blocks: a share of them is one of tokens, whatever the unit
    queries = pl.col("prefix_cache_queries_total")
    missed_share = 1.0 - pl.col("prefix_cache_hits_total") / queries
    return pl.coalesce(
        "prompt_tokens_computed_total",
        pl.when(queries > 0).then(pl.col("prompt_tokens_total") * missed_share.clip(0.0, 1.0)),
        "prompt_tokens_total",
    )


def _why() -> pl.Expr:
    """Why the load of a minute is not known: an index into :data:`WHY_NOT`."""
    reasons = (
        (~_holds(pl.col("scrapes") > 0) | ~_holds(_SECONDS > 0), UNSEEN),
        (pl.col("forward_passes_overcounted"), OVERCOUNTED),
        (_FORWARD_PASSES.is_null(), NO_PASSES),
        (_TOKENS.is_null() | _TOKEN_SECONDS.is_null(), NO_ITL),
        ((_FIRST > 0) & (pl.col("generation_tokens_total") == 0), POOLING),
        ((_FIRST >= MIN_TOKENS) & (_TOKENS == 0), ONE_TOKEN),
        ((_TOKENS < MIN_TOKENS) | (_FORWARD_PASSES <= 0) | (_TOKEN_SECONDS <= 0), IDLE),
        (_USAGE.is_null(), NO_USAGE),
        (_computed_prompts().is_null(), NO_PROMPTS),
        (_PREEMPTIONS > 0, PREEMPTING),
    )
    first = pl.coalesce(*(pl.when(holds).then(code) for holds, code in reasons), COMPLETE)
    return first.cast(pl.Int8)


def _computed_again() -> pl.Expr:
    """Tokens per pass that preempted requests made the engine compute again, at most."""
    # The newest is preempted first, so that what it holds is below the mean; cache hits save more.
    tokens = _USAGE * pl.col("kv_cache_tokens") / _REQUESTS
    again = _PREEMPTIONS * tokens / _FORWARD_PASSES
    return pl.when(_why() == PREEMPTING).then(again).otherwise(0.0)


def _changed() -> pl.Expr:
    """What changed in the minute: 1 a knob or the release, 2 a restart."""
    knob, release = pl.col("configuration_changed"), pl.col("release_changed")
    return (
        pl.when(_holds(pl.col("restarted")))
        .then(RESTARTED)
        .when(_holds(knob) | _holds(release))
        .then(CONFIGURATION)
        .otherwise(0.0)
    )


def _queued() -> pl.Expr:
    """Mean wait in the queue in units of ITL; without its histogram the most that it can be."""
    waited = (pl.col("queue_seconds_sum") / pl.col("queue_seconds_count")).fill_nan(0.0)
    # the first token comes after the wait and one pass or more
    most = (pl.col("ttft_seconds_sum") / _FIRST).fill_nan(0.0) - _ITL
    return (pl.coalesce(waited, most) / _ITL).clip(0.0).fill_null(0.0)


def _stands() -> pl.Expr:
    """1 where a queue stands or the batch is full; UNFILLED where passes are not on the page."""
    waits = (_queued() >= _STANDING_PASSES) & (pl.col("waiting_requests") >= _STANDING_REQUESTS)
    full = pl.col("running_requests") >= _FULL_RATIO * pl.col("max_num_seqs")
    filled = _ITL * _FORWARD_PASSES / _SECONDS >= _ALL_PASSES_RATIO
    return (
        pl.when(_holds(waits & filled) | _holds(full))
        .then(1.0)
        .when(_holds(waits))
        .then(UNFILLED)
        .otherwise(0.0)
    )


def _usable() -> pl.Expr:
    """No limit binds with the SLO missed, and the engine is not stuck."""
    binds = pl.col("limit_binding_share_10m_ratio").fill_null(0.0) >= 0.5
    stuck = pl.col("seconds_since_last_token").fill_null(0.0) > 60.0
    return ~(_holds(pl.col("slo_missed")) & binds) & ~stuck


def features(values: npt.NDArray[np.floating], *, of_passes: bool = False) -> Floats:
    """The covariates of the model: 1, requests, KV tokens, prefill tokens; shape (..., 4).

    ``of_passes``: means over passes instead of over tokens.
    """
    wide = np.asarray(values, dtype=np.float64)
    overlap = wide[..., OVERLAP]
    one = np.ones(wide.shape[:-1])
    kv = wide[..., USAGE] * wide[..., CACHE]
    if of_passes:
        return np.stack((one, wide[..., REQUESTS], kv, wide[..., PREFILL]), axis=-1)
    crowd = np.maximum(1.0, overlap) ** 2
    return np.stack((one, wide[..., REQUESTS] * crowd, kv, wide[..., PREFILL] * overlap), axis=-1)
