"""The evidence of a store's minutes, a UTC day at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise

import polars as pl

from driftwatch.baselines.documents import baselines_from_store
from driftwatch.baselines.in_force import in_force
from driftwatch.collect.schema import KEY
from driftwatch.detect.reference import combined
from driftwatch.diagnose.states import columns_behind
from driftwatch.errors import NoVerdict
from driftwatch.evidence import BY_NAME
from driftwatch.minutes.schema import GIVEN_UP, QUEUED
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.incidents import READ_BY_INCIDENTS
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import Stretch
from driftwatch.pipeline.stored_evidence import TEN_MINUTES, minute_windows, stored_evidence
from driftwatch.pipeline.stored_state import stored_targets
from driftwatch.rulebook.rules import Rule
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store

NO_MINUTES = "the server is gone (no minute of it is stored)"
NOTE = "minutes are judged as long as they are kept as such, two days"
_DAY = timedelta(days=1)
# Rows that are made evidence at a time: a day of 25 targets.
_MOST_ROWS = 36_000
# What is read of a day besides what rules read: by whoever tells of silent rules, and by pages of
# the servers that they are not about.
_READ_BESIDES = (
    *("scrapes", "slower_at_equal_load", "speed_unknown_code", "speed_unknown_reason"),
    *("speed_at_equal_load_ratio", "slo_missed"),
)
_OF_LENGTHS = ("w1_ratio", "js_distance")
# Evidence that is made of histograms: without these the lists are not read.
_OF_HISTOGRAMS = frozenset(
    {
        *(f"{name}_tokens_{part}" for name in ("prompt", "generation") for part in _OF_LENGTHS),
        *("ttft_in_target_10m_ratio", "tpot_in_target_10m_ratio"),
        "binding_margin_ratio",
    }
)
# What columns are made of besides their sources.
_BESIDES_SOURCES = {
    "given_up_requests_10m": (GIVEN_UP,),
    "given_up_10m_low_ratio": (
        *(GIVEN_UP, "running_requests_max", "prefill_seconds_sum", "prompt_tokens_count"),
        "prefix_cache_queries_total",
    ),
}
# Limits are read, not told anew: their scrapes need not be.
_NOT_OF_PAGES = tuple(
    f"{name}_seconds_{part}" for name in ("itl", "e2e", "queue") for part in ("buckets", "edges")
)
OF_PAGES = tuple(name for name in STORED_SCHEMA if name not in QUEUED and name not in _NOT_OF_PAGES)
_BESIDES = (*KEY, "pool", "model_name", "end", "ever_seen")
# Of any minute, whatever is made of it.
_OF_EVERY = (
    *("pool", "model_name", "scrapes", "duration_seconds", "forward_passes", "ever_seen"),
    *("restarted", "configuration_changed", "release_changed", "forward_passes_overcounted"),
    *("gpu_count", "max_num_seqs", "max_num_batched_tokens", "max_num_seqs_inferred"),
    *("kv_cache_tokens", "kv_block_tokens"),
)

Day = tuple[datetime, datetime]


def columns_read(rules: Sequence[Rule]) -> set[str]:
    """The columns of evidence that judging these rules reads."""
    of_rules = {name for rule in rules for name in rule.columns}
    return of_rules.union(READ_BY_INCIDENTS, _READ_BESIDES) - {*KEY, "pool", "end"}


def columns_stored(evidence: Collection[str]) -> set[str]:
    """The stored columns that some columns of evidence are made of."""
    evidence = {*evidence, *columns_behind(evidence)}
    names = {*_OF_EVERY, *evidence}
    for column in (BY_NAME[name] for name in evidence if name in BY_NAME):
        for source in column.sources:
            names |= {source, f"{source}_sum", f"{source}_count"}
    for name in evidence & _BESIDES_SOURCES.keys():
        names |= {*_BESIDES_SOURCES[name]}
    if not _OF_HISTOGRAMS.isdisjoint(evidence):
        names |= {*OF_PAGES}
    return names & STORED_SCHEMA.keys()


class StoredHistory:
    """Evidence rows of a span.

    Args:
        span: from, to.
        plan: whose pools, settings and latency targets hold; the rules do not matter.

    Raises:
        NoVerdict: no minute is stored of the span.
    """

    def __init__(self, store: Store, span: tuple[datetime, datetime], plan: Plan) -> None:
        self.store, self.plan = store, plan
        reach = store.minutes_reach()
        first, last = (at.replace(second=0, microsecond=0) for at in span)
        if reach is not None:  # what lies before and after was not judged
            first, last = max(first, reach[0]), min(last, reach[1])
        self.span = first, max(first, last)
        if reach is None or not any(self._has_minutes(day) for day in self.days):
            raise _nothing(span, reach)
        self._labels = stored_targets(store)
        self._baselines = baselines_from_store(store)
        self._references: dict[tuple[TargetKey, ...], pl.DataFrame] = {}

    @cached_property
    def days(self) -> list[Day]:
        """From and to of each day of the span."""
        first, last = self.span
        edges = [first]
        while edges[-1] < last:
            midnight = edges[-1].astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            edges.append(min(midnight + _DAY, last))
        return list(pairwise(edges))

    def _has_minutes(self, day: Day) -> bool:
        parts = self.store.past_in_parts(*day, KEY, _MOST_ROWS)
        return any((part["seconds"] == MINUTE).any() for part in parts)

    def rows(self, columns: set[str]) -> Iterator[tuple[Day, pl.DataFrame]]:
        """Each day and its minutes by target and end: KEY, pool, model_name, end, ``ever_seen``,
        and these columns of evidence.
        """
        wanted = [name for name in columns if name not in _BESIDES]
        read, first = columns_stored(columns), self.span[0]
        before = self.store.past(first - TEN_MINUTES, first, columns=read)
        for day in self.days:
            parts, last = [], []
            for part in self.store.past_in_parts(*day, read, _MOST_ROWS):
                own = part.filter(pl.col("seconds") == MINUTE)
                earlier = before.join(own.select(KEY), on=KEY, how="semi")
                both = pl.concat([earlier, own]).sort(*KEY, "end") if len(earlier) else None
                evidence = self.evidence(own, minute_windows(own), both)
                parts.append(own.select(*_BESIDES).hstack(evidence.select(wanted)))
                last.append(own.filter(pl.col("end") > day[1] - TEN_MINUTES))
            before, rows = pl.concat(last), pl.concat(parts)
            parts.clear()
            yield day, rows
            del rows

    def evidence(
        self, stored: pl.DataFrame, windows: pl.DataFrame, recent: pl.DataFrame | None = None
    ) -> pl.DataFrame:
        """Evidence rows of windows, row for row; what was not read of stored rows is unknown.

        ``recent``: as :func:`stored_evidence` takes it.
        """
        targets = self.plan.assign(self.targets(stored))
        there, names = set(stored.columns), tuple(targets)
        unread = [pl.lit(None, t).alias(n) for n, t in STORED_SCHEMA.items() if n not in there]
        if names not in self._references:
            self._references[names] = self.reference(targets)
        reference = self._references[names]
        if recent is not None:
            recent = recent.with_columns(unread)
        rows = stored.with_columns(unread)
        return stored_evidence(rows, windows, targets, self.plan, reference, recent)

    def reference(self, targets: Mapping[TargetKey, Target]) -> pl.DataFrame:
        """What is "before" of targets now."""
        measured = in_force(self._baselines, targets, self.plan).reference
        return combined(measured, self.plan.declared_reference(targets.values()))

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

    def stretches(self, day: Day, rows: pl.DataFrame) -> Iterator[Stretch]:
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
                yield Stretch(first, last, targets, retired=retired)


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
