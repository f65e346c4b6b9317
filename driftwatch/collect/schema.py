"""The scrape table: what every source delivers, one row per (instance, engine, scrape).

Counters and histograms are cumulative, exactly as scraped; NULL is "not on the page", never 0.
A scrape that failed is a row with ``ok`` False, every value NULL and the reason in ``reason``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

import polars as pl

from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.registry import BUCKETED, COUNTERS, GAUGES, HISTOGRAMS
from driftwatch.model import Target, TargetKey

TIME = pl.Datetime("us", "UTC")
BUCKETS = pl.List(pl.Float64)

KEY_COLUMNS = ("instance", "engine")
KEY = list(KEY_COLUMNS)  # as Polars takes column names


def _schema() -> dict[str, pl.DataType]:
    schema: dict[str, Any] = {
        "instance": pl.String,  # host:port as scraped, no scheme, no path
        "engine": pl.String,  # vLLM's engine label; "0" where the page has none
        "time": TIME,  # when the page was taken
        "ok": pl.Boolean,  # the page was read and has vllm: series of this engine
        "reason": pl.String,  # why not ok, or what is doubtful about an ok page
        "model_name": pl.String,
        "several_api_servers": pl.Boolean,  # no process_* and no _created: counters are sums
        "cache_config": pl.String,  # the newest cache_config_info labels, sorted JSON, no engine
    }
    schema |= dict.fromkeys((*GAUGES, *COUNTERS), pl.Float64)
    for name in HISTOGRAMS:
        schema |= {f"{name}_sum": pl.Float64, f"{name}_count": pl.Float64}
        if name in BUCKETED:
            schema |= {
                f"{name}_buckets": BUCKETS,  # cumulative counts per edge, +Inf last
                f"{name}_edges": BUCKETS,  # the le values, inf last
            }
    return schema


SCRAPE_SCHEMA: Mapping[str, pl.DataType] = _schema()


_EMPTY = pl.DataFrame(schema=dict(SCRAPE_SCHEMA))


def keys_frame(keys: Iterable[TargetKey]) -> pl.DataFrame:
    """Targets as rows of instance and engine, to join by."""
    rows = [tuple(key) for key in keys]
    return pl.DataFrame(rows, schema=dict.fromkeys(KEY, pl.String), orient="row")


def empty_scrapes() -> pl.DataFrame:
    """A scrape table without rows."""
    return _EMPTY.clone()


def scrape_frame(rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Rows (missing columns are NULL) → a scrape table in schema order."""
    return pl.DataFrame(rows, schema=dict(SCRAPE_SCHEMA), orient="row", strict=False)


def in_order(scrapes: pl.DataFrame) -> pl.DataFrame:
    """The rows by instance, engine and time; rows alike in these keep their order.

    Scrapes mostly are in that order, and looking costs a fiftieth of sorting. Sorted column by
    column and each in one piece: at once, a table of several chunks is held three times.
    """
    keys = [*KEY_COLUMNS, "time"]
    if is_ordered(scrapes, keys, or_same=True):
        return scrapes
    order = scrapes.select(keys).with_row_index("place").sort(keys, maintain_order=True)["place"]
    return pl.DataFrame([column.rechunk().gather(order) for column in scrapes.iter_columns()])


def only(scrapes: pl.DataFrame, wanted: pl.Expr) -> pl.DataFrame:
    """The rows for which this holds; where it holds for all of them, no copy is made."""
    holds = scrapes.select(wanted.fill_null(False).alias("holds")).to_series()
    return scrapes if holds.all() else scrapes.filter(holds)


def scrapes_once(scrapes: pl.DataFrame) -> pl.DataFrame:
    """The rows in order, the first of those with the same instance, engine and time."""
    keys, ordered = [*KEY_COLUMNS, "time"], in_order(scrapes)
    if is_ordered(ordered, keys, or_same=False):
        return ordered
    return ordered.unique(keys, keep="first", maintain_order=True)


def is_ordered(scrapes: pl.DataFrame, keys: Sequence[str], *, or_same: bool) -> bool:
    """Whether every row's keys are before the next row's; NULL is before nothing."""
    before = pl.lit(or_same)
    for key in reversed(keys):
        last = pl.col(key).shift(1)
        before = (last < pl.col(key)) | ((last == pl.col(key)) & before)
    ordered: bool = scrapes.select(before.fill_null(False).slice(1).all()).item()
    return ordered


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """Something a source could not read; what it could read is in the frame."""

    where: str  # instance, query, or file:line
    reason: str  # why, in words
    time: datetime | None = None  # when it was met
    lost: bool = True  # something is missing; False: it is there, by another way


def folded(problems: Iterable[SourceProblem]) -> tuple[SourceProblem, ...]:
    """Each problem of a place once, at its first time, with its count."""
    alike: dict[tuple[str, str], list[SourceProblem]] = {}
    for problem in problems:
        alike.setdefault((problem.where, problem.reason), []).append(problem)
    counted = []
    for (_, reason), same in alike.items():
        first = min(same, key=lambda one: (one.time is None, str(one.time)))
        text = f"{reason} ({len(same)} times)" if len(same) > 1 else reason
        counted.append(replace(first, reason=text))
    return tuple(sorted(counted, key=lambda p: (p.where, str(p.time or ""), p.reason)))


@dataclass(frozen=True, slots=True)
class Collected:
    """The answer of one call to a source."""

    scrapes: pl.DataFrame  # rows in :data:`SCRAPE_SCHEMA`, sorted by instance, engine, time
    targets: Mapping[TargetKey, Target]  # every target the source knows of now, with its labels
    problems: tuple[SourceProblem, ...] = field(default=())  # what could not be read
    # rows in :data:`driftwatch.collect.gpus.GPU_SCHEMA`.
    gpus: pl.DataFrame = field(default_factory=empty_gpus)
    # why the list of targets is unknown; None where the source answered, so that a
    # target it does not list has left
    silent: str | None = None


# Chooses which of the listed targets the source reads scrapes of.
Own = Callable[[Mapping[TargetKey, Target]], Collection[TargetKey]]


class Source(Protocol):
    """Where scrapes come from. ``collect`` is called with growing, half-open intervals.

    ``name``: unique among the sources of one process; ``settle_seconds``: how old a scrape must be
    before the source is sure to have it; 0 where the source scrapes itself. One with ``by_minute``
    True is read once a minute is complete, and not with every tick. One with ``is_live`` True
    shows the present, whatever the interval. One with ``narrows`` True
    takes a third argument (:data:`Own`) and brings the scrapes of these targets, at least.
    """

    name: str
    settle_seconds: float

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Scrapes with since <= time < until (a live page is scraped once, "now")."""

    def close(self) -> None:
        """Give back connections and files."""


@runtime_checkable
class Recording(Source, Protocol):
    """A source whose scrapes are all in the past."""

    def span(self) -> tuple[datetime, datetime]:
        """First scrape and just after the last."""

    def next_after(self, time: datetime) -> datetime | None:
        """The first scrape at or after ``time``; None after the last."""
