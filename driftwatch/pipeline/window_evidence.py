"""Evidence of windows and of minutes, from stored rows: minutes, or the longer rows they became.

Counters and histograms of the rows add up to the window's, gauges are averaged over time, and what
a minute said of the ten before it, or a detector of its past, is that of the window's last row. A
restart or a change of a knob cuts a window after its minute, which has both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.schema import KEY, TIME
from driftwatch.detect.reference import with_reference
from driftwatch.detect.slo import slo_columns
from driftwatch.diagnose.allowances import with_allowances
from driftwatch.diagnose.evidence_order import in_schema_order
from driftwatch.diagnose.evidence_table import ten_minute_columns
from driftwatch.evidence import BY_NAME
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.signals.minutes import GAUGED
from driftwatch.signals.rows import SERVING_SCHEMA, base_columns
from driftwatch.store.minute_columns import STORED_SCHEMA, added_up
from driftwatch.store.minutes import MINUTE

TEN_MINUTES, TWO_MINUTES = timedelta(minutes=10), timedelta(minutes=2)
_END, _WINDOW = [*KEY, "end"], [*KEY, "window_end"]
_FLAGS = ("restarted", "configuration_changed", "release_changed")
# Stored beside evidence, and read with it.
_BESIDE = ("gpu_reasons", "gpus_lost_names", "binding_requests")
_SETTINGS = (*COLUMN_KNOBS, "max_num_seqs_inferred", "kv_cache_tokens")
# Named alike in minutes and in evidence, and made anew from the totals.
_MADE_ANEW = (
    *("running_requests", "waiting_requests", "waiting_capacity_requests"),
    *("waiting_deferred_requests", "kv_cache_usage_ratio", "slo_missed"),
)
_LENGTHS = [f"{n}_tokens_{part}" for n in ("prompt", "generation") for part in ("sum", "count")]
_WAITS = [f"{n}_seconds_{part}" for n in ("queue", "ttft", "tpot") for part in ("sum", "count")]
_BUCKETED = ("ttft_seconds", "tpot_seconds")
# Evidence that is made of histograms: without these the lists need not be read.
OF_HISTOGRAMS = frozenset(
    {
        *(f"{n}_tokens_{p}" for n in ("prompt", "generation") for p in ("w1_ratio", "js_distance")),
        *("prompt_tokens_moved", "generation_tokens_moved"),
        *("ttft_in_target_10m_ratio", "tpot_in_target_10m_ratio", "ttft_missed", "tpot_missed"),
    }
)


def in_window(rows: pl.DataFrame, start: datetime, end: datetime) -> pl.DataFrame:
    """Stored rows that lie in (start, end] by half at least; the one that holds its end if none
    does.
    """
    length = pl.duration(seconds=pl.col("seconds"))
    begins = pl.col("end") - length
    inside = pl.min_horizontal("end", pl.lit(end, dtype=TIME)) - pl.max_horizontal(
        begins, pl.lit(start, dtype=TIME)
    )
    near = rows.filter(inside * 2 >= length)
    return near if len(near) else rows.filter((begins < end) & (pl.col("end") >= end))


def window_evidence(
    rows: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    reference: pl.DataFrame,
) -> pl.DataFrame:
    """Evidence rows of windows, by target and end, with ``minutes``: how many a row is of.

    Args:
        rows: STORED_SCHEMA, ``seconds`` and ``window_end``, the end of the window that the row is
            of, by instance, engine and end.
        reference: :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`.
    """
    if rows.is_empty():
        return pl.DataFrame(schema={"instance": pl.String, "minutes": pl.Float64})
    scraped = pl.col("scrapes") > 0
    begins = pl.col("end") - pl.duration(seconds=pl.col("seconds"))
    whole = rows.group_by(_WINDOW, maintain_order=True).agg(
        *(pl.col(name).filter(scraped).any(ignore_nulls=False) for name in _FLAGS),
        start=begins.first().cast(TIME),
        minutes=pl.col("seconds").sum() / MINUTE,
    )
    rows = _since_last_change(rows)
    until = pl.col("window_end")
    own = _totals(rows)
    ten = own
    if rows.select((pl.col("end") <= until - TEN_MINUTES).any()).item():
        # a window without any row of its last ten minutes has its last row
        late = (pl.col("end") > until - TEN_MINUTES) | (pl.col("end") == pl.col("end").max())
        ten = _totals(rows.filter(late.over(_WINDOW)))
    fine = (until - pl.col("end") < TWO_MINUTES) & (pl.col("seconds") == MINUTE)
    two = (
        rows.filter(fine)
        .group_by(_WINDOW)
        .agg(pl.col(name).sum() for name in _LENGTHS)
        .rename({"window_end": "end"})
    )
    two = own.drop(_LENGTHS).join(two, on=_END, how="left", maintain_order="left")
    evidence = _evidence(own, two, ten, targets, plan, reference)
    whole = whole.rename({"window_end": "end"})
    first = evidence.drop("start", *_FLAGS).join(whole, on=_END, how="left", maintain_order="left")
    return first.select(*evidence.columns, "minutes")


def by_clock(rows: pl.DataFrame, length: timedelta) -> pl.DataFrame:
    """Stored rows with the end of their window on the clock: windows of such a length."""
    begins = (pl.col("end") - pl.duration(microseconds=1)).dt.truncate(length)
    return rows.with_columns(window_end=(begins + length).cast(TIME))


def minute_evidence(
    minutes: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    reference: pl.DataFrame,
) -> pl.DataFrame:
    """The evidence row of each minute, row for row, as the tick made it.

    Args:
        minutes: STORED_SCHEMA by instance, engine and end, minutes alone; the first ten know less
            of the time before.
        reference: :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`.
    """
    back = _Back(minutes)
    ten = back.totals(TEN_MINUTES, (*_WAITS, *_LENGTHS), _BUCKETED)
    two = back.totals(TWO_MINUTES, _LENGTHS)
    fresh = minutes["scrapes"] > 0
    rows = _evidence(
        minutes, two, ten.select(pl.when(fresh).then(pl.all())), targets, plan, reference
    )
    start = (pl.col("end") - timedelta(minutes=1)).cast(TIME)
    return rows.with_columns(start=start, slo_missed=minutes["slo_missed"])


def _evidence(
    own: pl.DataFrame,
    two: pl.DataFrame,
    ten: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    reference: pl.DataFrame,
) -> pl.DataFrame:
    """Rows of totals as evidence; ``two`` and ``ten`` are those of their last minutes."""
    now = plan.serving_frame(targets.values())
    now = own.select(KEY).join(now, on=KEY, how="left", maintain_order="left")
    serving = _serving_then(own, now)
    evidence = base_columns(_as_totals(own), serving)
    stored = [c for c in STORED_SCHEMA if c in BY_NAME and c not in evidence.columns]
    evidence = evidence.with_columns(own.select(*stored, *_BESIDE))
    evidence = evidence.with_columns(
        *[own[c] for c in GAUGED if c in BY_NAME],
        *slo_columns(ten, serving),
        *ten_minute_columns(ten),
        *[own[name] for name in _FLAGS],
        start=own["end"],
        end=own["end"],
        model_name=own["model_name"],
        cache_config=own["cache_config"],
        binding_since=own["binding_since"],
        deferred_since=own["deferred_since"],
    )
    return in_schema_order(with_allowances(with_reference(evidence, two, ten, reference)))


def _as_totals(own: pl.DataFrame) -> pl.DataFrame:
    """Stored rows as :func:`driftwatch.signals.windows.totals` calls their columns."""
    evidence_alone = [c for c in _MADE_ANEW if c in own.columns]
    return own.with_columns(
        *[pl.col(g).alias(f"{g}_mean") for g in GAUGED],
        # forward passes are counted once each, whatever the number of API servers, where known
        iteration_tokens_count=pl.col("forward_passes"),
        several_api_servers=pl.col("forward_passes_overcounted"),
        # vLLM's loggers.py observes these three of a finished request together
        prefill_seconds_count=pl.col("e2e_seconds_count"),
        decode_seconds_count=pl.col("e2e_seconds_count"),
        # a minute's prefix hits are those of an external cache too
        external_prefix_cache_hits_total=pl.lit(None, pl.Float64),
    ).drop(*_SETTINGS, "pool", "kv_block_tokens", "forward_passes_overcounted", *evidence_alone)


def _serving_then(own: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """Settings as they were in stored rows; what is not stored as configured now, beside them."""
    then = own.select(
        *_SETTINGS,
        "kv_block_tokens",
        gpus_per_replica="gpu_count",
        # the passes are those of the engine already
        api_server_count=pl.lit(None, pl.Float64),
    )
    return now.drop(then.columns).hstack(then).select(*SERVING_SCHEMA)


def _changed() -> pl.Expr:
    return pl.any_horizontal(pl.col(name).fill_null(False) for name in _FLAGS[:2])


def _since_last_change(rows: pl.DataFrame) -> pl.DataFrame:
    """Of each window what came after its last restart or knob change, where that was scraped."""
    last = pl.col("end").filter(_changed()).max().over(_WINDOW)
    after = pl.col("end") > last
    scraped_after = (after & (pl.col("scrapes") > 0)).any().over(_WINDOW)
    return rows.filter(last.is_null() | after | (~scraped_after & (pl.col("end") == last)))


def _totals(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of each window added up, by target and end of the window."""
    return added_up(rows.with_columns(end=pl.col("window_end")).select(*STORED_SCHEMA), _END)


class _Back:
    """Sums of a minute and those before it, since the last restart or change of knobs.

    ``minutes``: STORED_SCHEMA by instance, engine and end.
    """

    def __init__(self, minutes: pl.DataFrame) -> None:
        self._minutes = minutes
        changed = _changed()
        # the minute of a change has both sides: it is alone
        part = (changed | changed.shift(1).fill_null(False)).cast(pl.Int64).cum_sum()
        groups = minutes.select(pl.struct(*KEY, part.alias("part")).rle_id()).to_series()
        self._group = groups.to_numpy().astype(np.int64)
        self._end = minutes["end"].dt.epoch("s").to_numpy().astype(np.int64)
        self._observed = (minutes["duration_seconds"].fill_null(0.0) > 0).to_numpy()

    def totals(
        self, span: timedelta, columns: Sequence[str], histograms: Sequence[str] = ()
    ) -> pl.DataFrame:
        """Row for row: the sums of the rows in (end - span, end], ``duration_seconds`` with them;
        NULL where an observed minute does not know one.
        """
        first = self._first(span)
        sums: dict[str, Any] = {
            name: self._sum(self._minutes[name], first) for name in ("duration_seconds", *columns)
        }
        for name in histograms:
            sums |= self._histogram(name, first)
        return pl.DataFrame(sums)

    def _first(self, span: timedelta) -> npt.NDArray[np.int64]:
        """Per row the first row of its span."""
        apart = int(self._end.max(initial=0)) - int(self._end.min(initial=0)) + 86_400
        line = self._group * apart + (self._end - self._end.min(initial=0))
        before = line - int(span.total_seconds())
        rows: npt.NDArray[np.int64] = np.searchsorted(line, before, side="right").astype(np.int64)
        return rows

    def _is_known(self, is_known: npt.NDArray[np.bool_], first: npt.NDArray[np.int64]) -> pl.Series:
        """Known in some row of each span, and in every observed one."""
        some = _summed(is_known.astype(np.float64), first) > 0
        lacks = _summed((~is_known & self._observed).astype(np.float64), first) > 0
        return pl.Series(some & ~lacks)

    def _sum(self, values: pl.Series, first: npt.NDArray[np.int64]) -> pl.Series:
        total = pl.Series(values.name, _summed(values.fill_null(0.0).to_numpy(), first))
        is_sum_known = self._is_known(values.is_not_null().to_numpy(), first)
        return pl.select(pl.when(is_sum_known).then(total).alias(values.name)).to_series()

    def _histogram(self, name: str, first: npt.NDArray[np.int64]) -> dict[str, pl.Series]:
        """Buckets added up where all rows that have any have the same edges."""
        buckets, edges = self._minutes[f"{name}_buckets"], self._minutes[f"{name}_edges"]
        width = int(buckets.list.len().fill_null(0).to_numpy().max(initial=0))
        if not width:
            return {f"{name}_buckets": buckets, f"{name}_edges": edges}
        layout = _layouts(edges)
        same = layout[np.minimum(first, len(layout) - 1)] == layout
        is_sum_known = self._is_known(buckets.is_not_null().to_numpy(), first).to_numpy() & same
        cells = np.zeros((len(buckets), width))
        lengths = buckets.list.len().fill_null(0).to_numpy()
        flat = buckets.list.explode(empty_as_null=False, keep_nulls=False).to_numpy()
        cells[np.arange(width) < lengths[:, None]] = flat
        summed = _summed(cells, first)
        last = edges.forward_fill()
        counts = pl.Series(summed).cast(pl.List(pl.Float64))
        frame = pl.DataFrame({"counts": counts, "edges": last, "known": is_sum_known})
        width_of_row = pl.col("edges").list.len()
        both = frame.select(
            pl.when("known")
            .then(pl.col("counts").list.head(width_of_row))
            .alias(f"{name}_buckets"),
            pl.when("known").then("edges").alias(f"{name}_edges"),
        )
        return both.to_dict()


def _layouts(edges: pl.Series) -> npt.NDArray[np.int64]:
    """A number per run of rows with the same edges; a row without any is of the run before."""
    texts = edges.list.eval(pl.element().cast(pl.String)).list.join(" ")
    runs: npt.NDArray[np.int64] = texts.forward_fill().rle_id().to_numpy().astype(np.int64)
    return runs


def _summed(
    values: npt.NDArray[np.float64], first: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Row for row the sum of the values from ``first`` to the row itself."""
    shape = (1, *values.shape[1:])
    before = np.concatenate([np.zeros(shape), np.cumsum(values, axis=0)])
    place = np.arange(len(values))
    sums: npt.NDArray[np.float64] = before[place + 1] - before[np.minimum(first, place + 1)]
    return sums
