"""The evidence of a store's minutes, a UTC day at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import polars as pl

from driftwatch.baselines.in_force import in_force
from driftwatch.collect.schema import KEY
from driftwatch.detect.days import with_usual
from driftwatch.detect.references import References
from driftwatch.errors import NoVerdict
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.evaluation import TEN_MINUTES, minute_windows, stored_evidence
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.stored_state import stored_targets
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store

NO_MINUTES = "the server is gone (no minute of it is stored)"
NOTE = "only whole minutes are judged; they are kept for two days, then as rows of ten minutes"
_DAY = timedelta(days=1)
# Rows that are made evidence at a time: a day of 25 targets.
_MOST_ROWS = 36_000

Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Minutes with the same targets, and those that left with the last one."""

    first: datetime  # start of the first minute
    last: datetime  # end of the last one
    targets: Mapping[TargetKey, Target]  # with their pools
    retired: Mapping[TargetKey, str]  # target → why

    @property
    def staying(self) -> Mapping[TargetKey, Target]:
        """The targets after the last minute."""
        return {key: one for key, one in self.targets.items() if key not in self.retired}


class StoredHistory:
    """Evidence rows of a span.

    Args:
        span: from, to.
        plan: whose pools, settings and latency targets hold; the rules do not matter.

    Raises:
        NoVerdict: no minute is stored of the span.
    """

    def __init__(self, store: Store, span: Span, plan: Plan) -> None:
        self.store, self.plan = store, plan
        reach = store.minutes_reach()
        first, last = (at.replace(second=0, microsecond=0) for at in span)
        if reach is not None:  # what lies before and after was not judged
            first, last = max(first, reach[0]), min(last, reach[1])
        self.span = first, max(first, last)
        edges = [first]
        while edges[-1] < last:
            midnight = edges[-1].astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            edges.append(min(midnight + _DAY, last))
        self.days = list(pairwise(edges))
        if reach is None or not any(self._has_minutes(day) for day in self.days):
            raise _nothing(span, reach)
        self._labels = stored_targets(store)
        self._baselines = store.baselines()
        self._references = References().with_more(store.references())

    def _has_minutes(self, day: Span) -> bool:
        parts = self.store.past_in_parts(*day, KEY, _MOST_ROWS)
        return any((part["seconds"] == MINUTE).any() for part in parts)

    def rows(self) -> Iterator[tuple[Span, pl.DataFrame]]:
        """Each day and its evidence rows by target and end, with ``ever_seen``, without lists."""
        before = self.store.past(self.span[0] - TEN_MINUTES, self.span[0])
        for day in self.days:
            parts, last = [], []
            for part in self.store.past_in_parts(*day, STORED_SCHEMA, _MOST_ROWS):
                own = part.filter(pl.col("seconds") == MINUTE)
                earlier = before.select(own.columns).join(own.select(KEY), on=KEY, how="semi")
                parts.append(self._evidence(own, pl.concat([earlier, own]).sort(*KEY, "end")))
                last.append(own.filter(pl.col("end") > day[1] - TEN_MINUTES))
            before, rows = pl.concat(last), pl.concat(parts)
            parts.clear()
            yield day, rows
            del rows

    def _evidence(self, minutes: pl.DataFrame, recent: pl.DataFrame) -> pl.DataFrame:
        targets = self.plan.assign(self.targets(minutes))
        windows, last = minute_windows(minutes), minutes["end"].max()
        assert isinstance(last, datetime)  # noqa: S101 - there is a minute
        reference = self.reference(targets, last.date())
        evidence = stored_evidence(minutes, windows, targets, self.plan, reference, recent)
        evidence = evidence.with_columns(minutes["pool"], minutes["ever_seen"])
        return evidence.select(pl.exclude(pl.List(pl.Float64)))

    def reference(self, targets: Mapping[TargetKey, Target], day: date) -> pl.DataFrame:
        """What is "before" of targets on a day: their baselines now, else their days before it."""
        measured = in_force(self._baselines, targets, self.plan).reference
        declared = self.plan.declared_reference(targets.values())
        return with_usual(measured, declared, self._references, day)

    def targets(self, rows: pl.DataFrame) -> dict[TargetKey, Target]:
        """The targets of rows, with their newest labels."""
        last = rows.group_by(KEY, maintain_order=True).agg(pl.col("model_name").drop_nulls().last())
        targets = {}
        for instance, engine, model in last.iter_rows():
            key = TargetKey(instance, engine)
            own = {"instance": instance, "engine": engine}
            own |= {"model_name": model} if model else {}
            targets[key] = self._labels.get(key) or Target(key, own)
        return targets

    def stretches(self, day: Span, rows: pl.DataFrame) -> Iterator[Stretch]:
        """Who had minutes when: one who has none any more is retired with the last."""
        minute = pl.duration(minutes=1)
        begins = (pl.col("end").diff().over(KEY) != minute).fill_null(True)
        runs = (
            rows.select(*KEY, "pool", "end")
            .with_columns(run=(begins | (pl.col("pool") != pl.col("pool").shift(1))).cum_sum())
            .group_by(*KEY, "pool", "run", maintain_order=True)
            .agg(first=pl.col("end").min() - minute, last=pl.col("end").max())
            .sort(KEY)
        )
        known = self.targets(rows)
        for first, last in pairwise(sorted({*runs["first"], *runs["last"]})):
            here = runs.filter((pl.col("first") <= first) & (pl.col("last") >= last))
            targets, retired = {}, {}
            for instance, engine, pool, until in here.select(*KEY, "pool", "last").iter_rows():
                key = TargetKey(instance, engine)
                targets[key] = replace(known[key], pool=pool)
                if until == last and last < day[1]:
                    retired[key] = NO_MINUTES
            if targets:
                yield Stretch(first, last, targets, retired)


def _nothing(span: Span, reach: Span | None) -> NoVerdict:
    """That no minute is there, and from when to when some are."""
    form = "%Y-%m-%d %H:%M"
    return NoVerdict(
        f"no minute with a usable scrape between {span[0]:{form}} and {span[1]:{form}} UTC is "
        "stored",
        help_text="nothing is stored yet: driftwatch run -c driftwatch.yaml"
        if reach is None
        else f"minutes reach from {reach[0]:{form}} to {reach[1]:{form}} UTC",
    )
