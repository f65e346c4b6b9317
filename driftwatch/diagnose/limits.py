"""The limits model: which limit binds in a window.

Source: vLLM 0.32 ``v1/core/sched/scheduler.py``: a request waits for capacity only when the
sequence cap, the token budget or the KV blocks stop the admission loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl
import polars.selectors as cs

# running >= min(0.95 S, S - 1) counts as at the cap
CAP_BAND_RATIO = 0.95
# Under hard thrash usage oscillates between 0.74 and 1. Preemptions show pressure at any usage.
KV_PRESSED_RATIO = 0.85
# With a budget of 256 full steps show means of 199 to 257 tokens, as some steps only decode.
BUDGET_FULL_RATIO = 0.75
# A step full of prompts takes at least twice as long as one that decodes: a third of the steps is
# about half of the time, and then a limit binds (BINDING_SHARE).
FULL_STEPS_SHARE = 1 / 3
# "well below S", "KV low": half of the cap or of the cache
NOT_NEAR_RATIO = 0.5
# "Room": for this many more requests like the running ones. A prompt that does not fit waits
# although half of the cache is free.
ROOM_REQUESTS = 4
# Requests that begin in a step. With fewer, less than 40 % of scrapes (1 - exp(-0.5)) show requests
# that came during a step: too few to be taken for a limit that binds.
MIN_FIRST_TOKENS_PER_STEP = 0.5
# At m requests a step, a queue of m + 2 sqrt(m) takes three steps (m = 1; four for m = 0.5).
# A wait of a second pages (BatchLimitBinding), so three steps must fit into a second.
MIN_STEPS_PER_SECOND = 3.0
# At one scrape a minute, a limit that binds in half of ten minutes shows in five scrapes. Five
# within the band over eight minutes or more are chance once in 16 cases, with two values.
PLATEAU_MIN_SPARSE_SCRAPES = 5
# A limit binds from this share of a window's scrapes on.
BINDING_WINDOW_SECONDS = 600.0
BINDING_SHARE = 0.5
# A steady level from this many running requests on looks like an unknown cap. Fewer stay within the
# band when they go up or down by one.
LEVEL_LEAST_REQUESTS = 8
# From here on BatchLimitBinding pages a limit that has no name (rules/batch-limits.yaml).
BINDING_ALWAYS = 0.95
# BatchLimitBinding ends below a quarter (rules/batch-limits.yaml): until then a limit explains a
# missed target if most of the TTFT is waiting.
BINDING_SHARE_AT_A_COST = 0.25
# "most of the TTFT"
WAITING_SHARE = 0.5

SEQS, BUDGET, KV = "max_num_seqs", "max_num_batched_tokens", "kv_cache"
DEFERRED, NONE = "deferred", "none"
_UNKNOWN, _STALLED = "unknown", "stalled"


def binding_of_scrape() -> pl.Expr:
    """Which limit binds in one scrape (String).

    Reads ``running``, ``capacity``, ``kv``, ``preempted``, ``tokens_per_step``,
    ``first_tokens_per_step``, ``steps_per_second``, ``stalled``, ``several_api_servers`` and the
    settings ``max_num_seqs``, ``max_num_seqs_inferred``, ``max_num_batched_tokens``,
    ``api_server_count``.

    "unknown": requests wait for capacity, so a batch limit binds, but inputs are missing or no
    configured setting explains it. "stalled": requests run and no token came since the scrape
    before, which is no batch limit. NULL: unknown whether any request waits.
    """
    cap = pl.col("max_num_seqs")
    at_cap = pl.col("running") >= pl.min_horizontal(CAP_BAND_RATIO * cap, cap - 1)
    kv_pressed = (pl.col("preempted") > 0) | (pl.col("kv") >= KV_PRESSED_RATIO)
    full = _tokens_per_step() / pl.col("max_num_batched_tokens") >= BUDGET_FULL_RATIO
    budget_full = pl.when(full | _steps_known()).then(full)
    inferred = pl.col("max_num_seqs_inferred").fill_null(False)
    return (
        pl.when(pl.col("capacity").is_null())
        .then(None)
        .when(pl.col("capacity") <= _waiting_for_a_step())
        .then(pl.lit(NONE))
        .when(pl.col("stalled").fill_null(False))
        .then(pl.lit(_STALLED))
        .when(kv_pressed.fill_null(False))
        .then(pl.lit(KV))
        .when(kv_pressed.is_null() & pl.col("kv").is_null())
        .then(pl.lit(_UNKNOWN))
        # a budget seen full is certain; a cap inferred from a plateau is not
        .when(budget_full.fill_null(False) & inferred)
        .then(pl.lit(BUDGET))
        .when(at_cap.fill_null(False) & ~inferred)
        .then(pl.lit(SEQS))
        .when(budget_full.fill_null(False))
        .then(pl.lit(BUDGET))
        .when((~kv_has_room(1) & (pl.col("running") > 0)).fill_null(False))
        .then(pl.lit(KV))
        .when(at_cap.fill_null(False))
        .then(pl.lit(SEQS))
        .otherwise(pl.lit(_UNKNOWN))
    )


def kv_has_room(requests: int) -> pl.Expr:
    """The KV cache has blocks for ``requests`` more requests like the running ones."""
    return pl.col("kv") * (pl.col("running") + requests) <= pl.col("running")


def _waiting_for_a_step() -> pl.Expr:
    """Up to how many requests may just be waiting for the next step."""
    of_a_step = pl.col("first_tokens_per_step").fill_null(0.0)
    most = _at_most(of_a_step)
    short = (pl.col("steps_per_second") > MIN_STEPS_PER_SECOND).fill_null(False)
    alone = (of_a_step >= MIN_FIRST_TOKENS_PER_STEP) & ~(pl.col("preempted") > 0).fill_null(False)
    return pl.when(alone & short).then(most).otherwise(0.0)


def _at_most(mean: pl.Expr) -> pl.Expr:
    """Two standard deviations above a Poisson mean."""
    return mean + 2 * mean.sqrt()


def _steps_known() -> pl.Expr:
    return (
        ~pl.col("several_api_servers").fill_null(False) | pl.col("api_server_count").is_not_null()
    )


def _tokens_per_step() -> pl.Expr:
    return pl.col("tokens_per_step") * pl.col("api_server_count").fill_null(1.0)


def _full_steps() -> pl.Expr:
    """Share q of full steps: the mean step has ``q * budget + (1 - q) * running`` tokens."""
    budget, running = pl.col("max_num_batched_tokens"), pl.col("running")
    full = (_tokens_per_step() - running) / (budget - running)
    return pl.when(budget > running).then(full)


def _only_the_budget() -> pl.Expr:
    """Scrapes whose requests can wait only for the budget, though the mean step is not full."""
    far = (
        (pl.col("running") <= NOT_NEAR_RATIO * pl.col("max_num_seqs"))
        & ~pl.col("max_num_seqs_inferred").fill_null(False)
        & (pl.col("kv") <= NOT_NEAR_RATIO)
    )
    full = (_full_steps() >= FULL_STEPS_SHARE) & _steps_known()
    return ((pl.col("limit") == _UNKNOWN) & far & full).fill_null(False)


def _by_elimination() -> pl.Expr:
    """The limit of an unknown scrape by elimination: a request waits for capacity only because of
    the cap, the KV cache or the budget.
    """
    running, cap, kv = pl.col("running"), pl.col("max_num_seqs"), pl.col("kv")
    leaving = _at_most(pl.col("first_tokens_per_step")).ceil()
    near = running >= pl.max_horizontal(cap - leaving, NOT_NEAR_RATIO * cap)
    reached = pl.coalesce(cap, "running_max")  # the cap is no smaller
    below = pl.min_horizontal(CAP_BAND_RATIO * reached, reached - 1, reached - leaving)
    half = running <= NOT_NEAR_RATIO * reached
    far = pl.when(leaving.is_null()).then(half).otherwise(running < below)
    kv_free = (kv <= NOT_NEAR_RATIO) & kv_has_room(ROOM_REQUESTS)
    kv_free &= pl.col("preempted").fill_null(0.0) == 0
    few = (_full_steps() < FULL_STEPS_SHARE) & _steps_known()
    many = _full_steps() >= FULL_STEPS_SHARE
    budget_unknown = pl.col("max_num_batched_tokens").is_null()
    return (
        pl.when(pl.col("limit") != _UNKNOWN)
        .then("limit")
        .when((near & kv.is_not_null() & (few | budget_unknown)).fill_null(False))
        .then(pl.lit(SEQS))
        .when((far & kv_free & (many | budget_unknown)).fill_null(False))
        .then(pl.lit(BUDGET))
        .otherwise("limit")
    )


def limit_columns(
    queued: pl.DataFrame, minutes: pl.DataFrame, serving: pl.DataFrame
) -> pl.DataFrame:
    """Which limit binds, per window.

    ``queued``: the scrapes in which requests wait for capacity
    (:meth:`driftwatch.signals.windows.MinuteWindows.queued`); ``minutes``: ``window``, ``end`` and
    :data:`driftwatch.minutes.schema.COUNTS` of each minute; ``serving``: per ``window``:
    max_num_seqs, max_num_seqs_inferred, max_num_batched_tokens, api_server_count,
    several_api_servers, and ``running_max`` since the process began.
    Returns: window, ``limit_binding_share_10m_ratio``, ``waiting_deferred_share_10m_ratio``,
    ``binding_limit``, ``queue_limit`` (the limit in most of the binding scrapes, however few;
    by elimination where no setting shows it), ``scrapes_10m``; of the binding scrapes the means
    ``binding_running_requests``, ``binding_waiting_requests`` (for capacity), their sum
    ``binding_requests`` and ``binding_kv_cache_usage_ratio``; ``binding_since`` (where their run
    began, :func:`_began`); ``deferred_since`` likewise of the scrapes with deferred requests;
    ``capacity_mean`` (waiting for capacity, over all scrapes).
    """
    joined = queued.join(serving, on="window", how="left", maintain_order="left")
    return _counted(joined, minutes).select(_BINDING)


def _binding() -> list[pl.Expr]:
    share = pl.when(pl.col("n") > 0).then(pl.col("bound") / pl.col("n"))
    named = _named("seqs", "budget", "kv_bound", "unknown")
    # where two limits take turns, neither is named: changing one would not help
    rest = ("seqs_left", "budget_left", "kv_bound")
    alone = 3 * pl.max_horizontal(rest) >= 2 * pl.sum_horizontal(rest)
    deferred_share = pl.when(pl.col("deferred_n") > 0).then(
        pl.col("deferred") / pl.col("deferred_n")
    )
    limit = (
        pl.when(pl.col("n") == 0)
        .then(None)
        .when(share >= BINDING_SHARE)
        .then(named)
        .when(deferred_share.fill_null(0.0) >= BINDING_SHARE)
        .then(pl.lit(DEFERRED))
        .otherwise(pl.lit(NONE))
    )
    likeliest = pl.coalesce(named, pl.when(alone).then(_named(*rest, "unknown_left")))
    return [
        pl.col(
            "window",
            "binding_requests",
            "binding_running_requests",
            "binding_waiting_requests",
            "binding_kv_cache_usage_ratio",
            "binding_since",
            "deferred_since",
            "capacity_mean",
        ),
        pl.col("n").cast(pl.Float64).alias("scrapes_10m"),
        share.alias("limit_binding_share_10m_ratio"),
        deferred_share.alias("waiting_deferred_share_10m_ratio"),
        limit.alias("binding_limit"),
        pl.when(pl.col("bound") > 0).then(likeliest).alias("queue_limit"),
    ]


def _counted(queued: pl.DataFrame, minutes: pl.DataFrame) -> pl.DataFrame:
    """Per window: the number of scrapes in which each limit binds, and their means."""
    judged = queued.with_columns(limit=binding_of_scrape()).with_columns(left=_by_elimination())
    batch = pl.col("limit").is_in([SEQS, BUDGET, KV, _UNKNOWN])
    of_queued = judged.group_by("window", maintain_order=True).agg(
        bound=batch.sum(),
        seqs=(pl.col("limit") == SEQS).sum(),
        budget=(pl.col("limit") == BUDGET).sum(),
        kv_bound=(pl.col("limit") == KV).sum(),
        unknown=(pl.col("limit") == _UNKNOWN).sum(),
        seqs_left=(pl.col("left") == SEQS).sum(),
        budget_left=(pl.col("left") == BUDGET).sum(),
        level=~_wanders(batch) & (pl.col("running_max_10m").max() >= LEVEL_LEAST_REQUESTS),
        unknown_left=(pl.col("left") == _UNKNOWN).sum(),
        full=pl.when(_wanders(batch)).then(_only_the_budget().sum()).otherwise(0),
        binding_requests=(pl.col("running") + pl.col("capacity")).filter(batch).mean(),
        binding_running_requests=pl.col("running").filter(batch).mean(),
        binding_waiting_requests=pl.col("capacity").filter(batch).mean(),
        binding_kv_cache_usage_ratio=pl.col("kv").filter(batch).mean(),
    )
    bound = (
        judged.filter(batch)
        .group_by("window", "row", maintain_order=True)
        .agg(held=pl.len(), since=pl.col("time").first())
    )
    known, deferred = pl.col("scrapes_queue_known"), pl.col("scrapes_deferred")
    of_minutes = minutes.join(bound, on=["window", "row"], how="left", maintain_order="left")
    start = (pl.col("end") - pl.duration(minutes=1)).dt.epoch("us") / 1e6
    counts = of_minutes.group_by("window", maintain_order=True).agg(
        n=known.sum(),
        deferred_n=pl.col("scrapes_deferred_known").sum(),
        deferred=deferred.sum(),
        capacity_mean=pl.when(known.sum() > 0).then(
            pl.col("waiting_for_capacity_sum").sum() / known.sum()
        ),
        binding_since=_began(pl.col("held"), known, pl.col("since")),
        deferred_since=_began(deferred, pl.col("scrapes_deferred_known"), start),
    )
    counts = counts.join(of_queued, on="window", how="left", maintain_order="left").with_columns(
        cs.integer().fill_null(0), pl.col("level").fill_null(False)
    )
    # the cause of a steady level may be an unknown cap
    level = pl.when("level").then("budget_left").otherwise(0)
    return counts.with_columns(
        budget=pl.col("budget") + pl.col("full"),
        unknown=pl.col("unknown") - pl.col("full"),
        budget_left=pl.col("budget_left") - level,
        unknown_left=pl.col("unknown_left") + level,
        **{
            name: (pl.col(name) * 1e6).round().cast(pl.Int64).cast(pl.Datetime("us", "UTC"))
            for name in ("binding_since", "deferred_since")
        },
    )


def _began(held: pl.Expr, known: pl.Expr, since: pl.Expr) -> pl.Expr:
    """When requests began to be held back: from then on at least half of the scrapes show it.

    ``held``, ``known``: scrapes of each minute; ``since``: its first held one, unix seconds.
    """
    held, known = held.fill_null(0).cast(pl.Int64), known.fill_null(0).cast(pl.Int64)
    n, most = known.sum(), held.sum()
    score = 2 * n * held - pl.min_horizontal(n, 2 * most) * known
    from_here = score.cum_sum(reverse=True)
    return since.filter(held > 0).get(from_here.filter(held > 0).arg_max(), null_on_oob=True)


def _wanders(batch: pl.Expr) -> pl.Expr:
    """The number of running requests wanders over the scrapes in which a batch limit binds."""
    own = batch & ~pl.col("repeats").fill_null(False)  # repeats show no level
    top = pl.col("running").filter(own).max()
    at_top = (pl.col("running") >= pl.min_horizontal(CAP_BAND_RATIO * top, top - 1)).filter(own)
    return (at_top.mean() < BINDING_SHARE) & (own.sum() >= PLATEAU_MIN_SPARSE_SCRAPES)


def _named(seqs: str, budget: str, kv: str, unknown: str) -> pl.Expr:
    """The limit that binds in most of the binding scrapes; NULL where it is unknown in most."""
    most = pl.max_horizontal(seqs, budget, kv)
    return (
        pl.when(pl.col(unknown) > most)
        .then(None)
        # a tie goes to the KV cache: a higher max_num_seqs would make it worse
        .when(pl.col(kv) == most)
        .then(pl.lit(KV))
        .when(pl.col(seqs) == most)
        .then(pl.lit(SEQS))
        .otherwise(pl.lit(BUDGET))
    )


def final_binding_limit() -> pl.Expr:
    """``binding_limit``; while a target is missed a quarter of the scrapes is enough.

    Bursts may fill a batch for only a part of the ten minutes. The limit is still the cause while a
    target is missed (TTFT's at least as often as TPOT's) and most of the TTFT is waiting. A limit
    that no setting explains is named by elimination if a target is missed or it binds in nearly
    every scrape; a harmless burst of prompts gets no name. NULL where the limit is unknown. Reads
    ``binding_limit``, ``queue_limit``, ``limit_binding_share_10m_ratio``, ``slo_missed``,
    ``batch_assembly_wait_10m_seconds``, ``ttft_10m_seconds``, ``ttft_in_target_10m_ratio``,
    ``tpot_in_target_10m_ratio``.
    """
    ttft, tpot = pl.col("ttft_in_target_10m_ratio"), pl.col("tpot_in_target_10m_ratio")
    share = pl.col("limit_binding_share_10m_ratio")
    costs = (
        pl.col("slo_missed")
        & (tpot.is_null() | (ttft <= tpot).fill_null(False))
        & (share >= BINDING_SHARE_AT_A_COST)
        & waits_are_most(WAITING_SHARE)
    ).fill_null(False)
    missed = pl.col("slo_missed").fill_null(False)
    always = (share >= BINDING_ALWAYS).fill_null(False)
    unnamed = pl.col("binding_limit").is_null() & (share >= BINDING_SHARE).fill_null(False)
    return (
        pl.when(((pl.col("binding_limit") == NONE) & costs) | (unnamed & (missed | always)))
        .then(pl.col("queue_limit"))
        .otherwise(pl.col("binding_limit"))
        .alias("binding_limit")
    )


def waits_are_most(share: float) -> pl.Expr:
    """Waiting makes at least ``share`` of the TTFT (waits of finished, TTFTs of begun requests)."""
    wait, ttft = pl.col("batch_assembly_wait_10m_seconds"), pl.col("ttft_10m_seconds")
    return pl.when(ttft > 0).then(wait >= share * ttft)


_BINDING = _binding()


def contradictions(row: Mapping[str, Any]) -> dict[str, str]:
    """Configured settings that an evidence row contradicts → how."""
    found = {}
    if row.get("max_num_batched_tokens_exceeded"):
        found[BUDGET] = f"steps took up to {row['step_tokens_max_of_process']:,.0f} tokens"
    most = row.get("running_requests_max_of_process") or 0.0
    if most > (row.get("max_num_seqs_configured") or math.inf):
        found[SEQS] = f"up to {most:.0f} requests ran at once"
    return {
        name: f"configured {row[f'{name}_configured']:.0f}, but {fact} since the start: "
        "the file is out of date"
        for name, fact in found.items()
    }
