"""The one table: scrapes and windows in, evidence rows out.

A live minute, a replayed month and ``explain`` call the same function; only the windows differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY, TIME, in_order
from driftwatch.detect.reference import no_reference, with_reference
from driftwatch.detect.slo import slo_columns
from driftwatch.diagnose.evidence_order import in_schema_order
from driftwatch.diagnose.limits import (
    BINDING_WINDOW_SECONDS,
    limit_columns,
    limit_that_costs,
    with_allowances,
)
from driftwatch.diagnose.plateau import CARRIED_SCHEMA, infer_max_num_seqs
from driftwatch.signals.continuity import MAX_GAP_SECONDS, READ_BUCKETS
from driftwatch.signals.coverage import coverage_columns, input_coverage
from driftwatch.signals.engine import ALIVE_SCHEMA, engine_columns, seconds_since_last_token
from driftwatch.signals.facts import inside
from driftwatch.signals.gpus import gpu_columns
from driftwatch.signals.past import JoinedScrapes, Past, joined, left_behind
from driftwatch.signals.rows import SERVING_SCHEMA, base_columns
from driftwatch.signals.windows import Kind, totals

_BINDING = timedelta(seconds=BINDING_WINDOW_SECONDS)
# The longest window, the look-back before it in which its base scrape may lie, and a minute for
# the grid: with less, the answer would depend on how minutes are split over ticks.
HISTORY = timedelta(seconds=BINDING_WINDOW_SECONDS + MAX_GAP_SECONDS) + timedelta(minutes=1)
_LENGTH_WINDOW = timedelta(minutes=2)  # of LengthDrift

WINDOW_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "start": TIME,
    "end": TIME,
}


@dataclass(frozen=True, slots=True)
class Carried:
    """What must outlive the scrapes it was learnt from, one row per target."""

    until: datetime | None = None  # end of the last evaluated minute; None before the first
    # :data:`driftwatch.diagnose.plateau.CARRIED_SCHEMA`
    plateau: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=CARRIED_SCHEMA))
    # :data:`driftwatch.signals.engine.ALIVE_SCHEMA`
    alive: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=ALIVE_SCHEMA))
    # instance, engine, ``looked_at``, and ``seen_<input>``, ``gone_<input>`` per input
    inputs_seen: pl.DataFrame = field(
        default_factory=lambda: pl.DataFrame(schema=dict.fromkeys(KEY, pl.String))
    )
    # what evaluated scrapes leave behind; not in the store, whose scrapes make it anew
    past: Past = field(default_factory=Past)


@dataclass(frozen=True, slots=True)
class EvidenceTable:
    """Evidence rows and what the next evaluation must know."""

    # one row per window, in the windows' order: the evidence columns, then columns that pages need
    # (``allows_*``, ``binding_requests``, ``binding_since``, ``reference_*``, ``cache_config``,
    # histograms of the lengths)
    rows: pl.DataFrame
    carried: Carried  # the state after the last window
    # beside the rows, Boolean: whether any input of the target was on its page by then
    ever_seen: pl.Series


def minute_windows(targets: pl.DataFrame, since: datetime, until: datetime) -> pl.DataFrame:
    """Every whole minute of [since, until) for every target.

    ``targets``: instance, engine; ``since``: start of the first minute (a whole minute); ``until``:
    end of the last one (a whole minute).
    """
    minutes = pl.DataFrame(
        {"start": pl.datetime_range(since, until, "1m", closed="left", eager=True)}
    ).with_columns(
        pl.col("start").cast(TIME), end=(pl.col("start") + timedelta(minutes=1)).cast(TIME)
    )
    return (
        targets.select(KEY)
        .unique(maintain_order=True)
        .join(minutes, how="cross")
        .sort([*KEY, "start"])
    )


def evidence_table(
    scrapes: pl.DataFrame,
    windows: pl.DataFrame,
    *,
    kind: Kind,
    cut: bool,
    serving: pl.DataFrame,
    reference: pl.DataFrame | None = None,
    inputs: tuple[str, ...] = (),
    carried: Carried | None = None,
    gpus: pl.DataFrame | None = None,
    gpu_targets: pl.DataFrame | None = None,
) -> EvidenceTable:
    """Evidence rows of windows.

    ``scrapes``: scrape table; must reach 10 minutes and one scrape further back than the windows,
    or as far as the last scrape that the carried past knows of. A whole window takes nothing from
    the past; ``windows``: :data:`WINDOW_SCHEMA`, ascending ``end`` within a target; ``kind``:
    ``chained`` for the minute grid, ``whole`` for a window a person asked for. The ``_10m`` and
    ``_2m`` columns of a whole window do not reach outside it; ``cut``: leave out what lies before
    the last restart or knob change in the window; a minute of the grid adds up both sides instead,
    so that no request is lost; ``serving``: :data:`driftwatch.signals.rows.SERVING_SCHEMA`, one row
    per target, as configured; ``reference``: :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`;
    ``inputs``: registry columns whose loss counts as lost coverage; ``carried``: state from the
    evaluation before; ``gpus``: GPU table (:data:`driftwatch.collect.gpus.GPU_SCHEMA`);
    ``gpu_targets``: :data:`driftwatch.signals.gpus.GPU_TARGET_SCHEMA`.
    """
    before = carried or Carried()
    scrapes = in_order(scrapes)
    scraped = joined(scrapes, before.past if kind == "chained" else Past())
    numbered = scraped.numbered(windows)
    own = totals(
        scraped.scrapes,
        numbered,
        kind=kind,
        cut=cut,
        values=scraped.values,
        histograms=READ_BUCKETS,
    )
    binding_windows = _reaching_back(numbered, _BINDING, kind)
    last_10m = _cut(scraped, binding_windows, kind, _SUMS_10M, ("ttft_seconds", "tpot_seconds"))
    last_2m = _cut(scraped, _reaching_back(numbered, _LENGTH_WINDOW, kind), kind, _SUMS_2M)
    settings, plateau, limits = _settings_and_limits(
        scraped, windows, binding_windows, serving, own, before
    )
    on_gpus = gpu_columns(windows, gpus, gpu_targets)
    # GPUs of this engine: declared, else found; whatever divides by them reads this column
    settings = settings.with_columns(gpus_per_replica=on_gpus["gpu_count"])
    stuck = seconds_since_last_token(scraped.alive(), numbered, scraped.numbered(before.alive))
    inputs_seen = input_coverage(scrapes, windows, before.inputs_seen, inputs)

    rows = base_columns(own, settings).with_columns(on_gpus)
    rows = rows.with_columns(
        *stuck.select("seconds_since_last_token"),
        *engine_columns(scraped.epochs, numbered),
        *slo_columns(last_10m, settings),
        *coverage_columns(inputs_seen, serving).drop([*KEY, "end"]),
        *ten_minute_columns(last_10m),
    )
    rows = _only_when_fresh(_with_limits(rows, limits))
    known_before = no_reference() if reference is None else reference
    rows = with_reference(rows, last_2m, last_10m, known_before)
    rows = _with_idle_peers(with_allowances(rows))
    return EvidenceTable(
        in_schema_order(rows),
        _carried(windows, plateau, stuck, inputs_seen, _past(scraped, windows, kind, cut)),
        _ever_seen(inputs_seen),
    )


def _ever_seen(inputs_seen: pl.DataFrame) -> pl.Series:
    inputs = [pl.col(c).is_not_null() for c in inputs_seen.columns if c.startswith("seen_")]
    return inputs_seen.select(
        ever_seen=pl.any_horizontal(pl.repeat(False, pl.len(), dtype=pl.Boolean), *inputs)
    ).to_series()


def _cut(
    scraped: JoinedScrapes,
    windows: pl.DataFrame,
    kind: Kind,
    sums: tuple[str, ...],
    histograms: tuple[str, ...] = (),
) -> pl.DataFrame:
    """Totals of windows that reach back, without what lies before a restart or a knob change."""
    return totals(
        scraped.scrapes,
        windows,
        kind=kind,
        cut=True,
        values=scraped.values,
        sums=sums,
        histograms=histograms,
        means=False,
    )


def _settings_and_limits(
    scraped: JoinedScrapes,
    windows: pl.DataFrame,
    binding_windows: pl.DataFrame,
    serving: pl.DataFrame,
    own: pl.DataFrame,
    before: Carried,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Settings per window, the plateau that max_num_seqs is inferred from, and what binds."""
    pairs = inside(scraped.scrapes, binding_windows)
    plateau = infer_max_num_seqs(
        scraped.scrapes,
        binding_windows,
        scraped.numbered(before.plateau),
        None if before.until is None else pl.lit(before.until, dtype=TIME),
        scraped.numbered(serving),
        pairs,
    )
    settings = _serving_now(windows, serving, plateau, own)
    limiting = settings.with_row_index("window").select("window", *_LIMITING)
    limiting = limiting.with_columns(plateau["running_max"])
    return settings, plateau, limit_columns(pairs, limiting)


def _with_limits(rows: pl.DataFrame, limits: pl.DataFrame) -> pl.DataFrame:
    """What binds beside each window, and what it costs those that wait."""
    return (
        rows.with_row_index("window")
        .join(limits, on="window", how="left", maintain_order="left")
        .drop("window")
        .with_columns(limit_that_costs(), queue_wait_estimate_10m_seconds=_queue_wait())
    )


# Settings that the limits are told from.
_LIMITING = (
    "max_num_seqs",
    "max_num_seqs_inferred",
    "max_num_batched_tokens",
    "api_server_count",
)
# A router that is fair gives every server of a pool as much; half of it is beyond the chance of 30
# requests.
_GIVEN_LESS_RATIO = 0.5
# What is read of the windows that reach back; windows.py makes nothing else of them.
_SUMS_2M = tuple(
    f"{h}_{part}" for h in ("prompt_tokens", "generation_tokens") for part in ("sum", "count")
)
_SUMS_10M = (
    "queue_seconds_sum",
    "queue_seconds_count",
    "ttft_seconds_sum",
    "ttft_seconds_count",
    "tpot_seconds_sum",
    "tpot_seconds_count",
    *_SUMS_2M,
)
# Columns that reach further back than the window itself.
_REACHING_BACK = (
    "observed_10m_seconds",
    "batch_assembly_wait_10m_seconds",
    "ttft_10m_seconds",
    "queue_share_of_ttft_10m_ratio",
    "slo_missed",
    "ttft_missed",
    "tpot_missed",
    "ttft_in_target_10m_ratio",
    "tpot_in_target_10m_ratio",
    "limit_binding_share_10m_ratio",
    "limit_binding_share_10m_low_ratio",
    "waiting_deferred_share_10m_ratio",
    "binding_limit",
    "queue_wait_estimate_10m_seconds",
    "deferred_requests_10m",
    "binding_running_requests",
    "binding_kv_cache_usage_ratio",
    "binding_waiting_requests",
    "scrapes_10m",
    "seconds_since_last_token",
)


def _only_when_fresh(rows: pl.DataFrame) -> pl.DataFrame:
    """A window without a usable scrape says nothing, whatever the minutes before it said."""
    return rows.with_columns(
        pl.when(pl.col("scrapes") > 0).then(pl.col(c)).alias(c) for c in _REACHING_BACK
    )


def _reaching_back(windows: pl.DataFrame, span: timedelta, kind: Kind) -> pl.DataFrame:
    """The span before each window's end; a whole window is never left."""
    start = pl.col("end") - span
    if kind == "whole":
        start = pl.max_horizontal("start", start)
    return windows.with_columns(start=start.cast(TIME))


def _serving_now(
    windows: pl.DataFrame, serving: pl.DataFrame, plateau: pl.DataFrame, own: pl.DataFrame
) -> pl.DataFrame:
    """Settings per window: configured, else from the page, else inferred."""
    page = own.select(
        page_tokens=_config_number("kv_cache_size_tokens"),
        page_blocks=_config_number("num_gpu_blocks"),
        page_block=_config_number("block_size"),
    )
    joined = windows.join(serving, on=KEY, how="left", maintain_order="left").with_columns(
        *page, plateau["plateau"]
    )
    return joined.with_columns(
        max_num_seqs_inferred=pl.col("max_num_seqs").is_null() & pl.col("plateau").is_not_null(),
        max_num_seqs=pl.coalesce("max_num_seqs", "plateau"),
        kv_block_tokens=pl.coalesce("kv_block_tokens", "page_block"),
        kv_cache_tokens=pl.coalesce(
            "kv_cache_tokens", "page_tokens", pl.col("page_blocks") * pl.col("page_block")
        ),
    ).select([*SERVING_SCHEMA, "start", "end"])


def _config_number(label: str) -> pl.Expr:
    """A number among the cache_config labels; NULL where absent or the string "None"."""
    return pl.col("cache_config").str.json_path_match(f"$.{label}").cast(pl.Float64, strict=False)


def _queue_wait() -> pl.Expr:
    """Waiting for capacity over first tokens per second (Little's law)."""
    # without a first token the wait is longer than what was observed of it: at least as if one came
    served = pl.col("first_tokens_10m").clip(lower_bound=1.0)
    return pl.when(pl.col("observed_10m_seconds") > 0).then(
        pl.col("capacity_mean") * pl.col("observed_10m_seconds") / served
    )


def ten_minute_columns(last_10m: pl.DataFrame) -> pl.DataFrame:
    """The last 10 min's waits, cut at restarts and knob changes."""
    wait = pl.when(pl.col("queue_seconds_count") > 0).then(
        pl.col("queue_seconds_sum") / pl.col("queue_seconds_count")
    )
    ttft = pl.when(pl.col("ttft_seconds_count") > 0).then(
        pl.col("ttft_seconds_sum") / pl.col("ttft_seconds_count")
    )
    return last_10m.select(
        observed_10m_seconds=pl.col("duration_seconds"),
        batch_assembly_wait_10m_seconds=wait,
        ttft_10m_seconds=ttft,
        first_tokens_10m=pl.col("ttft_seconds_count"),
        # waits are those of finished requests, TTFTs those of first tokens: not the same requests
        queue_share_of_ttft_10m_ratio=pl.when(ttft > 0).then((wait / ttft).clip(upper_bound=1.0)),
    )


def _with_idle_peers(rows: pl.DataFrame) -> pl.DataFrame:
    """Share of the pool's other targets that run and queue nothing, and are given less."""
    group = ["pool", "start", "end"]
    first_tokens = pl.col("first_tokens_10m")
    idle = (
        (pl.col("running_requests") < 1)
        & (pl.col("waiting_requests") == 0)
        & (first_tokens < _GIVEN_LESS_RATIO * first_tokens.mean().over(group))
    ).cast(pl.Float64)
    others = idle.count().over(group) - 1
    others_idle = idle.sum().over(group) - idle
    return rows.with_columns(
        pool_idle_ratio=pl.when((others > 0) & pl.col("pool").is_not_null()).then(
            others_idle / others
        )
    )


def _past(scraped: JoinedScrapes, windows: pl.DataFrame, kind: Kind, cut: bool) -> Past:
    """What the minute grid leaves behind; other windows are nobody's past."""
    until = windows["end"].max()
    if kind != "chained" or cut or not isinstance(until, datetime):
        return Past()
    return left_behind(scraped, until, until - HISTORY)


def _carried(
    windows: pl.DataFrame,
    plateau: pl.DataFrame,
    stuck: pl.DataFrame,
    inputs_seen: pl.DataFrame,
    past: Past,
) -> Carried:
    """The state after each target's last window."""

    def last(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.group_by(KEY, maintain_order=True).last()

    until = windows["end"].max()
    return Carried(
        until=until if isinstance(until, datetime) else None,
        plateau=last(plateau).select([*CARRIED_SCHEMA]),
        alive=last(stuck).select([*ALIVE_SCHEMA]),
        inputs_seen=last(inputs_seen).drop("end"),
        past=past,
    )
