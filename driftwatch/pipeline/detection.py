"""The detectors' part of a tick: recent minutes, references, and what a piece adds to both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.days import LONGEST_ABSENCE, day_before, is_due, learn_usual
from driftwatch.detect.learn import learn, next_due
from driftwatch.detect.references import References
from driftwatch.detect.score import KEPT, SCHEMA, score
from driftwatch.detect.speed.load import VERDICTS, WORK_SCHEMA, no_work, work_of
from driftwatch.model import TargetKey
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store

_KEY = list(KEY_COLUMNS)
_KEYS = {name: WORK_SCHEMA[name] for name in _KEY}
# Histograms are most of a stored minute, and no detector reads them.
_NUMBERS = [name for name, dtype in STORED_SCHEMA.items() if dtype != pl.List(pl.Float64)]


@dataclass(frozen=True, slots=True)
class Detection:
    """The input of detectors; :func:`detection_from` makes it from the store at any time."""

    # :data:`driftwatch.detect.speed.load.WORK_SCHEMA`, of the last :data:`KEPT` before a tick
    work: pl.DataFrame = field(default_factory=no_work)
    references: References = field(default_factory=References)

    def without(self, keys: Iterable[TargetKey]) -> Detection:
        """Without these targets; their days stay."""
        gone = list(keys)
        if not gone:
            return self
        frame = pl.DataFrame(gone, schema=_KEYS, orient="row")
        work = self.work.join(frame, on=_KEY, how="anti", maintain_order="left")
        return Detection(work, self.references.without(gone))


def detected(
    detection: Detection,
    minutes: pl.DataFrame,
    span: tuple[datetime, datetime],
    baselines: Baselines,
    reference: pl.DataFrame,
    store: Store | None,
    *,
    accepts: bool,
) -> tuple[pl.DataFrame, Detection]:
    """The detectors' columns, row for row beside ``minutes``, and the detection after them.

    A reference learnt at the end of a minute applies from the next minute on.

    Args:
        minutes: MINUTE_SCHEMA, those of the span.
        reference: REFERENCE_SCHEMA, what lengths are compared with.
        accepts: take a proposed baseline where no person has accepted one.
    """
    first, last = span
    pools = minutes["pool"].fill_null("").unique().to_list()
    numbers, parts = [], [pl.DataFrame(schema=SCHEMA)]
    while first < last and len(minutes):
        due = min(last, next_due(first, detection.references, pools))
        here = minutes.select(pl.col("end").is_between(first, due, closed="right").arg_true())
        rows = minutes[here.to_series()]
        columns, detection = _detected(
            *(detection, rows, (first, due), baselines, reference, store), accepts=accepts
        )
        numbers.append(here.to_series())
        parts.append(columns)
        first = due
    if len(numbers) < 2:
        return parts[-1], detection
    return pl.concat(parts)[pl.concat(numbers).arg_sort()], detection


def _detected(
    detection: Detection,
    minutes: pl.DataFrame,
    span: tuple[datetime, datetime],
    baselines: Baselines,
    reference: pl.DataFrame,
    store: Store | None,
    *,
    accepts: bool,
) -> tuple[pl.DataFrame, Detection]:
    """The same for a span in which no reference is learnt before its end."""
    first, last = span
    references = detection.references
    new = work_of(minutes)
    work = pl.concat([detection.work.filter(pl.col("end") <= first), new])
    recent = work.filter(pl.col("end") > last - KEPT)
    scored = score(recent, references, baselines, reference, first, accepts=accepts)
    slower = work_of_verdicts(scored.columns)
    work = pl.concat([work.head(len(work) - len(new)), new.with_columns(slower=slower)])
    pools = minutes["pool"].fill_null("").unique().to_list()
    if next_due(first, references, pools) == last:

        def older(keys: Sequence[TargetKey], since: datetime) -> pl.DataFrame:
            return _older(work, store, keys, (since, last))

        references = references.with_more(
            learn(scored, references, baselines, reference, older, last)
        )
    if store is not None and is_due(last):
        own = _without_baseline(minutes, baselines)
        past = store.past(*day_before(last), own, _NUMBERS) if own else new.clear()
        if len(past):
            references = references.with_more(learn_usual(past, references, last))
        references = references.without_days_before(last - LONGEST_ABSENCE)
    return scored.columns, Detection(work, references)


def _without_baseline(minutes: pl.DataFrame, baselines: Baselines) -> list[TargetKey]:
    targets = minutes.select(*_KEY, pl.col("pool").fill_null("")).unique(maintain_order=True)
    return [
        TargetKey(instance, engine)
        for instance, engine, pool in targets.iter_rows()
        if baselines.of_target(instance, engine, pool) is None
    ]


def work_of_verdicts(columns: pl.DataFrame) -> pl.Series:
    """Slower by either verdict; NULL where both are unknown."""
    return columns.select(pl.any_horizontal(*VERDICTS)).to_series().alias("slower")


def _older(
    work: pl.DataFrame,
    store: Store | None,
    keys: Sequence[TargetKey],
    span: tuple[datetime, datetime],
) -> pl.DataFrame:
    """Rows of work of some targets in a span: the recent ones, and older ones from the store."""
    frame = pl.DataFrame(keys, schema=_KEYS, orient="row")
    own = work.filter(pl.col("end") > span[0]).join(frame, on=_KEY, how="semi")
    if store is not None:
        stored = stored_work(store, span, keys)
        stored = stored.join(own.select(*_KEY, "end"), on=[*_KEY, "end"], how="anti")
        own = pl.concat([stored, own])
    return own.sort(*_KEY, "end")


def stored_work(
    store: Store, span: tuple[datetime, datetime], keys: Sequence[TargetKey] | None = None
) -> pl.DataFrame:
    """Rows of work of the stored minutes that end in a span (since, until]."""
    rows = store.past(*span, keys, _NUMBERS).filter(pl.col("seconds") == MINUTE)
    return work_of(rows)


def detection_from(
    store: Store, until: datetime | None, keys: Sequence[TargetKey] | None = None
) -> Detection:
    """The detection of some targets (None = all) after a minute, from the store."""
    references = References().with_more(store.references())
    if until is None:
        return Detection(references=references)
    return Detection(stored_work(store, (until - KEPT, until), keys), references)


def trimmed(detection: Detection, until: datetime) -> Detection:
    """Without minutes that are too old."""
    work = detection.work.filter(pl.col("end") > until - KEPT)
    return replace(detection, work=work)
