"""Columns on a grid → rows of the scrape table: one per (instance, engine, scrape)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import orjson
import polars as pl

from driftwatch.collect.pages.foreign import STATS_DISABLED
from driftwatch.collect.prometheus.columns import KEYS, Gathered, says_engine
from driftwatch.collect.prometheus.numbers import ArrayAnswer, LongAnswer
from driftwatch.collect.prometheus.placement import Placement
from driftwatch.collect.prometheus.query import Labels, Query, short_name
from driftwatch.collect.prometheus.table import gather
from driftwatch.collect.registry import BY_COLUMN, Metric
from driftwatch.collect.schema import (
    SCRAPE_SCHEMA,
    TIME,
    Collected,
    SourceProblem,
    scrape_frame,
)
from driftwatch.model import Target, TargetKey

_CLOCK = {"instance": pl.String, "at": pl.Int64, "time": pl.Int64, "up": pl.Boolean}


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A query with what came of it."""

    query: Query  # what was asked
    placement: Placement  # where the series of the answer belong
    answers: ArrayAnswer  # what came, possibly nothing
    failure: str | None  # why not all of it came, None where all did
    doubt: str | None = None  # what the API warned of: some of it may be missing, nobody knows what

    @property
    def lacks(self) -> str | None:
        """Why something of it may be missing."""
        return self.failure or self.doubt


def failed_rows(targets: Mapping[TargetKey, Target], at: datetime, reason: str) -> pl.DataFrame:
    """A row with ``ok`` False for each target."""
    return scrape_frame(
        [
            {"instance": key.instance, "engine": key.engine, "time": at, "ok": False}
            | {"reason": reason}
            for key in sorted(targets)
        ]
    )


def scrape_rows(
    up: LongAnswer,
    scraped_at: LongAnswer,
    results: Sequence[QueryResult],
    *,
    since: datetime,
    any_instance: bool,
    earlier_targets: Mapping[TargetKey, Target],
    unclocked: str | None = None,
    at_once: bool = True,
) -> Collected:
    """All answers of one interval → its rows, targets and problems.

    Args:
        scraped_at: ``timestamp(up)`` on the grid, in unix seconds; nothing: grid times count.
        since: scrapes before it were seen by the interval before.
        any_instance: an instance with ``up`` but no ``vllm:`` series is a vLLM server too.
        unclocked: why ``timestamp(up)`` was not answered.
    """
    clock, scraped_as = _clock(up, scraped_at)
    into = Gathered()
    for one in results:
        gather(one.placement, one.answers, scraped_as, into, at_once=at_once)
    present = _present(into)
    labels = into.labels(results[0].placement.roster)
    if not up.heads:
        # an API without `up` (recording rules, federation): a sample is its own proof
        clock = present.select("instance", "at").unique().sort("instance", "at")
        clock = clock.with_columns(pl.col("at").alias("time"), pl.lit(True).alias("up"))
    else:
        _note_without_up(clock, present, into)
    if not any_instance:
        ours = {key.instance for key in earlier_targets} | set(present["instance"].unique())
        clock = clock.filter(pl.col("instance").is_in(sorted(ours)))
    engines = _engines(present, earlier_targets, clock)
    targets = _targets(engines, labels, scraped_as, earlier_targets)
    clock = clock.filter(pl.col("time") >= _ms(since)).unique(
        ["instance", "time"], keep="first", maintain_order=True
    )
    good = clock.filter("up").join(present, on=["instance", "at"], how="inner")
    silent = clock.join(good, on=["instance", "at"], how="anti").join(engines, on="instance")
    unread = sorted({one.lacks for one in results if one.lacks is not None and _vllm(one.query)})
    frames = [
        _columns(good, into, results, labels, scraped_as, _doubt(up, scraped_at, unclocked)),
        silent.select(
            "instance",
            "engine",
            _time(),
            pl.lit(False).alias("ok"),
            pl.when("up")
            .then(pl.lit(f"no vllm: series was read ({unread[0]})" if unread else STATS_DISABLED))
            .otherwise(pl.lit("up == 0"))
            .alias("reason"),
        ),
    ]
    scrapes = pl.concat([scrape_frame([]), *frames], how="diagonal").sort(
        "instance", "engine", "time"
    )
    return Collected(scrapes.rechunk(), targets, tuple(into.problems))


def _clock(
    up: LongAnswer, scraped_at: LongAnswer
) -> tuple[pl.DataFrame, dict[str, Mapping[str, str]]]:
    """When each instance was scraped, and how that went.

    Of two ``up`` series of one instance at the same time (two jobs scrape it) the one that
    succeeded counts, then the one with the newest sample.

    Returns:
        ``instance``, ``at``, ``time`` (unix ms of the scrape), ``up``, sorted; and instance →
        labels of its ``up`` series at the end.
    """
    of_up = up.labels
    instances = [labels.get("instance") for labels in of_up]
    names = [short_name(labels) for labels in of_up]
    series = pl.DataFrame(
        {"series": range(len(names)), "instance": instances, "name": names},
        schema={"series": pl.UInt32, "instance": pl.String, "name": pl.String},
    ).drop_nulls()
    # timestamp() drops the metric's name
    place = {_labels_text(labels): i for i, labels in enumerate(of_up)}
    there = [place.get(_labels_text(labels)) for labels in scraped_at.labels]
    which = pl.DataFrame(
        {"series": range(len(there)), "of": there}, schema={"series": pl.UInt32, "of": pl.UInt32}
    )
    times = scraped_at.long.join(which, on="series").select(
        pl.col("of").alias("series"), "at", (pl.col("value") * 1000).round().alias("time")
    )
    best = (
        up.long.join(series, on="series")
        .join(times.drop_nulls(), on=["series", "at"], how="left")
        .with_columns(
            (pl.col("value") == 1).alias("up"),
            pl.col("time").fill_nan(None).fill_null(pl.col("at")).cast(pl.Int64),
            pl.col("at").max().over("series").alias("newest"),
        )
        .sort(
            "instance", "at", "up", "newest", "name", descending=[False, False, True, True, False]
        )
        .unique(["instance", "at"], keep="first", maintain_order=True)
    )
    last = best.unique("instance", keep="last", maintain_order=True)
    scraped_as: dict[str, Labels] = {
        instance: {k: v for k, v in of_up[index].items() if k != "__name__"}
        for instance, index in last.select("instance", "series").iter_rows()
    }
    return best.select(list(_CLOCK)), scraped_as


def _labels_text(labels: Mapping[str, str]) -> bytes:
    bare = {k: v for k, v in labels.items() if k != "__name__"}
    return orjson.dumps(bare, option=orjson.OPT_SORT_KEYS)


def _vllm(query: Query) -> bool:
    return says_engine(query.metrics[0])


def _present(into: Gathered) -> pl.DataFrame:
    """(instance, engine, at) with any ``vllm:`` series of an engine."""
    empty = pl.DataFrame(schema={"instance": pl.String, "engine": pl.String, "at": pl.Int64})
    return pl.concat([empty, *into.present]).unique().sort(KEYS)


def _note_without_up(clock: pl.DataFrame, present: pl.DataFrame, into: Gathered) -> None:
    lonely = present.join(clock, on="instance", how="anti")["instance"].unique().sort()
    for instance in lonely:
        reason = "has vllm: series but no up series with these labels: not read"
        into.problems.append(SourceProblem(instance, reason))


def _engines(
    present: pl.DataFrame, earlier_targets: Mapping[TargetKey, Target], clock: pl.DataFrame
) -> pl.DataFrame:
    """instance, engine: what a scrape that says nothing stands for.

    The engines of this interval, else those known before, else engine 0.
    """
    now = present.select("instance", "engine").unique()
    before = pl.DataFrame(
        [(key.instance, key.engine) for key in earlier_targets],
        schema={"instance": pl.String, "engine": pl.String},
        orient="row",
    ).join(now, on="instance", how="anti")
    engines = pl.concat([now, before])
    instances = clock.select("instance").unique()
    return (
        instances.join(engines, on="instance", how="left")
        .with_columns(pl.col("engine").fill_null("0"))
        .sort("instance", "engine")
    )


def _targets(
    engines: pl.DataFrame,
    labels: Mapping[tuple[str, str], Labels],
    scraped_as: Mapping[str, Mapping[str, str]],
    earlier_targets: Mapping[TargetKey, Target],
) -> dict[TargetKey, Target]:
    targets: dict[TargetKey, Target] = {}
    for instance, engine in engines.iter_rows():
        key = TargetKey(instance, engine)
        shared = labels.get((instance, engine))
        if shared is None:
            before = earlier_targets.get(key)
            shared = dict(before.labels) if before else dict(scraped_as.get(instance, {}))
        targets[key] = Target(key, {**shared, "instance": instance, "engine": engine})
    return targets


def _columns(
    good: pl.DataFrame,
    into: Gathered,
    results: Sequence[QueryResult],
    labels: Mapping[tuple[str, str], Labels],
    scraped_as: Mapping[str, Labels],
    doubt: str | None,
) -> pl.DataFrame:
    """Every column of the scrapes that brought something."""
    rows = good
    if into.models:
        models = pl.concat(into.models).unique(KEYS, keep="first", maintain_order=True)
        rows = rows.join(models, on=KEYS, how="left")
    for column, frame in into.frames.items():
        metric = BY_COLUMN[column]
        if metric.type == "info":
            texts = _config_texts(frame, metric, into.texts[column], labels, scraped_as)
            rows = rows.join(texts, on=KEYS, how="left")
        elif metric.per_engine:
            rows = rows.join(frame, on=KEYS, how="left")
        else:
            rows = _process_column(rows, metric, frame)
    rows = rows.with_columns(
        _time(), pl.lit(True).alias("ok"), *_several(rows, results), _unread(rows, results, doubt)
    )
    return rows.select(name for name in SCRAPE_SCHEMA if name in rows.columns)


def _process_column(rows: pl.DataFrame, metric: Metric, frame: pl.DataFrame) -> pl.DataFrame:
    """A gauge of the process holds for each engine; a counter must be counted once."""
    frame = frame.unique(["instance", "at"], keep="first", maintain_order=True).drop("engine")
    rows = rows.join(frame, on=["instance", "at"], how="left")
    if metric.type == "gauge":
        return rows
    # by length first: engine 10 comes after engine 2
    order = pl.struct(pl.col("engine").str.len_bytes().alias("length"), "engine")
    first = order.rank("ordinal").over("instance", "at") == 1
    return rows.with_columns(pl.when(first).then(metric.column).alias(metric.column))


def _config_texts(
    frame: pl.DataFrame,
    metric: Metric,
    placement: Placement,
    labels: Mapping[tuple[str, str], Labels],
    scraped_as: Mapping[str, Labels],
) -> pl.DataFrame:
    """The labels that the server itself set, as the page shows them.

    A thousand servers of a pool say the same, and it is long: each text is held once.
    """
    numbers: dict[str, int] = {}
    rows: list[tuple[str, str, int, int]] = []
    for instance, engine, index in (
        frame.select("instance", "engine", "series").unique(maintain_order=True).iter_rows()
    ):
        apart = {"__name__", "engine", "instance", "job"}
        apart |= scraped_as.get(instance, {}).keys() | labels.get((instance, engine), {}).keys()
        series_labels = placement.labels(metric, index)
        ours = {k: v for k, v in series_labels.items() if k not in apart}
        text = orjson.dumps(ours, option=orjson.OPT_SORT_KEYS).decode()
        rows.append((instance, engine, index, numbers.setdefault(text, len(numbers))))
    table = pl.DataFrame(
        rows,
        schema={"instance": pl.String, "engine": pl.String, "series": pl.UInt32, "text": pl.Int64},
        orient="row",
    )
    texts = pl.Series("cache_config", list(numbers), pl.String)
    numbered = (
        frame.join(table, on=["instance", "engine", "series"], maintain_order="left")
        .select(*KEYS, "text")
        .unique(KEYS, keep="first", maintain_order=True)
    )
    return numbered.select(*KEYS, texts.gather(numbered["text"]))


def _several(rows: pl.DataFrame, results: Sequence[QueryResult]) -> list[pl.Expr]:
    """Neither the process' start nor ``_created``: several API servers, if both could be asked."""
    names = ("process_start_time_seconds", "created_seconds")
    if any(o.lacks is not None for o in results if set(names) & set(o.query.columns)):
        return []
    nothing = [pl.col(n).is_null() for n in names if n in rows.columns]
    return [pl.all_horizontal(pl.lit(True), *nothing).alias("several_api_servers")]


def _doubt(up: LongAnswer, scraped_at: LongAnswer, unclocked: str | None) -> str | None:
    """What is to be said of the rows' times."""
    if not up.heads or (unclocked is None and scraped_at.heads):
        return None
    why = unclocked or "it has no series"
    return f"times are those of the query, not of the scrape: timestamp(up) not read ({why})"


def _unread(rows: pl.DataFrame, results: Sequence[QueryResult], doubt: str | None) -> pl.Expr:
    """Which columns a row lacks because their query failed or warned, and what else is doubtful."""
    texts: list[pl.Expr] = [] if doubt is None else [pl.lit(doubt)]
    for one in results:
        if one.lacks is None:
            continue
        for column in one.query.columns:
            name = f"{column}_count" if BY_COLUMN[column].type == "histogram" else column
            text = pl.lit(f"{column} not read ({one.lacks})")
            lost = pl.col(name).is_null() if name in rows.columns else pl.lit(True)
            texts.append(pl.when(lost).then(text))
    if not texts:
        return pl.lit(None, dtype=pl.String).alias("reason")
    text = pl.concat_str(texts, separator="; ", ignore_nulls=True)
    return pl.when(text != "").then(text).alias("reason")


def _time() -> pl.Expr:
    return (pl.col("time") * 1000).cast(pl.Datetime("us")).dt.replace_time_zone("UTC").cast(TIME)


def _ms(moment: datetime) -> float:
    return round(moment.timestamp() * 1_000_000) / 1000
