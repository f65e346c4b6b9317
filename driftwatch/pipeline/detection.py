"""The detectors' part of a tick: it adds to their recent minutes and references."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import polars as pl

from driftwatch.collect.schema import KEY, keys_frame
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

# No detector reads histograms, which are most of a stored minute.
_NUMBERS = [name for name, dtype in STORED_SCHEMA.items() if dtype != pl.List(pl.Float64)]


def _keys(keys: Iterable[TargetKey]) -> pl.DataFrame:
    return keys_frame(keys).cast({name: WORK_SCHEMA[name] for name in KEY})


@dataclass(frozen=True, slots=True)
class Detection:
    """The detectors' input; :func:`detection_from` reads it from the store."""

    # :data:`driftwatch.detect.speed.load.WORK_SCHEMA`, of the last :data:`KEPT` before a tick
    work: pl.DataFrame = field(default_factory=no_work)
    references: References = field(default_factory=References)

    def without(self, keys: Iterable[TargetKey]) -> Detection:
        """The detection without these targets; their learnt days stay."""
        gone = list(keys)
        if not gone:
            return self
        work = self.work.join(_keys(gone), on=KEY, how="anti", maintain_order="left")
        return Detection(work, self.references.without(gone))


def detect(
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
        minutes: MINUTE_SCHEMA, of the span.
        reference: REFERENCE_SCHEMA, the lengths to compare with.
        accepts: use a proposed baseline where no person has accepted one.
    """
    first, last = span
    pools = minutes["pool"].fill_null("").unique().to_list()
    places, parts = [], [pl.DataFrame(schema=SCHEMA)]
    while first < last and len(minutes):
        due = next_due(first, detection.references, pools)
        until = min(last, due)
        here = minutes.select(pl.col("end").is_between(first, until, closed="right").arg_true())
        rows, work = minutes[here.to_series()], detection.work.filter(pl.col("end") <= first)
        references = detection.references
        new = work_of(rows)
        recent = pl.concat([work, new]).filter(pl.col("end") > until - KEPT)
        scored = score(recent, references, baselines, reference, first, accepts=accepts)
        work = pl.concat([work, new.with_columns(slower=_slower(scored.columns))])
        if due == until:
            older = partial(_older, work, store, until)
            more = learn(scored, references, baselines, reference, older, until)
            references = references.with_newer(more)
        if store is not None and is_due(until):
            references = _with_days(references, rows, baselines, store, until)
        detection = Detection(work, references)
        places.append(here.to_series())
        parts.append(scored.columns)
        first = until
    if len(places) < 2:
        return parts[-1], detection
    return pl.concat(parts)[pl.concat(places).arg_sort()], detection


def _with_days(
    references: References,
    minutes: pl.DataFrame,
    baselines: Baselines,
    store: Store,
    midnight: datetime,
) -> References:
    """Add the day before a midnight, for targets without a baseline."""
    targets = minutes.select(*KEY, pl.col("pool").fill_null("")).unique(maintain_order=True)
    own = [
        TargetKey(instance, engine)
        for instance, engine, pool in targets.iter_rows()
        if baselines.of_target(instance, engine, pool) is None
    ]
    past = store.past(*day_before(midnight), own, _NUMBERS) if own else minutes.clear()
    if len(past):
        references = references.with_newer(learn_usual(past, references, midnight))
    return references.without_days_before(midnight - LONGEST_ABSENCE)


def _slower(columns: pl.DataFrame) -> pl.Series:
    """Whether either verdict is slower; NULL where both are unknown."""
    return columns.select(slower=pl.any_horizontal(*VERDICTS)).to_series()


def _older(
    work: pl.DataFrame,
    store: Store | None,
    until: datetime,
    keys: Sequence[TargetKey],
    since: datetime,
) -> pl.DataFrame:
    """Rows of work of some targets since a time: recent ones, and older ones from the store."""
    own = work.filter(pl.col("end") > since).join(_keys(keys), on=KEY, how="semi")
    if store is not None:
        stored = _stored_work(store, (since, until), keys)
        stored = stored.join(own.select(*KEY, "end"), on=[*KEY, "end"], how="anti")
        own = pl.concat([stored, own])
    return own.sort(*KEY, "end")


def _stored_work(
    store: Store, span: tuple[datetime, datetime], keys: Sequence[TargetKey] | None
) -> pl.DataFrame:
    """Rows of work of the stored minutes that end in a span (since, until]."""
    return work_of(store.past(*span, keys, _NUMBERS).filter(pl.col("seconds") == MINUTE))


def detection_from(
    store: Store, until: datetime | None, keys: Sequence[TargetKey] | None = None
) -> Detection:
    """The detection of some targets (None = all) after a minute, read from the store."""
    references = References().with_newer(store.references())
    if until is None:
        return Detection(references=references)
    return Detection(_stored_work(store, (until - KEPT, until), keys), references)


def trim(detection: Detection, until: datetime) -> Detection:
    """The detection without minutes that are too old."""
    return Detection(detection.work.filter(pl.col("end") > until - KEPT), detection.references)
