"""Scrapes of the past, as narrow as the windows that reach back to them allow.

A minute needs every column of the scrapes in it and of the one before. The ten minutes before it
need of most scrapes what the scheduler showed, and counters and histograms only where a window can
start or end: at the last scrape of a minute and at the first of an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

import polars as pl

from driftwatch.collect.schema import KEY, SCRAPE_SCHEMA, TIME, only, sorted_by
from driftwatch.signals.continuity import (
    COMPARED,
    MEAN_GAUGES,
    READ_BUCKETS,
    with_epochs,
    with_known,
)
from driftwatch.signals.engine import WORK, waiting
from driftwatch.signals.facts import gauge_facts, scrape_facts, with_samples
from driftwatch.signals.windows import SUMS

# What says whether a target is alive: forward filled together, as they are read together.
ALIVE = ("waiting_requests", *WORK, "engine_awake")
_REMEMBERED = tuple(dict.fromkeys((*COMPARED, *ALIVE)))
_CONTINUITY = {
    "epoch": pl.Int64,
    "epoch_starts": pl.Boolean,
    "restarted": pl.Boolean,
    "configuration_changed": pl.Boolean,
    "step_microseconds": pl.Int64,
}
# facts besides those that the gauges are
_FACTS = {
    "several_api_servers": pl.Boolean,
    "preempted": pl.Float64,
    "tokens_per_step": pl.Float64,
    "first_tokens_per_step": pl.Float64,
    "steps_per_second": pl.Float64,
    "stalled": pl.Boolean,
    "repeats": pl.Boolean,
}
_NARROW: dict[str, pl.DataType | type[pl.DataType]] = {
    "target": pl.UInt32,
    "time": TIME,
    "serial": pl.Int64,
    **_CONTINUITY,
    **dict.fromkeys(MEAN_GAUGES, pl.Float64),
    **_FACTS,
    "sampled_at": TIME,
}
_VALUES = (*SUMS, *(f"{h}_buckets" for h in READ_BUCKETS))
_EDGES = tuple(f"{h}_edges" for h in READ_BUCKETS)
_LABELS = ("model_name", "cache_config", "several_api_servers")
_TARGETS: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "target": pl.UInt32,
    "base_time": TIME,
    "base_epoch": pl.Int64,
    "base_serial": pl.Int64,
}


@dataclass(frozen=True, slots=True)
class Past:
    """What evaluated scrapes leave behind."""

    # instance, engine, their number ``target``, and of the last evaluated scrape ``base_time``,
    # ``base_epoch`` and ``base_serial``. That scrape itself is not here: it must be among the
    # scrapes that come next, or the target's past does not count.
    targets: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_TARGETS))
    # per scrape its ``serial``, continuity, gauges and facts, by target and time
    scrapes: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_NARROW))
    # counters and histograms by ``serial``, with ``time``; a frame per evaluation
    marks: tuple[pl.DataFrame, ...] = ()
    # per target and ``time`` (that of its last scrape) the last known values of what is compared
    # with the next
    last_values: pl.DataFrame = field(
        default_factory=lambda: pl.DataFrame(
            schema={
                "target": pl.UInt32,
                "time": TIME,
                **{c: SCRAPE_SCHEMA[c] for c in _REMEMBERED},
            }
        )
    )
    serials: int = 0  # how many scrapes were numbered
    # what is older counts no more, except for each target's last scrape
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class JoinedScrapes:
    """New scrapes joined to the past."""

    targets: pl.DataFrame  # instance, engine, ``target``
    # the new usable scrapes and the one before them of each target, every column, with continuity,
    # ``target`` and ``serial``
    epochs: pl.DataFrame
    scrapes: pl.DataFrame  # past and new ones, narrow, by target and time
    values: tuple[pl.DataFrame, ...]  # counters and histograms by ``serial``
    past: Past  # what they were joined to

    def numbered(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame's rows, in their order, with their ``target``; NULL without a scrape."""
        return frame.join(self.targets, on=KEY, how="left", maintain_order="left")

    def alive(self) -> pl.DataFrame:
        """``epochs`` with what was known before of requests and tokens."""
        joint = self.epochs.with_columns(waiting_requests=_waiting())
        return with_known(joint, self.past.last_values, ALIVE)


def joined(scrapes: pl.DataFrame, past: Past) -> JoinedScrapes:
    """New scrapes with the past that leads up to them.

    ``scrapes``: scrape table in order. Rows before a target's last evaluated scrape are known
    already; that scrape itself must be there; ``past``: from :func:`left_behind`; an empty one to
    begin with.
    """
    past = _renumbered(past, scrapes)
    targets = past.targets
    new = only(scrapes, pl.col("ok"))
    whose = new.select(KEY).join(targets, on=KEY, how="left", maintain_order="left")
    new = new.hstack(whose.drop(KEY))
    bases = new.filter(pl.col("time") == pl.col("base_time"))
    led = pl.col("target").is_in(bases["target"].unique().implode())
    # rows before the last evaluated one stay, so that the table is not copied; they have no serial
    is_known = led & (pl.col("time") < pl.col("base_time"))
    is_base = led & (pl.col("time") == pl.col("base_time"))
    of_base = ["base_time", "base_epoch", "base_serial"]
    epochs = with_epochs(new.drop(of_base), past.last_values)
    joint = epochs.select("target", "time", "epoch").join(
        targets.select("target", *of_base), on="target", how="left", maintain_order="left"
    )
    joint = joint.with_columns(is_known=is_known.fill_null(False), is_base=is_base.fill_null(False))
    moved = joint.filter("is_base").select("target", moved=pl.col("base_epoch") - pl.col("epoch"))
    joint = joint.join(moved, on="target", how="left", maintain_order="left").with_columns(
        is_new=~(pl.col("is_known") | pl.col("is_base"))
    )
    epochs = epochs.with_columns(
        joint.select(
            epoch=pl.col("epoch") + pl.col("moved").fill_null(0),
            serial=pl.when("is_base")
            .then("base_serial")
            .when("is_new")
            .then(pl.col("is_new").cast(pl.Int64).cum_sum() + (past.serials - 1)),
        )
    )
    narrow = (
        epochs.select("target", "time", "serial", *_CONTINUITY, *MEAN_GAUGES)
        .hstack(scrape_facts(epochs).select(*_FACTS))
        .with_columns(sampled_at=pl.lit(None, dtype=TIME))
    )
    older = past.scrapes
    if len(moved) < len(past.targets):
        older = older.filter(led)
    if past.since is not None:
        is_last = pl.col("serial").is_in(past.targets["base_serial"].implode())
        older = only(older, (pl.col("time") >= past.since) | is_last)
    if len(older):
        narrow = sorted_by(pl.concat([older, narrow.filter(joint["is_new"])]), ["target", "time"])
    fresh = narrow.select((pl.col("serial") >= past.serials).fill_null(False)).to_series()
    return JoinedScrapes(
        targets=targets.select(*KEY, "target"),
        epochs=epochs,
        scrapes=with_samples(narrow, fresh).with_columns(**gauge_facts()),
        values=(
            *past.marks,
            epochs.select("serial", *_VALUES, *_EDGES, *_LABELS),
        ),
        past=past,
    )


def _renumbered(past: Past, scrapes: pl.DataFrame) -> Past:
    """The past with the targets of these scrapes too, numbered in the order of their keys.

    So scrapes in order are in the order of their targets' numbers, and need no sorting.
    """
    begins = pl.any_horizontal((pl.col(c) != pl.col(c).shift(1)).fill_null(True) for c in KEY)
    here = scrapes.select(KEY).filter(scrapes.select(begins).to_series())
    new = here.join(past.targets, on=KEY, how="anti", maintain_order="left")
    if new.is_empty():
        return past
    every = pl.concat([past.targets, new], how="diagonal").sort(KEY)
    numbered = every.with_columns(number=pl.int_range(pl.len(), dtype=pl.UInt32))
    numbers = numbered.filter(pl.col("target").is_not_null()).select("target", "number")

    def renumbered(frame: pl.DataFrame) -> pl.DataFrame:
        theirs = frame.select("target").join(
            numbers, on="target", how="left", maintain_order="left"
        )
        return frame.with_columns(target=theirs["number"])

    return replace(
        past,
        targets=numbered.with_columns(target="number").drop("number"),
        scrapes=renumbered(past.scrapes),
        last_values=renumbered(past.last_values),
    )


def _waiting() -> pl.Expr:
    """Waiting requests beside running ones: unknown together, or beside none running alone."""
    return pl.when(pl.col("running_requests").is_not_null()).then(waiting())


def left_behind(joint: JoinedScrapes, until: datetime, since: datetime) -> Past:
    """What these scrapes leave behind once everything before ``until`` is evaluated.

    ``joint``: from :func:`joined`; ``until``: end of the last evaluated minute; ``since``: what is
    older is let go, except for each target's last scrape.
    """
    done = pl.col("serial").is_not_null() & (pl.col("time") < until)
    followed = (
        (pl.col("target") == pl.col("target").shift(-1)) & (pl.col("time").shift(-1) < until)
    ).fill_null(False)
    last = joint.epochs.select(done & ~followed).to_series()
    bases = joint.epochs.select("target", "time", "epoch", "serial").filter(last)
    minute = pl.col("time").dt.truncate("1m")
    marked = followed & (pl.col("epoch_starts") | (minute != minute.shift(-1)))
    block = joint.epochs.select("serial", "time", *_VALUES).filter(
        joint.epochs.select(done & marked & (pl.col("time") >= since)).to_series()
    )
    marks = [m for m in joint.past.marks if m.select((pl.col("time") >= since).any()).item()]
    if len(block):
        marks.append(block)
    targets = joint.targets.join(
        bases.select("target", base_time="time", base_epoch="epoch", base_serial="serial"),
        on="target",
        maintain_order="left",
    )
    newest = joint.epochs["serial"].max()
    return Past(
        targets=targets.select(_TARGETS.keys()),
        # what is too old goes when the next scrapes come: now it would be one more copy
        scrapes=only(joint.scrapes.select(_NARROW.keys()), pl.col("time") < until),
        marks=tuple(marks),
        last_values=_last_known(joint.epochs, last, joint.past.last_values),
        serials=max(joint.past.serials, newest + 1 if isinstance(newest, int) else 0),
        since=since,
    )


def _last_known(epochs: pl.DataFrame, last: pl.Series, before: pl.DataFrame) -> pl.DataFrame:
    """The last known values of each target, at its last scrape."""
    # whether anybody waited beside none is unknown, and counts as nobody for what comes next
    present = epochs.with_columns(
        waiting_requests=pl.coalesce(_waiting(), pl.col("running_requests") * 0.0)
    )
    filled = with_known(present, before, _REMEMBERED).select("target", "time", *_REMEMBERED)
    partly = [c for c in _REMEMBERED if 0 < filled[c].null_count() < len(filled)]
    # one after the other: edges are long
    columns = {
        c: filled.select(pl.col(c).forward_fill().over("target")).to_series().filter(last)
        for c in partly
    }
    return (
        filled.drop(partly)
        .filter(last)
        .with_columns(**columns)
        .select("target", "time", *_REMEMBERED)
    )
