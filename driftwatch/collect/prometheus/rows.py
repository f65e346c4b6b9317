"""Columns on a grid → rows of the scrape table: one per (instance, engine, scrape)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import orjson
import polars as pl

from driftwatch.collect.pages.foreign import STATS_DISABLED
from driftwatch.collect.prometheus.columns import Floats, says_engine
from driftwatch.collect.prometheus.numbers import RangeAnswer
from driftwatch.collect.prometheus.placement import Placement
from driftwatch.collect.prometheus.query import Labels, Numbers, Query, short_name
from driftwatch.collect.prometheus.table import Cells
from driftwatch.collect.registry import BY_COLUMN
from driftwatch.collect.schema import (
    SCRAPE_SCHEMA,
    TIME,
    Collected,
    SourceProblem,
    empty_scrapes,
    scrape_frame,
)
from driftwatch.model import Target, TargetKey

_CLOCK = {"instance": pl.String, "at": pl.Int64, "time": pl.Int64, "up": pl.Boolean}


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A query with what came of it."""

    query: Query  # what was asked
    placement: Placement  # where the series of the answer belong
    answers: RangeAnswer  # what came, possibly nothing
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
    up: RangeAnswer,
    scraped_at: RangeAnswer,
    results: Sequence[QueryResult],
    *,
    times: Numbers,
    since: datetime,
    any_instance: bool,
    earlier_targets: Mapping[TargetKey, Target],
    unclocked: str | None = None,
) -> Collected:
    """All answers of one interval → its rows, targets and problems.

    ``scraped_at``: ``timestamp(up)`` on the grid, in unix seconds; nothing: grid times count;
    ``times``: the grid, unix ms; ``since``: scrapes before it were seen by the interval before;
    ``any_instance``: an instance with ``up`` but no ``vllm:`` series is a vLLM server too;
    ``unclocked``: why ``timestamp(up)`` was not answered.
    """
    there = _presence(up, scraped_at, results, times, any_instance, earlier_targets)
    clock, present, labels = _since(there.clock, since), there.present, there.labels
    good = clock.filter("up").join(present, on=["instance", "at"], how="inner")
    silent = clock.join(good, on=["instance", "at"], how="anti").join(there.engines, on="instance")
    unread = sorted({one.lacks for one in results if one.lacks is not None and _vllm(one.query)})
    frames = [
        _columns(good, there.cells, labels, there.scraped_as).with_columns(
            _several(results), _unread(results, _doubt(up, scraped_at, unclocked))
        ),
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
    return Collected(scrapes.rechunk(), there.targets, tuple(there.cells.problems))


def listing(
    up: RangeAnswer,
    scraped_at: RangeAnswer,
    result: QueryResult,
    *,
    times: Numbers,
    since: datetime,
    any_instance: bool,
    earlier_targets: Mapping[TargetKey, Target],
) -> Collected:
    """Targets, problems and ``looks`` as :func:`scrape_rows`, of one query, without a row."""
    there = _presence(up, scraped_at, [result], times, any_instance, earlier_targets)
    looks = _since(there.clock, since).select(_time().dt.truncate("1m")).to_series().unique()
    problems = tuple(there.cells.problems)
    return Collected(empty_scrapes(), there.targets, problems, looks=looks.sort())


@dataclass(frozen=True, slots=True)
class _Presence:
    """Who is there, and what of them."""

    cells: Cells
    clock: pl.DataFrame  # when each instance was scraped (:func:`_clock`)
    scraped_as: Mapping[str, Labels]  # instance → labels of its ``up`` series at the end
    present: pl.DataFrame  # engines with a ``vllm:`` series, and when
    labels: Mapping[tuple[str, str], Labels]  # of each engine
    engines: pl.DataFrame  # what a scrape that says nothing stands for
    targets: Mapping[TargetKey, Target]


def _presence(
    up: RangeAnswer,
    scraped_at: RangeAnswer,
    results: Sequence[QueryResult],
    times: Numbers,
    any_instance: bool,
    earlier_targets: Mapping[TargetKey, Target],
) -> _Presence:
    clock, scraped_as = _clock(up, scraped_at)
    cells = Cells([one.placement for one in results], times)
    for one in results:
        cells.gather(one.placement, one.answers, scraped_as)
    present = _present(cells)
    labels = cells.labels()
    if not len(up.keys):
        # an API without `up` (recording rules, federation): a sample is its own proof
        clock = present.select("instance", "at").unique().sort("instance", "at")
        clock = clock.with_columns(pl.col("at").alias("time"), pl.lit(True).alias("up"))
    else:
        _note_without_up(clock, present, cells)
    if not any_instance:
        ours = {key.instance for key in earlier_targets} | set(present["instance"].unique())
        clock = clock.filter(pl.col("instance").is_in(sorted(ours)))
    engines = _engines(present, earlier_targets, clock)
    targets = _targets(engines, labels, scraped_as, earlier_targets)
    return _Presence(cells, clock, scraped_as, present, labels, engines, targets)


def _since(clock: pl.DataFrame, since: datetime) -> pl.DataFrame:
    """Scrapes from then on, each once."""
    return clock.filter(pl.col("time") >= _ms(since)).unique(
        ["instance", "time"], keep="first", maintain_order=True
    )


def _clock(
    up: RangeAnswer, scraped_at: RangeAnswer
) -> tuple[pl.DataFrame, dict[str, Mapping[str, str]]]:
    """When each instance was scraped, and how that went.

    Of two ``up`` series of one instance at the same time (two jobs scrape it) the one that
    succeeded counts, then the one with the newest sample.

    Returns: ``instance``, ``at``, ``time`` (unix ms of the scrape), ``up``, sorted; and instance →
    labels of its ``up`` series at the end.
    """
    of_up = up.labels
    series = pl.DataFrame(
        {
            "series": range(len(of_up)),
            "instance": [labels.get("instance") for labels in of_up],
            "name": [short_name(labels) for labels in of_up],
        },
        schema={"series": pl.Int64, "instance": pl.String, "name": pl.String},
    ).drop_nulls()
    # timestamp() drops the metric's name
    place = {_labels_text(labels): i for i, labels in enumerate(of_up)}
    of = np.array([place.get(_labels_text(labels), -1) for labels in scraped_at.labels], np.int64)
    times = _long(scraped_at).select(
        pl.Series("series", of[scraped_at.samples()[0]]),
        "at",
        (pl.col("value") * 1000).round().alias("time"),
    )
    best = (
        _long(up)
        .join(series, on="series")
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


def _long(answer: RangeAnswer) -> pl.DataFrame:
    """``series``, ``at``, ``value`` of each sample."""
    series, time, value = answer.samples()
    return pl.DataFrame({"series": series, "at": answer.times[time], "value": value})


def _labels_text(labels: Mapping[str, str]) -> bytes:
    bare = {k: v for k, v in labels.items() if k != "__name__"}
    return orjson.dumps(bare, option=orjson.OPT_SORT_KEYS)


def _vllm(query: Query) -> bool:
    return says_engine(query.metrics[0])


def _present(cells: Cells) -> pl.DataFrame:
    """``instance``, ``engine``, ``at`` and cell with any ``vllm:`` series of an engine."""
    cell = np.nonzero(cells.present)[0]
    names = pl.DataFrame(cells.engines, schema={"instance": pl.String, "engine": pl.String},
                         orient="row")  # fmt: skip
    at = pl.Series("at", cells.times[cell % len(cells.times)], pl.Int64)
    return names[cell // len(cells.times)].with_columns(at, pl.Series("cell", cell, pl.Int64))


def _note_without_up(clock: pl.DataFrame, present: pl.DataFrame, cells: Cells) -> None:
    lonely = present.join(clock, on="instance", how="anti")["instance"].unique().sort()
    for instance in lonely:
        reason = "has vllm: series but no up series with these labels: not read"
        cells.problems.append(SourceProblem(instance, reason))


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
    cells: Cells,
    labels: Mapping[tuple[str, str], Labels],
    scraped_as: Mapping[str, Labels],
) -> pl.DataFrame:
    """Every column of the scrapes that brought something."""
    cell = good["cell"].to_numpy()
    models = pl.Series("model_name", cells.placements[0].roster.models, pl.String)
    columns = [_gathered(models, cells.of_model[cell])]
    once = []
    for name, values in cells.values.items():
        if name in BY_COLUMN and not BY_COLUMN[name].per_engine:
            values = _of_process(cells, values)
            once += [name] if BY_COLUMN[name].type == "counter" else []
        columns.append(pl.Series(name, values[cell]).fill_nan(None))
    columns += [lists.of(cell).alias(name) for name, lists in cells.lists.items()]
    for name, (placement, series) in cells.infos.items():
        text = _config_texts(cells, placement, cell, series[cell], labels, scraped_as)
        columns.append(text.alias(name))
    # a counter of the process must be counted once; by length first: engine 10 comes after engine 2
    order = pl.struct(pl.col("engine").str.len_bytes().alias("length"), "engine")
    first = order.rank("ordinal").over("instance", "at") == 1
    rows = good.with_columns(_time(), *columns, ok=pl.lit(True)).with_columns(
        pl.when(first).then(name).alias(name) for name in once
    )
    rows = pl.concat([empty_scrapes(), rows], how="diagonal")
    return rows.select(list(SCRAPE_SCHEMA))


def _gathered(values: pl.Series, index: Numbers) -> pl.Series:
    """The value of each index, NULL where that is below 0."""
    return values.gather(pl.Series(index).set(pl.Series(index < 0), None))


def _of_process(cells: Cells, values: Floats) -> Floats:
    """Values of the first engine that has one for all engines of the instance."""
    numbers: dict[str, int] = {}
    of = np.array([numbers.setdefault(name, len(numbers)) for name, _ in cells.engines], np.int64)
    table = values.reshape(len(of), -1)
    row, time = (one[::-1] for one in np.nonzero(~np.isnan(table)))  # the first is written last
    process = np.full((len(numbers), table.shape[1]), np.nan)
    process[of[row], time] = table[row, time]
    return process[of].reshape(-1)


def _config_texts(
    cells: Cells,
    placement: Placement,
    cell: Numbers,
    series: Numbers,
    labels: Mapping[tuple[str, str], Labels],
    scraped_as: Mapping[str, Labels],
) -> pl.Series:
    """The labels that the server itself set, as the page shows them, of each cell.

    A thousand servers of a pool say the same, and it is long: each text is held once.
    """
    metric = placement.query.metrics[0]
    numbers: dict[str, int] = {}
    row = cell // max(1, len(cells.times))
    pairs, which = np.unique(np.stack([row, series]), axis=1, return_inverse=True)
    texts = []
    for engine_row, index in pairs.T.tolist():
        if index < 0:
            texts.append(-1)
            continue
        instance, engine = cells.engines[engine_row]
        apart = {"__name__", "engine", "instance", "job"}
        apart |= scraped_as.get(instance, {}).keys() | labels.get((instance, engine), {}).keys()
        ours = {k: v for k, v in placement.labels(metric, index).items() if k not in apart}
        text = orjson.dumps(ours, option=orjson.OPT_SORT_KEYS).decode()
        texts.append(numbers.setdefault(text, len(numbers)))
    number = np.array(texts, np.int64)[which.reshape(-1)]
    return _gathered(pl.Series(list(numbers), dtype=pl.String), number)


def _several(results: Sequence[QueryResult]) -> pl.Expr:
    """Neither the process' start nor ``_created``: several API servers, if both could be asked."""
    names = ("process_start_time_seconds", "created_seconds")
    lacking = any(o.lacks is not None for o in results if set(names) & set(o.query.columns))
    several = pl.lit(None, pl.Boolean) if lacking else pl.all_horizontal(pl.col(names).is_null())
    return several.alias("several_api_servers")


def _doubt(up: RangeAnswer, scraped_at: RangeAnswer, unclocked: str | None) -> str | None:
    """What is to be said of the rows' times."""
    if not len(up.keys) or (unclocked is None and len(scraped_at.keys)):
        return None
    why = unclocked or "it has no series"
    return f"times are those of the query, not of the scrape: timestamp(up) not read ({why})"


def _unread(results: Sequence[QueryResult], doubt: str | None) -> pl.Expr:
    """Which columns a row lacks because their query failed or warned, and what else is doubtful."""
    texts: list[pl.Expr] = [] if doubt is None else [pl.lit(doubt)]
    for one in results:
        for column in one.query.columns if one.lacks is not None else ():
            name = f"{column}_count" if BY_COLUMN[column].type == "histogram" else column
            texts.append(
                pl.when(pl.col(name).is_null()).then(pl.lit(f"{column} not read ({one.lacks})"))
            )
    text = pl.concat_str([pl.lit(""), *texts], separator="; ", ignore_nulls=True)
    return text.str.strip_prefix("; ").replace("", None).alias("reason")


def _time() -> pl.Expr:
    return (pl.col("time") * 1000).cast(pl.Datetime("us")).dt.replace_time_zone("UTC").cast(TIME)


def _ms(moment: datetime) -> float:
    return round(moment.timestamp() * 1_000_000) / 1000
