"""The evidence of a store's minutes, day by day: computed once, and kept for another rule set."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import polars as pl

from driftwatch.baselines.in_force import in_force
from driftwatch.baselines.rows import baselines_from_store
from driftwatch.collect.schema import KEY
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.reference import combined
from driftwatch.errors import NoVerdict
from driftwatch.evidence import BY_NAME
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.incidents import READ_BY_INCIDENTS
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import Stretch
from driftwatch.pipeline.stored_state import stored_targets
from driftwatch.pipeline.tick import verdicts_of
from driftwatch.pipeline.window_evidence import (
    OF_HISTOGRAMS,
    TEN_MINUTES,
    minute_evidence,
)
from driftwatch.rulebook.rules import Rule
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store

NO_MINUTES = "the server is gone (no minute of it is stored)"
NOTE = "minutes are judged as long as they are kept as such, two days"
_DAY = timedelta(days=1)
# Rows that are made evidence at a time: a day of 35 targets.
_MOST_ROWS = 50_000
_READ_BY_SILENCE = ("scrapes", "slower_at_equal_load", "speed_unknown_code", "speed_unknown_reason")

Day = tuple[datetime, datetime]


def columns_read(rules: Sequence[Rule]) -> set[str]:
    """The columns of evidence that judging these rules reads."""
    of_rules = {name for rule in rules for name in rule.columns}
    return of_rules.union(READ_BY_INCIDENTS, _READ_BY_SILENCE) - {*KEY, "pool", "end"}


class StoredDays:
    """Evidence rows of a span, a UTC day at a time.

    Args:
        span: from, to.
        plan: whose pools, settings and latency targets hold; the rules do not matter.
        rules: every rule that will be judged.
        folder: where the rows are kept meanwhile.

    Raises:
        NoVerdict: no minute with a scrape is stored of the span.
    """

    def __init__(
        self,
        store: Store,
        span: tuple[datetime, datetime],
        plan: Plan,
        rules: Sequence[Rule],
        folder: Path,
    ) -> None:
        self.store, self.plan = store, plan
        self._columns = sorted(columns_read(rules))
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._verdicts: dict[tuple[datetime, str], pl.Series] = {}
        reach = store.minutes_reach()
        first, last = (at.replace(second=0, microsecond=0) for at in span)
        last = last if reach is None else min(last, reach[1])
        self.span = first, max(first, last)
        if reach is None or not any(len(self.rows(day)) for day in self.days):
            raise _nothing(span, reach)

    @cached_property
    def days(self) -> list[Day]:
        """From and to of each day of the span."""
        first, last = self.span
        edges = [first]
        while edges[-1] < last:
            midnight = edges[-1].astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            edges.append(min(midnight + _DAY, last))
        return list(pairwise(edges))

    @cached_property
    def _labels(self) -> Mapping[TargetKey, Target]:
        return stored_targets(self.store)

    def rows(self, day: Day, columns: Collection[str] = ()) -> pl.DataFrame:
        """Its minutes by target and end: KEY, pool, model_name, end, what judging takes besides
        (``ever_seen``), and these columns of evidence.
        """
        path = self._folder / f"{day[0]:%Y%m%dT%H%M}.arrow"
        if not path.exists():
            self._write(path, day)
        wanted = [*KEY, "pool", "model_name", "end", "ever_seen", *columns]
        return pl.read_ipc(path, columns=list(dict.fromkeys(wanted)))

    def verdicts(self, day: Day, rules: Sequence[Rule]) -> pl.DataFrame:
        """One Boolean column per rule id, beside the rows; what was judged before is not again."""
        text = {rule.id: rule.verdict.meta.serialize(format="json") for rule in rules}
        new = [rule for rule in rules if (day[0], text[rule.id]) not in self._verdicts]
        if new:
            rows = self.rows(day, {name for rule in new for name in rule.columns} - {*KEY, "pool"})
            for series in verdicts_of(new, rows):
                self._verdicts[day[0], text[series.name]] = series
        return pl.DataFrame(
            [self._verdicts[day[0], text[rule.id]].alias(rule.id) for rule in rules]
        )

    def _write(self, path: Path, day: Day) -> None:
        parts = [
            self._evidence(part, day).filter(pl.col("end") > day[0]).select(self._wanted)
            for part in self._parts(day)
        ]
        rows = pl.concat(parts) if parts else _no_rows(self._wanted)
        rows.sort(*KEY, "end").write_ipc(path, compression="uncompressed")

    @property
    def _wanted(self) -> list[str]:
        return [*KEY, "pool", "model_name", "end", "ever_seen", *self._columns]

    @property
    def stored_columns(self) -> list[str]:
        """The stored columns that the evidence is made of: histograms only where a rule asks."""
        if not OF_HISTOGRAMS.isdisjoint(self._columns):
            return list(STORED_SCHEMA)
        return [name for name in STORED_SCHEMA if not name.endswith(("_buckets", "_edges"))]

    def _parts(self, day: Day) -> Iterator[pl.DataFrame]:
        """The minutes of a day and of those before it that its first ones reach back to."""
        every = self.store.past(day[0] - TEN_MINUTES, day[1], columns=self.stored_columns)
        every = every.filter(pl.col("seconds") == MINUTE).drop("seconds")
        targets = every.select(KEY).unique(maintain_order=True)
        most = max(1, _MOST_ROWS * len(targets) // max(1, len(every)))
        for first in range(0, len(targets), most):
            some = targets.slice(first, most)
            yield every.join(some, on=KEY, how="semi", maintain_order="left")

    def _evidence(self, minutes: pl.DataFrame, day: Day) -> pl.DataFrame:
        targets = self.plan.assign(self.targets(minutes))
        reference = self.reference(targets)
        rows = minute_evidence(minutes, targets, self.plan, reference)
        beside = [name for name in self._columns if name not in rows.columns]
        return rows.hstack(minutes.select(*beside, "ever_seen"))

    def reference(self, targets: Mapping[TargetKey, Target]) -> pl.DataFrame:
        """What is "before" of targets now."""
        measured = in_force(self._baselines, targets, self.plan).reference
        return combined(measured, self.plan.declared_reference(targets.values()))

    @cached_property
    def _baselines(self) -> Baselines:
        return baselines_from_store(self.store)

    def targets(self, rows: pl.DataFrame) -> dict[TargetKey, Target]:
        """The targets of rows, with the labels that they were known by last."""
        last = rows.group_by(KEY, maintain_order=True).agg(pl.col("model_name").drop_nulls().last())
        targets = {}
        for instance, engine, model in last.iter_rows():
            key = TargetKey(instance, engine)
            own = {"instance": instance, "engine": engine}
            own |= {"model_name": model} if model else {}
            targets[key] = self._labels.get(key) or Target(key, own)
        return targets

    def stretches(self, day: Day, rows: pl.DataFrame) -> list[Stretch]:
        """Who had minutes when: one who has none any more is retired with the last."""
        minute = pl.duration(minutes=1)
        begins = (pl.col("end").diff().over(KEY) != minute).fill_null(True)
        runs = (
            rows.select(*KEY, "pool", "end")
            .with_columns(run=(begins | (pl.col("pool") != pl.col("pool").shift(1))).cum_sum())
            .group_by(*KEY, "pool", "run", maintain_order=True)
            .agg(first=pl.col("end").min() - minute, last=pl.col("end").max())
        )
        known = self.targets(rows)
        edges = sorted({*runs["first"], *runs["last"]})
        stretches = []
        for first, last in pairwise(edges):
            here = runs.filter((pl.col("first") <= first) & (pl.col("last") >= last)).sort(KEY)
            targets, retired = {}, {}
            for instance, engine, pool, until in here.select(*KEY, "pool", "last").iter_rows():
                key = TargetKey(instance, engine)
                targets[key] = replace(known[key], pool=pool)
                if until == last and last < day[1]:
                    retired[key] = NO_MINUTES
            if targets:
                stretches.append(Stretch(first, last, targets, retired=retired))
        return stretches


def _no_rows(names: Sequence[str]) -> pl.DataFrame:
    plain = {"float": pl.Float64, "bool": pl.Boolean, "string": pl.String}
    types = {**STORED_SCHEMA, "pool": pl.String}
    types |= {name: plain[BY_NAME[name].dtype] for name in names if name in BY_NAME}
    return pl.DataFrame(schema={name: types.get(name, STORED_SCHEMA["end"]) for name in names})


def _nothing(span: Day, reach: tuple[datetime, datetime] | None) -> NoVerdict:
    """That no minute is there, and from when to when some are."""
    form = "%Y-%m-%d %H:%M"
    return NoVerdict(
        f"no minute with a usable scrape between {span[0]:{form}} and {span[1]:{form}} UTC is "
        "stored",
        help_text="nothing is stored yet: driftwatch run -c driftwatch.yaml"
        if reach is None
        else f"minutes reach from {reach[0]:{form}} to {reach[1]:{form}} UTC",
    )
