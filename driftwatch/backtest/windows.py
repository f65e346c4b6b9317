"""The ten minutes that a page speaks about, put together from minutes that were kept.

Counters and histograms of the minutes add up to the window's and gauges are averaged; what a
minute says of the ten before it, or a detector of its past, is that of the last minute. A restart
or a change inside of a minute cuts the window after that minute, not within it.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, TIME
from driftwatch.detect.reference import REFERENCE_SCHEMA, with_reference
from driftwatch.detect.slo import slo_columns
from driftwatch.diagnose.evidence_order import in_schema_order
from driftwatch.diagnose.limits import with_allowances
from driftwatch.evidence import BY_NAME
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.past_windows import as_totals, serving_of_rows
from driftwatch.pipeline.plan import Plan
from driftwatch.signals.minutes import GAUGED
from driftwatch.signals.rows import base_columns
from driftwatch.store.minute_columns import STORED_SCHEMA, added_up, stored_rows

_KEY = list(KEY_COLUMNS)
_WINDOW = [*_KEY, "start", "end"]
_FLAGS = ("restarted", "configuration_changed", "release_changed")
_TWO_MINUTES = pl.duration(minutes=2)


def rows_of_windows(
    minutes: pl.DataFrame,
    windows: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
) -> pl.DataFrame:
    """The evidence rows of windows, in their order.

    Args:
        minutes: whole evidence rows of the minutes of the windows' targets.
        windows: :data:`driftwatch.diagnose.evidence_table.WINDOW_SCHEMA`; each ends with a minute
            that is among them.
    """
    each = windows.unique(maintain_order=True).sort(*_KEY, "end")
    # in a round every target has one window, and so one reference
    rounds = each.with_columns(number=pl.int_range(pl.len()).over(_KEY))
    rows = pl.concat(
        _of_each(minutes, one.drop("number"), targets, plan)
        for one in rounds.partition_by("number", maintain_order=True)
    )
    return windows.join(rows, on=_WINDOW, how="left", maintain_order="left").select(rows.columns)


def _of_each(
    minutes: pl.DataFrame,
    windows: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
) -> pl.DataFrame:
    """The same of windows of different targets, by target."""
    bounds = windows.select(*_KEY, window_start="start", window_end="end")
    inside = (
        minutes.join(bounds, on=_KEY, how="inner")
        .filter(pl.col("end") > pl.col("window_start"), pl.col("end") <= pl.col("window_end"))
        .sort(*_KEY, "end")
    )
    last = inside.filter(pl.col("end") == pl.col("window_end"))
    stored = stored_rows(inside).hstack(inside.select("window_end"))
    recent = _since_last_change(stored)
    whole, own = _totals(stored), _totals(recent)
    two = _totals(recent.filter(pl.col("end") > pl.col("window_end") - _TWO_MINUTES))
    of_rows = [targets[TargetKey(*key)] for key in own.select(_KEY).iter_rows()]
    evidence = base_columns(as_totals(own), serving_of_rows(own, of_rows, plan))
    evidence = evidence.with_columns(
        *(own[name] for name in GAUGED if name in BY_NAME),
        *(whole[name] for name in _FLAGS),
        last["window_start"].alias("start"),
        last["window_end"].alias("end"),
    )
    beside = [name for name in last.columns if name not in evidence.columns]
    joined = evidence.hstack(last.select(beside)).drop("window_start", "window_end")
    joined = _with_targets_of_window(joined, last, own, targets, plan)
    two = own.select(_KEY).join(two, on=_KEY, how="left", maintain_order="left")
    compared = with_reference(_without_reference(joined), two, own, _reference(last))
    return in_schema_order(with_allowances(compared))


def _with_targets_of_window(
    rows: pl.DataFrame,
    last: pl.DataFrame,
    own: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
) -> pl.DataFrame:
    """A last minute without a scrape says nothing of the latency targets; the window does."""
    of_rows = [targets[TargetKey(*key)] for key in own.select(_KEY).iter_rows()]
    of_window = pl.DataFrame([*slo_columns(own, serving_of_rows(own, of_rows, plan))])
    is_scraped = last["scrapes"] > 0
    return rows.with_columns(
        pl.when(is_scraped).then(rows[one.name]).otherwise(one).alias(one.name)
        for one in of_window
        if one.name in rows.columns
    )


def _since_last_change(stored: pl.DataFrame) -> pl.DataFrame:
    """Less what came before the last restart or knob change, and its own minute, which has both."""
    changed = pl.any_horizontal(pl.col(name).fill_null(False) for name in _FLAGS[:2])
    with_changes = stored.with_columns(changed=changed).with_columns(
        following=pl.col("changed").cum_sum(reverse=True).over(_KEY)
    )
    after = pl.col("following") == 0
    scraped_after = (after & (pl.col("scrapes") > 0)).any().over(_KEY)
    own_minute = pl.col("changed") & (pl.col("following") == 1)
    return with_changes.filter(after | (own_minute & ~scraped_after)).drop("changed", "following")


def _totals(stored: pl.DataFrame) -> pl.DataFrame:
    """Rows of one window added up."""
    numbered = stored.with_columns(end=pl.col("window_end").cast(TIME)).select(*STORED_SCHEMA)
    return added_up(numbered, [*_KEY, "end"])


_BESIDE = {"kind": "reference_kind", "since": "reference_since", "until": "reference_until"}
_OF_REFERENCE = [_BESIDE.get(name, name) for name in REFERENCE_SCHEMA if name not in _KEY]


def _reference(last: pl.DataFrame) -> pl.DataFrame:
    """The reference that stood beside each window's last minute."""
    rows = last.select(*_KEY, *_OF_REFERENCE).filter(pl.col("reference_kind").is_not_null())
    renamed = rows.rename({beside: name for name, beside in _BESIDE.items()})
    return renamed.select(pl.col(name).cast(dtype) for name, dtype in REFERENCE_SCHEMA.items())


def _without_reference(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.drop(_OF_REFERENCE)
