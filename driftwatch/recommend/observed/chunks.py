"""What came of the traffic, chunk by chunk: what a replay is held against."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.recommend.observed.clean import Clean, Floats
from driftwatch.recommend.observed.traffic import CHUNK_SCHEMA
from driftwatch.signals.histograms import quantile

# A chunk has so many first tokens at least, so that its means are not mostly chance (10 % of a
# mean with a coefficient of variation of 1), and a window so many chunks at most.
_FIRST_TOKENS = 100.0
_MOST_CHUNKS = 30


def chunks_of(stretch: Clean) -> pl.DataFrame:
    """Rows of a stretch → :data:`driftwatch.recommend.observed.traffic.CHUNK_SCHEMA`."""
    group = _groups(stretch)
    seconds = np.diff(stretch.edges)

    def summed(name: str) -> Floats:
        """Total of each chunk; unknown where it is so in one row of it."""
        return _per_chunk(group, stretch.column(name))

    def mean(name: str) -> Floats:
        values = stretch.column(name)
        known = ~np.isnan(values)
        weight = np.where(known, seconds, 0.0)
        return _over(
            _per_chunk(group, np.where(known, values, 0.0) * weight), _per_chunk(group, weight)
        )

    over = summed("forward_passes_overcounted")
    passes = np.where(over > 0, np.nan, summed("forward_passes"))
    span = _per_chunk(group, seconds)
    last = np.append(np.flatnonzero(np.diff(group)), len(group) - 1)
    ends = stretch.edges[1:][last]
    tokens = summed("generation_tokens_total")
    found = {
        "start_seconds": np.concatenate(([0.0], ends[:-1])),
        "end_seconds": ends,
        "generation_tokens_per_second": _over(tokens, span),
        "first_tokens_per_second": _over(summed("ttft_seconds_count"), span),
        "finished_per_second": _over(summed("generation_tokens_count"), span),
        "itl_seconds": _over(summed("itl_seconds_sum"), summed("itl_seconds_count")),
        "steps_per_generation_token": _over(passes, tokens),
        "tokens_per_step": _over(summed("iteration_tokens_sum"), passes),
        "ttft_seconds": _over(summed("ttft_seconds_sum"), summed("ttft_seconds_count")),
        "queue_seconds": _over(summed("queue_seconds_sum"), summed("queue_seconds_count")),
        "prefill_seconds": _over(summed("prefill_seconds_sum"), summed("e2e_seconds_count")),
        "running_requests": mean("running_requests"),
        "waiting_requests": mean("waiting_requests"),
        "kv_cache_usage_ratio": mean("kv_cache_usage_ratio"),
        "preemptions_per_second": _over(summed("preemptions_total"), span),
    }
    return pl.DataFrame(found, schema=CHUNK_SCHEMA).with_columns(pl.all().fill_nan(None))


def _groups(stretch: Clean) -> npt.NDArray[np.int64]:
    """Number of the chunk of each row: neighbours, until enough first tokens came."""
    first = np.nan_to_num(stretch.column("ttft_seconds_count"))
    enough = max(_FIRST_TOKENS, float(first.sum()) / _MOST_CHUNKS)
    group = np.zeros(len(first), dtype=np.int64)
    number, held = 0, 0.0
    for row, count in enumerate(first):
        if held >= enough:
            number, held = number + 1, 0.0
        group[row] = number
        held += float(count)
    if number and held < enough:  # the last one is too small: it joins the one before
        group[group == number] = number - 1
    return group


def p95_of(stretch: Clean, name: str) -> float | None:
    """95th percentile of a histogram over the whole stretch, linear inside its bucket (PromQL).

    None where it is not on the page, nothing was observed or it lies above the last edge.
    """
    rows = stretch.rows.select(f"{name}_buckets", f"{name}_edges").drop_nulls()
    lists = [(list(buckets), list(edges)) for buckets, edges in rows.iter_rows()]
    if not lists:
        return None
    edges = lists[-1][1]
    total = np.sum([counts for counts, of in lists if of == edges], axis=0)
    found = quantile(pl.Series([total.tolist()]), pl.Series([edges]), 0.95)
    if found.upper[0] is None:
        return None
    value: float | None = found.value[0]
    return value


def _per_chunk(group: npt.NDArray[np.int64], values: Floats) -> Floats:
    return np.bincount(group, weights=values).astype(np.float64)


def _over(numerator: Floats, denominator: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: Floats = np.where(denominator > 0, numerator / denominator, np.nan)
    return ratio
