"""How many requests each limit lets run at a window's lengths: a closed form."""

from __future__ import annotations

import polars as pl

from driftwatch.diagnose.limits import BUDGET, KV, SEQS
from driftwatch.signals.histograms import second_moment_over_mean


def with_allowances(rows: pl.DataFrame) -> pl.DataFrame:
    """How many requests each limit lets run at the window's lengths (closed form).

    N_seq = S; N_budget = B·E[G] / (E[P](1-h) + E[G]); N_kv = KV tokens / (E[PG]/E[G] +
    E[G²]/(2 E[G]) + half a block), residents being length-biased. Prompt and
    generation length are taken as independent, so E[PG]/E[G] = E[P].

    ``rows``: evidence rows with the histogram columns of
    :func:`driftwatch.signals.rows.base_columns`.
    Returns: the rows with ``allows_max_num_seqs``, ``allows_max_num_batched_tokens``,
    ``allows_kv_cache`` (requests, NULL = unknown) and ``binding_margin_ratio``.
    """
    residence = second_moment_over_mean(
        rows["generation_tokens_buckets"],
        rows["generation_tokens_edges"],
        rows["generation_tokens_mean"],
    )
    hit = pl.col("prefix_cache_hit_ratio").fill_null(0.0)
    prompt = pl.col("prompt_tokens_mean")
    # a pooling engine generates nothing: the closed form does not describe its batch
    generation = pl.when(pl.col("generation_tokens_mean") > 0).then("generation_tokens_mean")
    rows = rows.with_columns(
        # an answer without tokens holds only its prompt
        residence_tokens=pl.when(pl.col("generation_tokens_mean") == 0)
        .then(0.0)
        .otherwise(residence)
    ).with_columns(
        allows_max_num_seqs=pl.col("max_num_seqs"),
        allows_max_num_batched_tokens=pl.col("max_num_batched_tokens")
        * generation
        / (prompt * (1 - hit) + generation),
        allows_kv_cache=pl.col("kv_cache_tokens")
        / (prompt + pl.col("residence_tokens") / 2 + pl.col("kv_block_tokens").fill_null(0.0) / 2),
    )
    tightest = pl.min_horizontal(
        "allows_max_num_seqs", "allows_max_num_batched_tokens", "allows_kv_cache"
    )
    binds = pl.col("binding_limit").is_in([SEQS, BUDGET, KV])
    return rows.with_columns(
        # a limit that binds leaves no room, even if the closed form of mean lengths allows more
        binding_margin_ratio=pl.when(binds)
        .then(pl.when(tightest.is_not_null()).then(0.0))
        .otherwise((1 - pl.col("running_requests") / tightest).clip(lower_bound=0.0))
    )
