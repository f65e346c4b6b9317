"""What plots draw of servers: signals, usual ranges, missed requests, changes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import polars as pl

from driftwatch.collect.schema import TIME
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.model import Slo, TargetKey
from driftwatch.notify.path import short_reason
from driftwatch.numbers import count, duration, figure, percent, seconds, tokens
from driftwatch.pipeline.recent_change import changed_settings
from driftwatch.signals.slo import slo_columns
from driftwatch.store.minute_columns import STORED_SCHEMA, added_up

MOST_SPANS, _MOST_GAPS = 240, 4
_WIDTHS = (60, 120, 300, 600, 1800, 3600, 7200, 21_600)
_BLOCK, _LEAST_BLOCKS = 600, 6  # of a baseline: seconds, and the fewest that show a usual range


def _over(total: str, over: str) -> pl.Expr:
    """The ratio of two sums over the rows that have both; NULL where the second is 0."""
    both = pl.col(total).is_not_null() & pl.col(over).is_not_null()
    n = pl.col(over).filter(both).sum()
    return pl.when(n > 0).then(pl.col(total).filter(both).sum() / n)


class Signal(NamedTuple):
    """One number of a stretch of time, as plots draw it."""

    word: str
    unit: str
    value: pl.Expr  # of the stretch's rows; NULL = unknown
    number: Callable[[float], str] = figure  # in a sentence

    def write(self, value: float) -> str:
        """The number in a sentence, with its unit."""
        return self.number(value) + (f" {self.unit}" if self.number is figure else "")


_TOKENS = "generation_tokens_total"
# a whole minute without a token although requests are there
_IS_HUNG = pl.col("seconds_since_last_token").fill_null(0.0) >= 60.0
SPEED, _WHY_NO_SPEED = "speed_at_equal_load_ratio", "speed_unknown_reason"
SIGNALS: Mapping[str, Signal] = {
    "tokens_per_second_per_gpu": Signal(
        "throughput", "tokens/s/GPU", _over(_TOKENS, "gpu_seconds")
    ),
    "generation_tokens_per_second": Signal(
        "throughput", "tokens/s", _over(_TOKENS, "duration_seconds")
    ),
    "requests_per_second": Signal(
        "", "requests/s", _over("finished_requests_total", "duration_seconds")
    ),
    "requests_per_forward_pass": Signal("", "requests a step", _over("outputs", "forward_passes")),
    "batch_assembly_wait_seconds": Signal(
        "wait", "wait in the queue, s", _over("queue_seconds_sum", "queue_seconds_count"), seconds
    ),
    **{
        f"{one}_tokens_mean": Signal(
            f"{one}s", "tokens", _over(f"{one}_tokens_sum", f"{one}_tokens_count"), tokens
        )
        for one in ("prompt", "generation")
    },
    SPEED: Signal("speed", "%", pl.col("slowest").mean(), percent),
}
LATENCIES = {"ttft": "TTFT", "tpot": "TPOT"}
RATES, LENGTHS = tuple(SIGNALS)[:2], ("prompt_tokens_mean", "generation_tokens_mean")
_FLAGS = ("restarted", "configuration_changed", "release_changed")
# each start of an engine finds a little more or less memory: a smaller change says nothing
_CACHE, _CACHE_MOVED = "kv_cache_tokens", 0.01
_COUNTED = ("prompt_tokens", "generation_tokens", "queue_seconds")
# what signals and changes are computed from
COLUMNS = (
    *("end", "scrapes", "gpu_count", "itl_seconds_count", "ttft_seconds_count", SPEED, _TOKENS),
    *("seconds_since_last_token", "duration_seconds", "forward_passes"),
    *("finished_requests_total", "gpu_sm_clock_hertz"),
    *(f"{stem}_{part}" for stem in _COUNTED for part in ("sum", "count")),
    *(*_FLAGS, *COLUMN_KNOBS, _CACHE, "max_num_seqs_inferred", "step_tokens_max_of_process"),
    _WHY_NO_SPEED,
)


def width_of(since: datetime, until: datetime, rows: pl.DataFrame, shortest: int = 60) -> int:
    """Seconds of a stretch, so that at most :data:`MOST_SPANS` fit and none is below a row."""
    whole = (until - since).total_seconds()
    longest = rows["seconds"].max()
    of_row = longest if isinstance(longest, float) else 0.0
    least = max(whole / MOST_SPANS, of_row, shortest)
    return next((width for width in _WIDTHS if width >= least), _WIDTHS[-1])


def _stretch(end: pl.Expr, width: int) -> pl.Expr:
    begins = (end - pl.duration(microseconds=1)).dt.truncate(f"{width}s")
    return (begins + pl.duration(seconds=width)).cast(TIME)


def _means(rows: pl.DataFrame, width: int) -> pl.DataFrame:
    counted = rows.with_columns(pl.when(~_IS_HUNG).then(SPEED).alias(SPEED)).with_columns(
        # of the slowest server in each minute
        slowest=pl.col(SPEED).min().over("end"),
        end=_stretch(pl.col("end"), width),
        outputs=pl.col("itl_seconds_count") + pl.col("ttft_seconds_count"),
        gpu_seconds=pl.col("duration_seconds") * pl.col("gpu_count"),
    )
    values = {name: one.value for name, one in SIGNALS.items()}
    values["gpu_sm_clock_hertz"] = pl.col("gpu_sm_clock_hertz").mean()
    return counted.group_by("end").agg(**values).sort("end")


def stretches(rows: pl.DataFrame, since: datetime, until: datetime, width: int) -> pl.DataFrame:
    """``end``, :data:`SIGNALS` and the clock of every stretch of the axis, NULL where unknown.

    ``rows``: :data:`COLUMNS` at least, of any servers; ``width``: in seconds.
    """
    step = timedelta(seconds=width)
    first = _stretch(pl.lit(since + timedelta(microseconds=1), dtype=TIME), width)
    last = _stretch(pl.lit(until, dtype=TIME), width)
    ends = pl.select(pl.datetime_range(first, last, step, eager=False).cast(TIME).alias("end"))
    return ends.join(_means(rows, width), on="end", how="left", maintain_order="left")


def usual(rows: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Signal → the range of nine in ten of its ten-minute means; absent if there are too few.

    ``rows``: of a baseline's window, :data:`COLUMNS` at least.
    """
    of_ten_minutes, bands = _means(rows.filter(~_IS_HUNG), _BLOCK), {}
    for name in SIGNALS:
        values = of_ten_minutes[name].drop_nulls()
        low, high = values.quantile(0.05, "linear"), values.quantile(0.95, "linear")
        if len(values) >= _LEAST_BLOCKS and low is not None and high is not None:
            bands[name] = (low, high)
    return bands


def gaps(rows: pl.DataFrame) -> list[str]:
    """Why curves have gaps, the longest first: ``20 min of unknown speed: no baseline``.

    ``rows``: :data:`COLUMNS` at least, of one server.
    """
    speed = pl.lit("of unknown speed")
    what = (
        pl.when(pl.col("scrapes").fill_null(0.0) <= 0)
        .then(pl.lit("without a scrape"))
        .when(_IS_HUNG)
        .then(pl.lit("hung"))
        .when(pl.col(SPEED).is_null())
        .then(pl.coalesce(pl.format("{}: {}", speed, _WHY_NO_SPEED), speed))
    )
    some = rows.group_by(what=what).agg(pl.col("seconds").sum()).drop_nulls()
    some = some.sort("seconds", "what", descending=True).head(_MOST_GAPS)
    return [f"{duration(length)} {short_reason(what)}" for what, length in some.iter_rows()]


def missed(rows: pl.DataFrame, width: int, slo: Slo | None, by: Sequence[str] = ()) -> pl.DataFrame:
    """``by``, ``end``, the share of requests that missed each target, at most, and the mean speed
    of a minute; without ``by`` of all servers together.

    ``rows``: ``STORED_SCHEMA`` at least; ``width``: in seconds.
    """
    keys, slo = [*by, "end"], slo or Slo()
    at = rows.with_columns(end=_stretch(pl.col("end"), width)).sort(keys, maintain_order=True)
    total = added_up(at.select(*STORED_SCHEMA), keys)
    targets = (
        pl.lit(getattr(slo, one), pl.Float64).alias(f"slo_{one}")
        for one in ("ttft_seconds", "tpot_seconds", "share")
    )
    shares = slo_columns(total, total.select(pl.col("end"), *targets))
    known = (1 - shares[f"{name}_in_target_10m_ratio"].alias(name) for name in LATENCIES)
    speeds = at.group_by(keys).agg(pl.col(SPEED).mean())
    return total.select(keys).with_columns(known).join(speeds, on=keys, how="left")


class Change(NamedTuple):
    """A restart or change of one server."""

    at: datetime
    server: str
    what: str  # ``restart, max_num_seqs 256 → 512``


def changes(rows: pl.DataFrame) -> list[Change]:
    """When engines restarted, a setting or the release changed, in order of time.

    ``rows``: :data:`COLUMNS` at least, with instance and engine, by server and time.
    """
    is_marked = pl.any_horizontal(pl.col(name).fill_null(False) for name in _FLAGS)
    found = []
    for (instance, engine), own in rows.group_by("instance", "engine"):
        marked = own.filter(is_marked).sort("end").to_dicts()
        following = [*(row["end"] for row in marked), None][1:]
        for row, end in zip(marked, following, strict=True):
            until = own if end is None else own.filter(pl.col("end") < end)
            server = TargetKey(str(instance), str(engine)).text
            at = row["end"] - timedelta(seconds=row["seconds"])  # as a page says it
            found.append(Change(at, server, _changed(row, until)))
    return sorted(found)


def _changed(row: Mapping[str, Any], own: pl.DataFrame) -> str:
    """The change of a minute in words; ``own``: the server's minutes up to its next change."""
    words = ["restart"] if row["restarted"] else []
    moved = changed_settings(own, row["end"])
    sizes = own.filter(pl.col("end") < row["end"])[_CACHE].drop_nulls()
    if len(sizes) and row[_CACHE] is not None:
        before, now = float(sizes[-1]), row[_CACHE]
        if abs(now - before) >= _CACHE_MOVED * before:
            moved.append(f"KV cache {count(before)} → {count(now)} tokens")
    if row["configuration_changed"]:
        words += moved or ["settings changed"]
    return ", ".join(words + (["release changed"] if row["release_changed"] else []))
