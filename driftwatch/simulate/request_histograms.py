"""What vLLM's per-request histograms would say at each scrape of a simulated run.

Booked as vLLM 0.32 does (v1/metrics/loggers.py): time to first token when the first token is out,
everything else when the request finishes; a request that is cancelled, timed out or refused
leaves no observation but its time to first token. Queue time is that until the first schedule;
what a preempted request waits again is in its prefill and decode time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.simulate import vllm_buckets as buckets
from driftwatch.simulate.requests import Floats

_LONGEST = 10_000_000  # of max_model_len, where it is not known


class Histograms:
    """The histograms of one server, taken forward a stretch of time after the other.

    Args:
        edges: of ``edges_of``.
    """

    def __init__(self, edges: Mapping[str, tuple[float, ...]]) -> None:
        self._edges = edges
        self._counts: dict[str, npt.NDArray[np.int64]] = {}
        self._sums: dict[str, float] = {}

    def take(
        self, ended: pl.DataFrame, first_tokens: pl.DataFrame, scrape_seconds: Floats
    ) -> pl.DataFrame:
        """What the scrapes of a stretch of time show.

        Args:
            ended: rows of ``Outcome.requests`` that ended in the stretch.
            first_tokens: rows, ended or not, whose first token came in it.
            scrape_seconds: sorted times in it; what is observed after the last of them is shown by
                the next stretch.

        Returns:
            A row a scrape: ``<family>_edges`` (finite ``le``), ``<family>_buckets`` (cumulative
            counts over the edges and +Inf), ``<family>_sum``, ``<family>_count``, under vLLM's
            family names, and ``request_success_total`` (all for the reason ``length``: as many
            tokens as asked).
        """
        finished = ended.filter(pl.col("status") == "finished")
        columns: dict[str, pl.Series] = {}
        for family, (frame, value, at_column, edges) in _families(
            finished, first_tokens, self._edges
        ).items():
            table = frame.select(value.alias("value"), pl.col(at_column).alias("seen")).drop_nulls()
            columns |= self._booked(
                family,
                table["value"].to_numpy().astype(np.float64),
                table["seen"].to_numpy().astype(np.float64),
                edges,
                scrape_seconds,
            )
        success = columns["e2e_request_latency_seconds_count"]
        return pl.DataFrame({"request_success_total": success, **columns})

    def _booked(
        self, family: str, value: Floats, at: Floats, edges: Sequence[float], scrapes: Floats
    ) -> dict[str, pl.Series]:
        """One histogram at each scrape; what is observed at a scrape's own time is in it."""
        rows, width = len(scrapes) + 1, len(edges) + 1  # the last row: after the last scrape
        scrape = np.searchsorted(scrapes, at, side="left")
        cell = np.searchsorted(np.asarray(edges), value, side="left")
        counts = np.bincount(scrape * width + cell, minlength=rows * width).reshape(rows, width)
        total = np.bincount(scrape, weights=value, minlength=rows).astype(
            np.float64
        )  # of none: ints
        counts[0] += self._counts.get(family, 0)
        total[0] += self._sums.get(family, 0.0)
        counts, total = counts.cumsum(axis=0), np.cumsum(total)
        self._counts[family], self._sums[family] = counts[-1], float(total[-1])
        cumulative = counts[:-1].cumsum(axis=1)
        finite = np.tile(np.asarray(edges, dtype=np.float64), (len(scrapes), 1))
        return {
            f"{family}_edges": lists(finite),
            f"{family}_buckets": lists(cumulative),
            f"{family}_sum": pl.Series(total[:-1]),
            f"{family}_count": pl.Series(cumulative[:, -1]),
        }


def lists(rows: npt.NDArray[Any]) -> pl.Series:
    """A list a row."""
    inner = pl.Float64 if rows.dtype == np.float64 else pl.Int64
    return pl.Series(rows, dtype=pl.Array(inner, rows.shape[1])).arr.to_list()


def edges_of(max_model_len: int | None, longest_request: int) -> dict[str, tuple[float, ...]]:
    """Edges of each kind of histogram; without a max_model_len they reach the longest request."""
    longest = min(longest_request * 2, _LONGEST) if max_model_len is None else max_model_len
    return {
        "tokens": buckets.request_tokens(longest),
        "latency": buckets.REQUEST_LATENCY_SECONDS,
        "ttft": buckets.TIME_TO_FIRST_TOKEN_SECONDS,
        "itl": buckets.INTER_TOKEN_LATENCY_SECONDS,
        "preemptions": buckets.NUM_PREEMPTIONS,
        "n": buckets.PARAMS_N,
    }


def _families(
    ended: pl.DataFrame, first_token: pl.DataFrame, edges: Mapping[str, tuple[float, ...]]
) -> dict[str, tuple[pl.DataFrame, pl.Expr, str, tuple[float, ...]]]:
    """vLLM's family → rows, the value observed, the column of when it is, the edges."""
    end, first = pl.col("end_seconds"), pl.col("first_token_seconds")
    scheduled, generated = pl.col("first_scheduled_seconds"), pl.col("generated_tokens")
    # the mean time per token after the first; 0 for a single token, as vLLM observes it
    per_token = pl.when(generated > 1).then((end - first) / (generated - 1)).otherwise(0.0)
    latency, tokens = edges["latency"], edges["tokens"]
    return {
        "time_to_first_token_seconds": (
            first_token,
            pl.col("ttft_seconds"),
            "first_token_seconds",
            edges["ttft"],
        ),
        "e2e_request_latency_seconds": (ended, pl.col("e2e_seconds"), "end_seconds", latency),
        "request_queue_time_seconds": (ended, pl.col("queue_seconds"), "end_seconds", latency),
        "request_inference_time_seconds": (ended, end - scheduled, "end_seconds", latency),
        "request_prefill_time_seconds": (ended, first - scheduled, "end_seconds", latency),
        "request_decode_time_seconds": (ended, end - first, "end_seconds", latency),
        "request_time_per_output_token_seconds": (ended, per_token, "end_seconds", edges["itl"]),
        "request_prompt_tokens": (ended, pl.col("prompt_tokens"), "end_seconds", tokens),
        "request_generation_tokens": (ended, generated, "end_seconds", tokens),
        # nothing is known of max_tokens but what was generated in the end
        "request_max_num_generation_tokens": (
            ended,
            pl.col("generation_tokens"),
            "end_seconds",
            tokens,
        ),
        "request_params_max_tokens": (ended, pl.col("generation_tokens"), "end_seconds", tokens),
        "request_params_n": (ended, pl.lit(1), "end_seconds", edges["n"]),
        "request_prefill_kv_computed_tokens": (
            ended,
            pl.col("prompt_tokens") - pl.col("cached_tokens").fill_null(0),
            "end_seconds",
            tokens,
        ),
        "request_num_preemptions": (
            ended,
            pl.col("preemptions"),
            "end_seconds",
            edges["preemptions"],
        ),
    }
