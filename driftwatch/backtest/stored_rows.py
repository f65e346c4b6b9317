"""Stored minutes as evidence rows, all of them at once.

Of one window :mod:`driftwatch.pipeline.past_windows` makes the same. What a minute says of the ten
before it is added up from them, since the last restart or change of knobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.schema import KEY, TIME
from driftwatch.detect.reference import with_reference
from driftwatch.detect.slo import slo_columns
from driftwatch.diagnose.evidence_order import in_schema_order
from driftwatch.diagnose.evidence_table import ten_minute_columns
from driftwatch.diagnose.limits import with_allowances
from driftwatch.evidence import BY_NAME
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.past_windows import as_totals, then_serving
from driftwatch.pipeline.plan import Plan
from driftwatch.signals.minutes import GAUGED
from driftwatch.signals.rows import base_columns
from driftwatch.store.minute_columns import STORED_SCHEMA

REACH = timedelta(minutes=10)
_TWO_MINUTES = timedelta(minutes=2)
_BESIDE = ("gpu_reasons", "gpus_lost_names", "binding_requests")
_LENGTHS = [f"{n}_tokens_{part}" for n in ("prompt", "generation") for part in ("sum", "count")]
_WAITS = [f"{n}_seconds_{part}" for n in ("queue", "ttft", "tpot") for part in ("sum", "count")]
_BUCKETED = ("ttft_seconds", "tpot_seconds")
# Only scrapes tell when the first of a window's was.
UNKNOWN = ("binding_since", "deferred_since")


def evidence_of_minutes(
    minutes: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    reference: pl.DataFrame,
) -> pl.DataFrame:
    """The evidence row of each minute, row for row.

    Args:
        minutes: STORED_SCHEMA by instance, engine and end, minutes alone; those of the first
            :data:`REACH` know less of the time before.
        reference: :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`.
    """
    back = Back(minutes)
    ten, two = (
        back.totals(REACH, (*_WAITS, *_LENGTHS), _BUCKETED),
        back.totals(_TWO_MINUTES, _LENGTHS),
    )
    serving = _serving(minutes, targets, plan)
    evidence = base_columns(as_totals(minutes), serving)
    stored = [c for c in STORED_SCHEMA if c in BY_NAME and c not in evidence.columns]
    evidence = evidence.with_columns(minutes.select(*stored, *_BESIDE))
    fresh = minutes["scrapes"] > 0
    reaching_back = pl.DataFrame([*slo_columns(ten, serving)]).hstack(ten_minute_columns(ten))
    if "first_tokens_10m" in reaching_back.columns:
        reaching_back = reaching_back.drop("first_tokens_10m")
    evidence = evidence.with_columns(
        *[minutes[c] for c in GAUGED if c in BY_NAME],
        *reaching_back.select(pl.when(fresh).then(pl.all())),
        start=pl.col("end") - timedelta(minutes=1),
        restarted=minutes["restarted"],
        configuration_changed=minutes["configuration_changed"],
        release_changed=minutes["release_changed"],
        model_name=minutes["model_name"],
        cache_config=minutes["cache_config"],
        **{name: pl.lit(None, dtype=TIME) for name in UNKNOWN},
    ).with_columns(slo_missed=minutes["slo_missed"])
    rows = with_allowances(with_reference(evidence, two, ten, reference))
    return in_schema_order(rows.with_columns(pl.col("start").cast(TIME)))


def _serving(
    minutes: pl.DataFrame, targets: Mapping[TargetKey, Target], plan: Plan
) -> pl.DataFrame:
    """Settings as they were in each minute; latency targets as they are configured now."""
    now = plan.serving_frame(targets.values())
    each = minutes.select(KEY).join(now, on=KEY, how="left", maintain_order="left")
    return then_serving(minutes, each)


class Back:
    """Sums of a minute and those before it, since the last restart or change of knobs.

    ``minutes``: STORED_SCHEMA by instance, engine and end.
    """

    def __init__(self, minutes: pl.DataFrame) -> None:
        self._minutes = minutes
        changed = pl.col("restarted").fill_null(False) | pl.col("configuration_changed").fill_null(
            False
        )
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
