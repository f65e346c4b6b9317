"""What kind of work an engine does, by what it has counted since it started, and whether it sleeps.

vLLM names no kind on its page. What a request books does (``v1/metrics/stats.py``): a first output
books the prompt and a time to first token, each later one an inter-token time. A pooling engine
(embedding, reranking, classification) has first outputs and no generated token; the prefill side of
a disaggregated pair gives one token a request and no second; on the decode side the KV cache of
most prompt tokens comes from a KV connector.
"""

from __future__ import annotations

import polars as pl

from driftwatch.signals.as_of import at_end, keys

POOLING, PREFILL_ONLY, DECODE_ONLY, GENERATE = "pooling", "prefill_only", "decode_only", "generate"

# Scrape columns that say it.
KIND_COLUMNS = (
    "ttft_seconds_count",
    "itl_seconds_count",
    "generation_tokens_total",
    "prompt_tokens_total",
    "prompt_tokens_transferred_total",
)
# First outputs from which on the lack of a second says something: as many as a mean length needs
# before it is compared (rules/length-drift.yaml).
_ENOUGH = 100.0
# A request in a hundred with a second token: a health check with another max_tokens.
_RARELY = 0.01
# Most of the prompt tokens: a cache outside of the engine that serves as many is like a transfer.
_MOSTLY = 0.5


def is_asleep() -> pl.Expr:
    """The engine sleeps in a scrape; NULL where the page does not say."""
    return pl.col("engine_awake") == 0


def kind_of_scrape() -> pl.Expr:
    """The kind by the counters of one scrape; NULL until requests have said it."""
    first, later = pl.col("ttft_seconds_count"), pl.col("itl_seconds_count")
    moved = pl.col("prompt_tokens_transferred_total") / pl.col("prompt_tokens_total")
    return (
        pl.when((first > 0) & (pl.col("generation_tokens_total") == 0))
        .then(pl.lit(POOLING))
        .when((first >= _ENOUGH) & (later <= _RARELY * first))
        .then(pl.lit(PREFILL_ONLY))
        .when((later > 0) & (moved >= _MOSTLY).fill_null(False))
        .then(pl.lit(DECODE_ONLY))
        .when(later > 0)
        .then(pl.lit(GENERATE))
    )


def engine_columns(epochs: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Kind and sleep at each window's last scrape.

    Args:
        epochs: usable scrapes by target and time.
        windows: instance, engine, start, end; scrapes with start <= time < end count.

    Returns:
        ``engine_kind`` and ``engine_asleep``, row for row of ``windows``; NULL without a scrape.
    """
    levels = epochs.select(
        *keys(epochs), "time", engine_kind=kind_of_scrape(), engine_asleep=is_asleep()
    )
    found = at_end(windows, levels)
    inside = pl.col("time") >= pl.col("start")
    return found.select(
        pl.when(inside).then(pl.col(c)).alias(c) for c in ("engine_kind", "engine_asleep")
    )
