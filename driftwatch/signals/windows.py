"""Windows over minute rows: sums of increases, means of gauges, values of the last minute.

A window is a row (instance, engine, start, end) of whole minutes. With ``cut`` it begins after the
last minute with a restart, a knob change or a hang; that minute alone counts where nothing came
after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.collect.registry import BUCKETED
from driftwatch.collect.schema import KEY
from driftwatch.minutes.continuity import MEAN_GAUGES
from driftwatch.minutes.engine import STUCK_SECONDS
from driftwatch.minutes.schema import QUEUED, SUMS
from driftwatch.signals.histograms import by_layout

_LAST = ("model_name", "cache_config", "several_api_servers", "engine_kind", "engine_asleep")
_FLAGS, _SILENT = ("restarted", "configuration_changed"), "seconds_since_last_token"


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """The rows of each window: from ``first`` to ``last``, both included; none if first > last.

    Both are row numbers, one per window.
    """

    first: Integers
    last: Integers

    @property
    def filled(self) -> Flags:
        """Windows with a row."""
        filled: Flags = self.first <= self.last
        return filled

    @property
    def of_one_row(self) -> bool:
        """No window has more than one."""
        return bool((self.first >= self.last).all())


@dataclass(frozen=True, eq=False)
class MinuteWindows:
    """Minute rows (:data:`driftwatch.minutes.schema.MINUTE_ROW_SCHEMA`), by target and end."""

    rows: pl.DataFrame
    # id → windows of earlier calls, and their targets
    _placed: dict[int, tuple[pl.DataFrame, Flags, Integers]] = field(default_factory=dict)

    @cached_property
    def _begins(self) -> Integers:
        """The first row of each target."""
        starts = pl.any_horizontal((pl.col(c) != pl.col(c).shift(1)).fill_null(True) for c in KEY)
        return self.rows.select(starts.arg_true()).to_series().to_numpy().astype(np.int64)

    @cached_property
    def _ends(self) -> Integers:
        return _minutes(self.rows["end"])

    @cached_property
    def _last_change(self) -> Integers:
        """The last row with a restart, a knob change or a hang up to each row, of any target."""
        flags = np.logical_or(*(_is_set(self.rows[name]) for name in _FLAGS))
        if _SILENT in self.rows.columns:  # a hung engine shows its last gauges
            flags |= _is_set(self.rows[_SILENT] >= STUCK_SECONDS)
        return np.maximum.accumulate(np.where(flags, np.arange(len(flags)), -1))

    @cached_property
    def _observed(self) -> Flags:
        observed: Flags = self.rows["scrapes"].to_numpy() > 0  # NULL reads as NaN
        return observed

    def spans(self, windows: pl.DataFrame, minutes: int | None = None, *, cut: bool) -> Spans:
        """The rows of each window; with ``minutes`` those of that many minutes up to its end.

        ``windows``: instance, engine, start, end; those of targets without a row have none.
        """
        count, (known, target) = len(self._begins), self._targets_of(windows)
        end = _minutes(windows["end"])
        start = _minutes(windows["start"]) if minutes is None else end - minutes
        if not count:
            none = np.zeros(len(windows), dtype=np.int64)
            return Spans(none, none - 1)
        low = int(min(self._ends.min(), start.min(initial=0), end.min(initial=0)))
        apart = int(max(self._ends.max(), end.max(initial=0))) - low + 2
        lengths = np.diff(np.append(self._begins, len(self.rows)))
        line = np.repeat(np.arange(count), lengths) * apart + (self._ends - low)
        first = np.searchsorted(line, target * apart + (start - low), "right")
        last = np.searchsorted(line, target * apart + (end - low), "right") - 1
        first = np.where(known, np.maximum(first, self._begins[target]), 1)
        last = np.where(known, last, 0)
        if cut:
            change = self._last_change[np.maximum(last, 0)]
            first = np.where(change >= first, np.minimum(change + 1, last), first)
        return Spans(first, last)

    def _targets_of(self, windows: pl.DataFrame) -> tuple[Flags, Integers]:
        """Whether each window's target has rows, and which number the target has."""
        if id(windows) not in self._placed:
            named = self.rows[self._begins.tolist()].select(KEY).with_row_index("whose")
            both = windows.select(KEY).join(named, on=KEY, how="left", maintain_order="left")
            whose = both["whose"]
            known, target = whose.is_not_null(), whose.fill_null(0).cast(pl.Int64)
            self._placed[id(windows)] = windows, known.to_numpy(), target.to_numpy()
        return self._placed[id(windows)][1:]

    def totals(self, windows: pl.DataFrame, spans: Spans) -> pl.DataFrame:
        """The totals of each window, row for row of ``windows``.

        Returns: the windows' columns; :meth:`sums` of every counter and histogram,
        ``<gauge>_mean``, ``scrapes``, ``duration_seconds``, the flags of any minute, and labels,
        kind and sleep of the last observed minute.
        """
        last = [name for name in _LAST if name in self.rows.columns]
        if spans.of_one_row:
            columns = ["scrapes", *_FLAGS, *last, *MEAN_GAUGES]
            rows = self.at_end(columns, spans).rename(
                {name: f"{name}_mean" for name in MEAN_GAUGES}
            )
        else:
            rows = pl.DataFrame(
                [
                    *self._sums(["scrapes"], spans, strict=False),
                    *self.flags(_FLAGS, spans),
                    *self.last_of(last, spans),
                    *(mean.alias(f"{mean.name}_mean") for mean in self._means(MEAN_GAUGES, spans)),
                ]
            )
        counted = self.sums([*SUMS, "duration_seconds"], spans, BUCKETED)
        numbers = pl.col("scrapes", "duration_seconds").fill_null(0.0)
        return windows.hstack(counted).hstack(rows).with_columns(numbers)

    def sums(
        self, columns: Sequence[str], spans: Spans, histograms: Sequence[str] = ()
    ) -> pl.DataFrame:
        """Sums of each window: increases of counters and of histograms' ``_sum`` and ``_count``
        (NULL where an observed minute does not know it), ``_buckets`` and ``_edges`` of
        ``histograms`` (of the minutes since its edges changed).
        """
        lists = [f"{name}_{part}" for name in histograms for part in ("buckets", "edges")]
        if spans.of_one_row:
            return self.at_end([*columns, *lists], spans)
        counted = self._sums(columns, spans)
        return counted.hstack([one for name in histograms for one in self._histogram(name, spans)])

    def queued(self, spans: Spans) -> pl.DataFrame:
        """The scrapes of each window in which requests wait for capacity.

        Returns: ``window`` (number), ``row``, and the facts of
        :data:`driftwatch.minutes.schema.QUEUED` under their names there, ``time`` as unix seconds.
        """
        window, row = self._expanded(spans)
        lists = self.rows.select(pl.col("end", *QUEUED).gather(row)).rename(QUEUED)
        frame = pl.DataFrame({"window": window, "row": row}).hstack(lists)
        frame = frame.filter(pl.col("second").list.len() > 0)
        minute = pl.col("end").dt.epoch("s") - 60
        return frame.explode(list(QUEUED.values()), empty_as_null=True).with_columns(
            pl.col("window").cast(pl.UInt32),
            pl.col("stalled", "repeats").cast(pl.Boolean),
            time=minute + pl.col("second"),
        )

    def of_minutes(self, spans: Spans, columns: Sequence[str]) -> pl.DataFrame:
        """``window``, ``row`` (number) and some columns of each row, in order of time."""
        window, row = self._expanded(spans)
        numbers = pl.DataFrame({"window": window, "row": row}).cast({"window": pl.UInt32})
        return numbers.hstack(self.rows.select(pl.col(list(columns)).gather(row)))

    def at_end(self, columns: Sequence[str], spans: Spans) -> pl.DataFrame:
        """The columns of each window's last minute, observed or not; NULL without one."""
        return self._rows_at(columns, np.where(spans.filled, spans.last, -1))

    def _rows_at(self, columns: Sequence[str], at: Integers) -> pl.DataFrame:
        """The columns of some rows; NULL at -1."""
        if np.array_equal(at, np.arange(len(self.rows))):
            return self.rows.select(columns)
        if len(at) and at.min() >= 0:
            places = pl.Series(at)
        else:
            places = pl.Series(np.where(at < 0, np.nan, at), nan_to_null=True).cast(pl.Int64)
        return self.rows.select(pl.col(list(columns)).gather(places))

    def last_of(self, columns: Sequence[str], spans: Spans) -> list[pl.Series]:
        """The columns at each window's last observed minute; NULL without one."""
        return self._rows_at(columns, self._last_observed(spans)).get_columns()

    def last_row(self, columns: Sequence[str], spans: Spans) -> pl.DataFrame:
        """The columns of each window's last observed minute, else of its last minute."""
        observed = self._last_observed(spans)
        last = np.where(spans.filled, spans.last, -1)
        return self._rows_at(columns, np.where(observed >= 0, observed, last))

    def flags(self, columns: Sequence[str], spans: Spans) -> list[pl.Series]:
        """Whether each flag is set in an observed minute of each window.

        NULL where an observed minute does not know it, or none was observed. A window of one minute
        has that minute's flags, observed or not.
        """
        if spans.of_one_row:
            return self.at_end(columns, spans).get_columns()
        alone = self._rows_at(columns, np.where(spans.first == spans.last, spans.last, -1))
        is_one = pl.Series(spans.first == spans.last)
        unobserved = ~self._any_of(self._observed, spans)
        each = []
        for name in columns:
            true = self._any_of(_is_set(self.rows[name]) & self._observed, spans)
            unknown = self._any_of(self.rows[name].is_null().to_numpy() & self._observed, spans)
            several = np.where(true, 1.0, np.where(unknown | unobserved, np.nan, 0.0))
            of_several = pl.Series(name, several, nan_to_null=True).cast(pl.Boolean)
            each.append(of_several.zip_with(~is_one, alone[name]))
        return each

    def _any_of(self, flags: Flags, spans: Spans) -> Flags:
        """Whether a row of each window is flagged."""
        before = np.concatenate([[0], np.cumsum(flags)])
        last = np.maximum(spans.last, spans.first - 1)
        found: Flags = before[last + 1] > before[np.minimum(spans.first, last + 1)]
        return found

    def _expanded(self, spans: Spans) -> tuple[Integers, Integers]:
        """Window and row number of every row of every window."""
        counts = np.maximum(spans.last - spans.first + 1, 0)
        window = np.repeat(np.arange(len(counts)), counts)
        offset = np.arange(len(window)) - np.repeat(np.cumsum(counts) - counts, counts)
        return window, np.repeat(spans.first, counts) + offset

    def _sums(self, columns: Sequence[str], spans: Spans, *, strict: bool = True) -> pl.DataFrame:
        """Sums of observed minutes; with ``strict`` unknown where one of them is."""
        if not len(self.rows):
            return pl.DataFrame({c: pl.Series([None] * len(spans.first), dtype=pl.Float64)
                                 for c in columns})  # fmt: skip
        values = self.rows.select(columns).to_numpy().astype(float)
        sums = _summed(values, self._observed, spans, strict=strict)
        return pl.DataFrame(sums, schema=list(columns), nan_to_null=True)

    def _means(self, columns: Sequence[str], spans: Spans) -> list[pl.Series]:
        """Means of gauges, each minute by its scrapes."""
        if not len(self.rows) or not columns:
            return [pl.Series(c, [None] * len(spans.first), dtype=pl.Float64) for c in columns]
        values = self.rows.select(columns).to_numpy().astype(float)
        weights = np.where(
            np.isnan(values), 0.0, np.nan_to_num(self.rows["scrapes"].to_numpy())[:, None]
        )
        total = _summed(np.nan_to_num(values) * weights, self._observed, spans)
        weight = _summed(weights, self._observed, spans)
        # one minute is its own mean, to the last digit
        alone = spans.filled & (spans.first == spans.last)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.where(weight > 0, total / weight, np.nan)
        means[alone] = values[spans.first[alone]]
        return pl.DataFrame(means, schema=list(columns), nan_to_null=True).get_columns()

    def _histogram(self, name: str, spans: Spans) -> list[pl.Series]:
        """Cumulative counts and edges of a histogram, of the minutes since its edges changed."""
        lists, edges = self.rows[f"{name}_buckets"], self.rows[f"{name}_edges"]
        layout = np.full(len(lists), -1)
        place = np.zeros(len(lists), dtype=np.int64)
        groups: list[tuple[Floats, Floats]] = []
        for rows, le, counts in by_layout(lists, edges):
            layout[rows], place[rows] = len(groups), np.arange(len(rows))
            groups.append((le, counts))
        newest = self._last_observed(spans)
        found: list[pl.DataFrame] = [_NO_HISTOGRAM]
        for number, (le, counts) in enumerate(groups):
            mine = np.flatnonzero((newest >= 0) & (layout[newest] == number))
            if not len(mine):
                continue
            part = Spans(spans.first[mine], newest[mine])
            window, row = self._expanded(part)
            other = self._observed[row] & (layout[row] != number) & (layout[row] >= 0)
            np.maximum.at(part.first, window[other], row[other] + 1)
            matrix = np.full((len(lists), len(le)), np.nan)
            own = layout == number
            matrix[own] = counts[place[own]]
            total = _summed(matrix, self._observed, part)
            known = pl.Series(~np.isnan(total).any(axis=1))
            of_layout = pl.DataFrame({"window": mine, "sums": pl.Series(total).arr.to_list()})
            found.append(
                of_layout.select(
                    "window",
                    pl.when(known).then("sums").alias("sums"),
                    edges=pl.lit(pl.Series([le.tolist()], dtype=pl.List(pl.Float64))).first(),
                )
            )
        numbers = pl.DataFrame({"window": np.arange(len(spans.first))})
        both = numbers.join(pl.concat(found), on="window", how="left", maintain_order="left")
        return [
            both["sums"].alias(f"{name}_buckets"),
            both["edges"].alias(f"{name}_edges"),
        ]

    def _last_observed(self, spans: Spans) -> Integers:
        """Each window's last observed row, -1 without one."""
        if not len(self.rows):
            return np.full(len(spans.first), -1)
        at = np.maximum.accumulate(np.where(self._observed, np.arange(len(self.rows)), -1))
        newest = at[np.maximum(spans.last, 0)]
        return np.where(spans.filled & (newest >= spans.first), newest, -1)

    def maximum(self, column: str, spans: Spans) -> pl.Series:
        """The maximum of a column over each window's minutes."""
        window, row = self._expanded(spans)
        most = np.full(len(spans.first), np.nan)
        np.fmax.at(most, window, self.rows[column].to_numpy()[row])
        return pl.Series(column, most, nan_to_null=True)


_NO_HISTOGRAM = pl.DataFrame(
    schema={"window": pl.Int64, "sums": pl.List(pl.Float64), "edges": pl.List(pl.Float64)}
)


def _minutes(ends: pl.Series) -> Integers:
    return ends.to_physical().to_numpy() // 60_000_000


def _is_set(flags: pl.Series) -> Flags:
    found: Flags = flags.cast(pl.Float64).to_numpy() == 1.0
    return found


def _summed(values: Floats, observed: Flags, spans: Spans, *, strict: bool = True) -> Floats:
    """Sums (window, column) over observed rows; NaN without one, or where an observed one is NaN.

    Added up row by row in order of time: a sum does not depend on what lies before its window.
    """
    known = ~np.isnan(values) & observed[:, None]
    lacking = ~known & observed[:, None]
    columns = [np.where(known, values, 0.0), observed[:, None].astype(np.int64)]
    if lacking.any():  # else all observed values are known
        columns = [columns[0], known.astype(np.int64), lacking.astype(np.int64)]
    # an added row of zeros stands for rows outside of a window
    padded = [np.vstack([one, np.zeros((1, one.shape[1]), one.dtype)]) for one in columns]
    totals = [np.zeros((len(spans.first), one.shape[1]), one.dtype) for one in columns]
    longest = int((spans.last - spans.first).max(initial=-1)) + 1
    for back in range(longest - 1, -1, -1):
        rows = spans.last - back
        rows = np.where(rows >= spans.first, rows, len(values))
        for total, one in zip(totals, padded, strict=True):
            total += one[rows]
    sums: Floats = totals[0]
    unknown = totals[1] == 0
    if strict and len(totals) > 2:
        unknown |= totals[2] > 0
    return np.where(unknown, np.nan, sums)
