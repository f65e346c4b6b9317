"""max_num_seqs, inferred from the plateau of running requests while others wait.

No metric shows the cap. While requests wait and the KV cache is free, as many run as the cap
allows, or a few less: vLLM sets the gauge after finished requests have left. A server bound by its
token budget wanders, so scrapes that fill a known budget are left out. Where the budget is unknown,
a small level must be held exactly. Where steps could fill a budget, 40 % of the scrapes must show
the top two levels, with steps of differing size that are near no power of two.

The inferred value caps *running* requests: it is max_num_active_seqs where that is set lower.
"""

from __future__ import annotations

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.diagnose.limits import (
    BUDGET_FULL_RATIO,
    CAP_BAND_RATIO,
    KV_PRESSED_RATIO,
    PLATEAU_MIN_SPARSE_SCRAPES,
    ROOM_REQUESTS,
    kv_has_room,
)
from driftwatch.signals.windows import MinuteWindows

# Scrapes that rule out chance: a level that wanders over two values of equal chance stays on one
# for 8 scrapes in 0.4 % of cases.
PLATEAU_MIN_SCRAPES = 8
PLATEAU_SPARSE_SCRAPES = 12
PLATEAU_SPARSE_SPAN_SECONDS = 480
# At a cap 76 of 76 queued scrapes of run_cap are in the band; a server bound by its budget is
# mostly outside of it.
PLATEAU_SHARE = 0.8
# Where the budget is unknown and could be full: with Poisson(1) requests leaving a step (S = mean
# generation length) the top two levels hold 74 % of scrapes, with Poisson(2) 41 %; a level that
# wanders with a standard deviation of 3 or more keeps under 15 % there.
PLATEAU_TOP_SHARE = 0.4
# Below 20 requests the band is two levels wide, and a budget that lets one or two requests run
# never leaves it: there the top itself must be held. At a cap a slot is free in one step per tokens
# of a generation (run_cap at 8 shows its top in 79 % of scrapes).
PLATEAU_EXACT_BELOW_REQUESTS = 20
PLATEAU_EXACT_SHARE = 0.6
PLATEAU_FREED_PER_REQUEST = 0.05
# vLLM's defaults begin at 2048; a smaller budget than this is not expected
SMALLEST_BUDGET_TOKENS = 256.0
# A full budget shows steps of about B tokens, and B is a power of two nearly everywhere.
POWER_OF_TWO_BAND = 0.05
# Full steps have the same size from scrape to scrape (within 0.1 % for equal requests); at a cap
# their size follows the mix of prompts and decodes (1 to 3 % and more).
FULL_STEP_SPREAD = 0.005


def shown_caps(recent: pl.DataFrame, new: pl.DataFrame, serving: pl.DataFrame) -> pl.Series:
    """The cap that the ten minutes up to each new minute show, row for row; NULL = none.

    Queued scrapes wait for capacity, with KV below 0.85 and no preemption. If there are enough of
    them and PLATEAU_SHARE of them lie in the band below their maximum, the maximum is the cap.

    ``recent``: minute rows by target and end, the new ones and those of ten minutes before;
    ``new``: instance, engine, end; ``serving``: instance, engine, max_num_batched_tokens (NULL =
    unknown).
    """
    nothing = pl.repeat(None, len(new), dtype=pl.Float64, eager=True)
    if not (recent["queued_second"].list.len() > 0).any():
        return nothing
    grid = new.select(*KEY, "end", start=pl.col("end") - pl.duration(minutes=1))
    windows = MinuteWindows(recent)
    spans = windows.spans(grid, 10, cut=True)
    shown = _candidates(
        windows.queued(spans), windows.of_minutes(spans, ("scrapes",)), grid, serving
    )
    return nothing.scatter(shown["window"], shown["candidate"]) if len(shown) else nothing


def _candidates(
    queued: pl.DataFrame, minutes: pl.DataFrame, grid: pl.DataFrame, serving: pl.DataFrame
) -> pl.DataFrame:
    """window → the level of its plateau; windows without one are left out."""
    waiting = _waiting(queued, grid, serving)
    top = pl.col("running").max()
    in_band = pl.col("running") >= pl.min_horizontal(CAP_BAND_RATIO * top, top - 1)
    # where scrapes are a minute apart, ten minutes have at most ten: five are enough
    spans = minutes.group_by("window").agg(
        looked=pl.col("scrapes").sum(),
        span_seconds=60.0 * (pl.col("scrapes") > 0).sum(),
    )
    sparse = (pl.col("looked") <= PLATEAU_SPARSE_SCRAPES) & (
        pl.col("span_seconds") >= PLATEAU_SPARSE_SPAN_SECONDS
    )
    enough = pl.when(sparse).then(PLATEAU_MIN_SPARSE_SCRAPES).otherwise(PLATEAU_MIN_SCRAPES)
    return (
        waiting.group_by("window", maintain_order=True)
        .agg(
            level=top,
            share=in_band.mean(),
            top_share=(pl.col("running") >= top - 1).mean(),
            exact_share=(pl.col("running") == top).mean(),
            queued=pl.len(),
            tokens=pl.col("tokens_per_step").median(),
            tokens_low=pl.col("tokens_per_step").quantile(0.1),
            tokens_high=pl.col("tokens_per_step").quantile(0.9),
            budget=pl.col("budget").first(),
        )
        .join(spans, on="window", how="left", maintain_order="left")
        .filter(
            (pl.col("queued") >= enough)
            & (pl.col("share") >= PLATEAU_SHARE)
            & (pl.col("level") >= 1)
            & _is_held()
            & ~_may_be_the_budget()
        )
        .select("window", candidate="level")
    )


def scrapes_at_most(new: pl.DataFrame, serving: pl.DataFrame) -> pl.Series:
    """How many scrapes of each new minute show requests that wait for a slot while the minute's
    most run; 0 for few requests, or where the token budget is unknown.

    Only bursts fill a large cap: no ten minutes are a plateau, and the same maximum returns.
    """
    none = pl.repeat(0.0, len(new), dtype=pl.Float64, eager=True)
    if not (new["queued_second"].list.len() > 0).any():
        return none
    windows = MinuteWindows(new)
    queued = windows.queued(windows.spans(new.select(*KEY, "end", start="end"), 1, cut=False))
    most = new.with_row_index("window").select("window", most="running_requests_max")
    found = (
        _waiting(queued, new, serving)
        .join(most, on="window", how="left", maintain_order="left")
        .filter(
            pl.col("budget").is_not_null(),
            pl.col("running") >= PLATEAU_EXACT_BELOW_REQUESTS,
            pl.col("running") == pl.col("most"),
        )
        .group_by("window", maintain_order=True)
        .agg(scrapes=pl.len().cast(pl.Float64))
    )
    return none.scatter(found["window"], found["scrapes"]) if len(found) else none


def _waiting(queued: pl.DataFrame, grid: pl.DataFrame, serving: pl.DataFrame) -> pl.DataFrame:
    """Scrapes in which requests wait for a slot, with ``budget``; a repeated one says no more."""
    budgets = grid.select(KEY).join(
        serving.select(*KEY, budget="max_num_batched_tokens"),
        on=KEY,
        how="left",
        maintain_order="left",
    )
    own = queued.filter(~pl.col("repeats").fill_null(False)).join(
        budgets.with_row_index("window").select("window", "budget"),
        on="window",
        how="left",
        maintain_order="left",
    )
    return own.filter(_waits_for_a_slot())


def _waits_for_a_slot() -> pl.Expr:
    """Requests of the scrape wait neither for the KV cache nor for the token budget."""
    fullness = pl.col("tokens_per_step") / pl.col("budget")
    return (
        (pl.col("kv") < KV_PRESSED_RATIO)
        & kv_has_room(ROOM_REQUESTS)
        & (pl.col("preempted").fill_null(0.0) == 0)
        & pl.col("running").is_not_null()
        & (fullness < BUDGET_FULL_RATIO).fill_null(True)
    )


def _is_held() -> pl.Expr:
    """Enough scrapes show the level itself to rule out chance."""
    wanted = pl.max_horizontal(PLATEAU_EXACT_SHARE, 1 - PLATEAU_FREED_PER_REQUEST * pl.col("level"))
    return (
        pl.col("budget").is_not_null()
        | (pl.col("level") >= PLATEAU_EXACT_BELOW_REQUESTS)
        | (pl.col("exact_share") >= wanted)
    )


def _may_be_the_budget() -> pl.Expr:
    """An unknown budget may hold the level: steps look full, or the level wanders."""
    tokens = pl.col("tokens")
    nearest = pl.lit(2.0).pow(tokens.log(2.0).round())
    spread = (pl.col("tokens_high") - pl.col("tokens_low")) / tokens
    looks_full = ((tokens / nearest - 1).abs() < POWER_OF_TWO_BAND) | (spread < FULL_STEP_SPREAD)
    could_be_full = (
        pl.col("budget").is_null() & (tokens >= BUDGET_FULL_RATIO * SMALLEST_BUDGET_TOKENS)
    ).fill_null(False)
    return could_be_full & (looks_full | (pl.col("top_share") < PLATEAU_TOP_SHARE))
