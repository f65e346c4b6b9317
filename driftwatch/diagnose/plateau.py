"""max_num_seqs, inferred from the plateau of running requests while others wait.

No metric has the cap. While requests wait and the KV cache is free, as many run as it allows, or a
little less: the gauge is read after finished requests have left. A server bound by its token budget
runs at a level that wanders; scrapes that fill a known budget are left out. Where the budget is
unknown, a small level must be held exactly, and where a step could fill one, half of the scrapes
must be at the very top, with steps near no power of two and not always the same.

Inferred is the cap on *running* requests: max_num_active_seqs where that is set lower.
"""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.diagnose.limits import (
    BUDGET_FULL_RATIO,
    CAP_BAND_RATIO,
    KV_PRESSED_RATIO,
    PLATEAU_MIN_SPARSE_SCRAPES,
)
from driftwatch.signals.continuity import MAX_GAP_SECONDS, at_end, keys
from driftwatch.signals.facts import inside

# A plateau must be seen often enough not to be chance: with 8 scrapes, a level that wandered over
# two values of equal chance would stay in a band of one in 0.4 % of cases.
PLATEAU_MIN_SCRAPES = 8
PLATEAU_SPARSE_SCRAPES = 12
PLATEAU_SPARSE_SPAN_SECONDS = 480
# At a cap 76 of 76 queued scrapes of run_cap are in the band; bound by its budget a server leaves
# it in most.
PLATEAU_SHARE = 0.8
# Where the budget is unknown and could be full: with leavers ~ Poisson(1) (S = mean generation
# length) the top two levels hold 74 % of scrapes, with Poisson(2) 41 %; a level that wanders with a
# standard deviation of 3 or more keeps under 15 % there.
PLATEAU_TOP_SHARE = 0.4
# Below 20 requests the band is two levels wide, and a budget that lets one or two requests run
# stays in it for good: there the top itself must be held. At a cap a step frees one place in as
# many as a generation has tokens (run_cap at 8 shows its top in 79 % of scrapes).
PLATEAU_EXACT_BELOW_REQUESTS = 20
PLATEAU_EXACT_SHARE = 0.6
PLATEAU_FREED_PER_REQUEST = 0.05
# vLLM's defaults begin at 2048; nobody sets less than this
SMALLEST_BUDGET_TOKENS = 256.0
# A full budget shows steps of just about B tokens, and B is a power of two nearly everywhere.
POWER_OF_TWO_BAND = 0.05
# Tokens a step of a full budget are the same from scrape to scrape (within 0.1 % for equal
# requests); at a cap they follow the mix of prompts and decodes (1 to 3 % and more).
FULL_STEP_SPREAD = 0.005

_NONE = pl.lit(None, dtype=pl.Float64)

CARRIED_SCHEMA: dict[str, type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "plateau": pl.Float64,
    "running_max": pl.Float64,
}


def infer_max_num_seqs(
    facts: pl.DataFrame,
    windows: pl.DataFrame,
    carried: pl.DataFrame,
    carried_until: pl.Expr | None = None,
    budgets: pl.DataFrame | None = None,
    pairs: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """The cap as far as it shows at each window's end.

    A window whose queued scrapes (waiting for capacity, KV below 0.85, no preemption) number at
    least PLATEAU_MIN_SCRAPES and lie to PLATEAU_SHARE within the band under their maximum shows
    that maximum as the cap, unless the epoch has seen more running at once. A cap once seen holds
    until a restart or knob change (epoch) or until more requests run than it allows.

    ``facts``: from ``scrape_facts``, sorted by target and time; ``windows``: instance, engine,
    start, end; ascending ``end`` within a target; ``carried``: :data:`CARRIED_SCHEMA`, what an
    earlier evaluation of the same targets knew; ``carried_until``: end of that evaluation (a
    datetime literal); None = nothing carried; ``budgets``: instance, engine, max_num_batched_tokens
    (NULL = unknown) of the targets; ``pairs``: ``inside(facts, windows)`` where that was made
    already.
    Returns: the windows' instance, engine, end with ``plateau`` (NULL = not shown) and
    ``running_max`` (since the epoch began).
    """
    by = keys(facts)
    before = _carried_epoch(facts, carried, carried_until)
    levels = (
        facts.select(*by, "time", "epoch", "running")
        .join(before, on=[*by, "epoch"], how="left", maintain_order="left")
        .with_columns(
            running_max=pl.max_horizontal(
                pl.col("running").cum_max().forward_fill().over([*by, "epoch"]),
                "carried_running_max",
            )
        )
        .select([*by, "time", "epoch", "running_max", "carried_plateau"])
    )
    # beyond the look-back the epoch is over, whether or not a scrape comes to begin the next one
    last = at_end(
        windows.select([*dict.fromkeys((*KEY, *by)), "start", "end"]),
        levels,
        tolerance=timedelta(seconds=MAX_GAP_SECONDS),
    )
    candidates = _candidates(inside(facts, windows) if pairs is None else pairs, budgets)
    rows = last.join(candidates, on="window", how="left").sort([*by, "end"])
    confirmed = pl.when(pl.col("candidate") == pl.col("running_max")).then(pl.col("candidate"))
    plateau = pl.coalesce(confirmed.forward_fill().over([*by, "epoch"]), pl.col("carried_plateau"))
    return (
        rows.with_columns(plateau=pl.when(plateau >= pl.col("running_max")).then(plateau))
        .sort("window")
        .select([*KEY, "end", "plateau", "running_max"])
    )


def _candidates(pairs: pl.DataFrame, budgets: pl.DataFrame | None) -> pl.DataFrame:
    """window → the level a plateau shows, where it shows one."""
    # a sample seen again says nothing new of a level that is held
    pairs = _with_budget(pairs.filter(~pl.col("repeats")), budgets)
    queued = pairs.filter(_waits_for_a_slot())
    top = pl.col("running").max()
    in_band = pl.col("running") >= pl.min_horizontal(CAP_BAND_RATIO * top, top - 1)
    at_top = pl.col("running") >= top - 1
    # where scrapes are a minute apart ten minutes hold no more than ten: five say as much there
    spans = pairs.group_by("window").agg(
        looked=pl.len(),
        span_seconds=(pl.col("time").max() - pl.col("time").min()).dt.total_seconds(),
    )
    sparse = (pl.col("looked") <= PLATEAU_SPARSE_SCRAPES) & (
        pl.col("span_seconds") >= PLATEAU_SPARSE_SPAN_SECONDS
    )
    enough = pl.when(sparse).then(PLATEAU_MIN_SPARSE_SCRAPES).otherwise(PLATEAU_MIN_SCRAPES)
    return (
        queued.group_by("window", maintain_order=True)
        .agg(
            level=top,
            share=in_band.mean(),
            top_share=at_top.mean(),
            exact_share=(pl.col("running") == top).mean(),
            scrapes=pl.len(),
            tokens=pl.col("tokens_per_step").median(),
            tokens_low=pl.col("tokens_per_step").quantile(0.1),
            tokens_high=pl.col("tokens_per_step").quantile(0.9),
            budget=pl.col("max_num_batched_tokens").first(),
        )
        .join(spans, on="window", how="left", maintain_order="left")
        .filter(
            (pl.col("scrapes") >= enough)
            & (pl.col("share") >= PLATEAU_SHARE)
            & (pl.col("level") >= 1)
            & _is_held()
            & ~_may_be_the_budget()
        )
        .select("window", candidate="level")
    )


def _with_budget(pairs: pl.DataFrame, budgets: pl.DataFrame | None) -> pl.DataFrame:
    """With max_num_batched_tokens of each target, NULL where nobody says it."""
    if budgets is None:
        return pairs.with_columns(max_num_batched_tokens=pl.lit(None, dtype=pl.Float64))
    by = keys(pairs)
    settings = budgets.select(*by, "max_num_batched_tokens")
    return pairs.join(settings, on=by, how="left", maintain_order="left")


def _waits_for_a_slot() -> pl.Expr:
    """Somebody waits at the scrape, and neither the KV cache nor the token budget is why."""
    fullness = pl.col("tokens_per_step") / pl.col("max_num_batched_tokens")
    return (
        (pl.col("capacity") > 0)
        & (pl.col("kv") < KV_PRESSED_RATIO)
        & (pl.col("preempted").fill_null(0.0) == 0)
        & pl.col("running").is_not_null()
        & (fullness < BUDGET_FULL_RATIO).fill_null(True)
    )


def _is_held() -> pl.Expr:
    """The level itself is seen often enough to be a cap and no chance."""
    wanted = pl.max_horizontal(PLATEAU_EXACT_SHARE, 1 - PLATEAU_FREED_PER_REQUEST * pl.col("level"))
    return (
        pl.col("budget").is_not_null()
        | (pl.col("level") >= PLATEAU_EXACT_BELOW_REQUESTS)
        | (pl.col("exact_share") >= wanted)
    )


def _may_be_the_budget() -> pl.Expr:
    """A budget that nobody says may be what holds the level: steps look full, or it wanders."""
    tokens = pl.col("tokens")
    nearest = pl.lit(2.0).pow(tokens.log(2.0).round())
    spread = (pl.col("tokens_high") - pl.col("tokens_low")) / tokens
    looks_full = ((tokens / nearest - 1).abs() < POWER_OF_TWO_BAND) | (spread < FULL_STEP_SPREAD)
    could_be_full = (
        pl.col("budget").is_null() & (tokens >= BUDGET_FULL_RATIO * SMALLEST_BUDGET_TOKENS)
    ).fill_null(False)
    return could_be_full & (looks_full | (pl.col("top_share") < PLATEAU_TOP_SHARE))


def _carried_epoch(
    facts: pl.DataFrame, carried: pl.DataFrame, until: pl.Expr | None
) -> pl.DataFrame:
    """What was carried, keyed by the epoch it still describes."""
    by = keys(facts)
    if until is None or carried.is_empty():
        return facts.select(*by, "epoch", carried_plateau=_NONE, carried_running_max=_NONE).clear()
    last_epoch = facts.filter(pl.col("time") < until).group_by(by).agg(epoch=pl.col("epoch").last())
    return last_epoch.join(carried, on=by).select(
        *by, "epoch", carried_plateau="plateau", carried_running_max="running_max"
    )
