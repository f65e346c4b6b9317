"""Signals of one target over time: stored rows → spans on one axis, and what is usual. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.schema import TIME
from driftwatch.signals.minutes import MINUTE_SCHEMA

MOST_SPANS = 180
_WIDTHS = (60, 120, 300, 600, 1800, 3600, 7200, 21_600)
_BLOCK, _LEAST_BLOCKS = 600, 6
SIGNALS = (
    *("tokens_per_second_per_gpu", "generation_tokens_per_second", "requests_per_forward_pass"),
    *("batch_assembly_wait_seconds", "prompt_tokens_mean", "generation_tokens_mean"),
)
_FLAGS = ("restarted", "configuration_changed", "release_changed")
_KNOBS = ("max_num_seqs", "max_num_batched_tokens", "kv_cache_tokens")
# signal → what is counted in a minute, over what
_MEANS = {
    "prompt_tokens_mean": ("prompt_tokens_sum", "prompt_tokens_count"),
    "generation_tokens_mean": ("generation_tokens_sum", "generation_tokens_count"),
    "batch_assembly_wait_seconds": ("queue_seconds_sum", "queue_seconds_count"),
    "requests_per_forward_pass": ("outputs", "forward_passes"),
    "tokens_per_second_per_gpu": ("generation_tokens_total", "gpu_seconds"),
    "generation_tokens_per_second": ("generation_tokens_total", "duration_seconds"),
}
_COUNTED = {name for name in SIGNALS for name in _MEANS[name]} - {"outputs", "gpu_seconds"}
_SIGNAL_COLUMNS = (
    *("end", "scrapes", "gpu_count", "itl_seconds_count", "ttft_seconds_count"),
    *("duration_seconds", *sorted(_COUNTED)),
)
# What signals are made of, and besides what the page shows of a span.
SIGNAL_SCHEMA = {name: MINUTE_SCHEMA[name] for name in dict.fromkeys(_SIGNAL_COLUMNS)}
SCHEMA = SIGNAL_SCHEMA | {name: MINUTE_SCHEMA[name] for name in (*_FLAGS, *_KNOBS)}


@dataclass(frozen=True, slots=True)
class Signals:
    """Signals on one time axis."""

    span_seconds: int
    spans: Sequence[Mapping[str, Any]]  # ``end`` and :data:`SIGNALS`; None = unknown
    recent: Mapping[str, float | None]  # of the ten minutes that the answer is of
    usual: Mapping[str, tuple[float, float]]  # nine in ten of the baseline's ten-minute means
    without_usual: str | None  # why there is no baseline's band
    episodes: Sequence[Mapping[str, Any]]  # started_at, resolved_at (None = open), link
    changes: Sequence[tuple[datetime, str]]  # restarts, changes of settings or release


def width_of(since: datetime, until: datetime, rows: pl.DataFrame) -> int:
    """Seconds of a span: at most :data:`MOST_SPANS` of them, and none shorter than a row."""
    whole = (until - since).total_seconds()
    longest = rows["seconds"].max()
    least = max(whole / MOST_SPANS, float(longest) if isinstance(longest, float) else 60.0)
    return next((width for width in _WIDTHS if width >= least), _WIDTHS[-1])


def spans(rows: pl.DataFrame, since: datetime, until: datetime, seconds: int) -> pl.DataFrame:
    """``end`` and :data:`SIGNALS` of every span of the axis, NULL where it is unknown.

    ``rows``: :data:`SIGNAL_SCHEMA` at least; ``seconds``: of a span.
    """
    width = timedelta(seconds=seconds)
    first = _span_end(pl.lit(since + timedelta(microseconds=1), dtype=TIME), seconds)
    last = _span_end(pl.lit(until, dtype=TIME), seconds)
    ends = pl.select(pl.datetime_range(first, last, width, eager=False).cast(TIME).alias("end"))
    return ends.join(_means(rows, seconds), on="end", how="left", maintain_order="left")


def usual(rows: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Signal → what nine in ten of its ten-minute means lie between; too few: it is not there.

    ``rows``: of a baseline's window, :data:`SIGNAL_SCHEMA` at least.
    """
    blocks = _means(rows, _BLOCK)
    bands = {}
    for name in SIGNALS:
        values = blocks[name].drop_nulls()
        low, high = values.quantile(0.05, "linear"), values.quantile(0.95, "linear")
        if len(values) >= _LEAST_BLOCKS and low is not None and high is not None:
            bands[name] = (low, high)
    return bands


def changes(rows: pl.DataFrame) -> list[tuple[datetime, str]]:
    """When the engine restarted, a knob or the release changed; what, in words."""
    before = pl.col(_KNOBS).fill_null(strategy="forward").shift(1).name.suffix("_before")
    marked = rows.with_columns(before).filter(
        pl.any_horizontal(pl.col(name).fill_null(False) for name in _FLAGS)
    )
    return [(row["end"], ", ".join(_words(row))) for row in marked.iter_rows(named=True)]


def _words(row: dict[str, object]) -> list[str]:
    words = ["restart"] if row["restarted"] else []
    moved = [
        f"{name} {row[f'{name}_before']:.0f} → {row[name]:.0f}"
        for name in _KNOBS
        if row[name] is not None and row[f"{name}_before"] not in (None, row[name])
    ]
    if row["configuration_changed"]:
        words += moved or ["settings changed"]
    return words + (["release changed"] if row["release_changed"] else [])


def _means(rows: pl.DataFrame, seconds: int) -> pl.DataFrame:
    counted = rows.with_columns(
        end=_span_end(pl.col("end"), seconds),
        outputs=pl.col("itl_seconds_count") + pl.col("ttft_seconds_count"),
        gpu_seconds=pl.col("duration_seconds") * pl.col("gpu_count"),
    )
    means = {name: _mean_of(*_MEANS[name]) for name in SIGNALS}
    return counted.group_by("end").agg(**means).sort("end")


def _mean_of(total: str, over: str) -> pl.Expr:
    """A sum over a sum, of the rows in which both are known; NULL where nothing was counted."""
    both = pl.col(total).is_not_null() & pl.col(over).is_not_null()
    count = pl.col(over).filter(both).sum()
    return pl.when(count > 0).then(pl.col(total).filter(both).sum() / count)


def _span_end(end: pl.Expr, seconds: int) -> pl.Expr:
    begins = (end - pl.duration(microseconds=1)).dt.truncate(f"{seconds}s")
    return (begins + pl.duration(seconds=seconds)).cast(TIME)
