"""The kind of an engine, whether it sleeps, and how long it has done no work.

vLLM's page does not name the kind, but its counters show it (``v1/metrics/stats.py``): a first
output counts the prompt and a time to first token, each later one an inter-token time. A pooling
engine (embedding, reranking, classification) has first outputs and no generated token. The prefill
side of a disaggregated pair gives one token a request and no second. On the decode side the KV
cache of most prompt tokens comes from a KV connector.
"""

from __future__ import annotations

import polars as pl

# A step takes seconds: an engine with requests and no token for this long is stuck.
STUCK_SECONDS = 120.0
POOLING, PREFILL_ONLY, DECODE_ONLY, GENERATE = "pooling", "prefill_only", "decode_only", "generate"

# Scrape columns that show the kind.
KIND_COLUMNS = (
    "ttft_seconds_count",
    "itl_seconds_count",
    "generation_tokens_total",
    "prompt_tokens_total",
    "prompt_tokens_transferred_total",
)
# From this many first outputs on, missing second ones are no accident. Mean lengths are compared
# from as many on (rules/length-drift.yaml).
_ENOUGH = 100.0
# One request in a hundred may have a second token: a health check with another max_tokens.
_RARELY = 0.01
# Share of prompt tokens; an external cache that serves as many counts as a transfer.
_MOSTLY = 0.5


def is_asleep() -> pl.Expr:
    """The engine sleeps in a scrape; NULL where the page does not show it."""
    return pl.col("engine_awake") == 0


def kind_of_scrape() -> pl.Expr:
    """The kind by the counters of one scrape; NULL until enough requests came."""
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


def waiting() -> pl.Expr:
    """Waiting requests: the gauge, else the sum of its parts by reason, else 0 while requests run.

    NULL where all are unknown. It only decides whether the engine has any request.
    """
    reasons = pl.col("waiting_capacity_requests") + pl.col("waiting_deferred_requests")
    alone = pl.when(pl.col("running_requests") > 0).then(pl.lit(0.0))
    return pl.coalesce("waiting_requests", reasons, alone)


# Columns that show work when they change. A pooling engine generates nothing, but counts a prompt
# when the request is done. An engine whose clients give up before their first token, or that
# computes a prompt for minutes, gives no token, but it admits requests (each queries the prefix
# cache), preempts them, and its running requests or their KV blocks change. A hung engine changes
# nothing. Finished requests are left out: a request that is given up or fails needs no work.
WORK = (
    "generation_tokens_total",
    "prompt_tokens_total",
    "prefix_cache_queries_total",
    "preemptions_total",
    "running_requests",
    "kv_cache_usage_ratio",
)


def with_token_clock(epochs: pl.DataFrame) -> pl.DataFrame:
    """Whether the clock of ``seconds_since_last_token`` starts anew at each scrape.

    It does where :data:`WORK` changes or appears, where no request is present, the engine sleeps or
    restarted, and at the first requests after none: an idle engine is not stuck, nor is one whose
    first request came between two scrapes. The scheduler also runs where the queue shrinks, or
    moves while the prefix cache is queried: the requests that left it were admitted or gave up.
    Without a prefix cache nothing shows admissions: where the queue moves, the clock starts anew
    and its value is unknown.

    ``epochs``: from :func:`driftwatch.minutes.continuity.with_epochs`.
    Returns: row for row ``alive`` (the clock starts anew), ``presence_known`` (running and waiting
    requests, the token counter and admissions are known) and ``queue_grew``.
    """
    return epochs.select(**_LIFE)


def _before(value: pl.Expr) -> pl.Expr:
    """The value in the same target's previous scrape."""
    return pl.when(pl.col("previous_time").is_not_null()).then(value.shift(1))


def _moved(value: pl.Expr) -> pl.Expr:
    return (value != _before(value)).fill_null(False)


def _life() -> dict[str, pl.Expr]:
    waits = pl.when(pl.col("running_requests").is_not_null()).then(waiting())
    # older vLLM queries the cache for the head of its queue in every step, admitted or not: a query
    # counts as an admission only while requests run or the queue moves
    churns = (pl.col("running_requests") > 0) | _moved(waits)
    admitted = _moved(pl.col("prefix_cache_queries_total")) & churns
    others = (_moved(pl.col(c)) for c in WORK if c != "prefix_cache_queries_total")
    appeared = (pl.col(c).is_not_null() & _before(pl.col(c)).is_null() for c in WORK)
    # where every client gives up before its first token, only the queue shows that steps run
    left = (waits < _before(waits)).fill_null(False)
    works = pl.any_horizontal(admitted.fill_null(False), left, *others, *appeared)
    admits = (pl.col("prefix_cache_queries_total") > 0).fill_null(False)
    unsure = _moved(waits) & ~works & ~admits
    asleep = [is_asleep(), _before(is_asleep())]
    requests = pl.col("running_requests") + waits
    present = pl.coalesce(requests, pl.when(pl.col("running_requests") == 0).then(pl.lit(0.0)))
    was_idle = _before(present) == 0
    return {
        "alive": pl.any_horizontal(
            *(flag.fill_null(False) for flag in (*asleep, present == 0, was_idle)),
            *(works, unsure, "restarted"),
        ),
        "presence_known": requests.is_not_null()
        & pl.col("generation_tokens_total").is_not_null()
        & ~unsure,
        "queue_grew": (waits > _before(waits)).fill_null(False),
    }


_LIFE = _life()
