"""GPU readings joined to targets: how many GPUs a target has, and what they did in a window.

Nothing here multiplies: a GPU that several pods share counts by its shares, one that two origins
tell counts once, and engines of one server share its GPUs.
"""

from __future__ import annotations

from datetime import datetime

import polars as pl

from driftwatch.collect.gpus import TIME
from driftwatch.signals.gpus.joins import GPU_TARGET_SCHEMA, LOOK_BACK, linked, servers
from driftwatch.signals.gpus.readings import ONE_PASS, SOURCES, window_readings
from driftwatch.signals.gpus.words import (
    NO_READING,
    agrees,
    mixed_text,
    reasons_json,
    source_text,
    unjoined_text,
)

__all__ = ["GPU_TARGET_SCHEMA", "LOOK_BACK", "gpu_columns", "gpu_counts"]


def gpu_columns(
    windows: pl.DataFrame, gpus: pl.DataFrame | None, targets: pl.DataFrame | None
) -> pl.DataFrame:
    """The GPU columns of the evidence table, one row per window, in the windows' order.

    A reading of the window is one with start <= time < end; where there is none, those of the
    newest pass in the 2 min before it. Means are over readings, then over GPUs.

    ``windows``: instance, engine, start, end; ``gpus``: GPU table
    (:data:`driftwatch.collect.gpus.GPU_SCHEMA`), None = none read; ``targets``:
    :data:`GPU_TARGET_SCHEMA`, None = nothing known.
    Returns: ``gpu_count`` (of the engine), ``gpu_count_source``, a mean per reading,
    ``gpu_clock_event_reasons``, ``gpus_lost``; NULL where nothing is known. Besides these
    ``gpus_found`` (of the server, as read), ``gpus_found_origin``, ``gpus_lost_names`` (index, host
    and UUID of each), ``gpus_of_server`` (declared, else found), and ``gpu_reasons``: a JSON
    object, column → why it is unknown or what is special about it.
    """
    hosts = servers(pl.DataFrame(schema=dict(GPU_TARGET_SCHEMA)) if targets is None else targets)
    spans = windows.select("instance", "start", "end")
    distinct = spans.unique(maintain_order=True).with_row_index("window")
    links = None
    if gpus is not None and len(gpus) and len(hosts) and len(distinct):
        # whose a lost GPU was, only older readings tell
        is_lost = pl.col("lost").fill_null(False).any().over("uuid")
        since = (pl.col("time") >= _earliest(distinct)) | is_lost
        links = linked(gpus.filter(since & (pl.col("time") < distinct["end"].max())), hosts)
    readings = window_readings(distinct, links)
    rows = distinct.join(hosts, on="instance", how="left", maintain_order="left").with_columns(
        readings.drop("window")
    )
    rows = rows.with_columns(
        gpu_count=pl.coalesce("gpus_declared", "gpus_found") / pl.col("engines"),
        gpus_of_server=pl.coalesce("gpus_declared", "gpus_found"),
        gpu_count_source=source_text(),
        gpu_reasons=reasons_json(SOURCES, _unread(links, gpus)),
    )
    wanted = ["gpu_count", "gpu_count_source", *SOURCES, *_EXTRA]
    return spans.join(
        rows.select("instance", "start", "end", *wanted),
        on=["instance", "start", "end"],
        how="left",
        maintain_order="left",
    ).select(wanted)


_EXTRA = ("gpus_found", "gpus_found_origin", "gpus_lost_names", "gpus_of_server", "gpu_reasons")


def gpu_counts(gpus: pl.DataFrame, targets: pl.DataFrame, until: datetime) -> pl.DataFrame:
    """What the readings of the last 2 min say of each target, beside what is declared.

    ``gpus``: GPU table; ``targets``: :data:`GPU_TARGET_SCHEMA`; ``until``: now, aware.
    Returns: one row per target: instance, engine, ``gpus_declared`` and ``gpus_found`` (both of the
    whole server; NULL = not declared, not read), ``contradicted`` (both known and different), and
    the columns of :func:`gpu_columns`.
    """
    windows = targets.select(
        "instance",
        "engine",
        start=pl.lit(until - LOOK_BACK, dtype=TIME),
        end=pl.lit(until, dtype=TIME),
    )
    return (
        targets.select("instance", "engine", "gpus_declared")
        .with_columns(gpu_columns(windows, gpus, targets))
        .with_columns(contradicted=~agrees())
    )


def _earliest(windows: pl.DataFrame) -> datetime | None:
    first = windows["start"].min()
    return first - LOOK_BACK - ONE_PASS if isinstance(first, datetime) else None


def _unread(links: pl.DataFrame | None, gpus: pl.DataFrame | None) -> pl.Expr:
    """Why a target has no reading in a window."""
    if gpus is None or gpus.is_empty():
        return pl.lit(NO_READING)
    mine = [] if links is None else links["instance"].unique().to_list()
    return (
        pl.when(pl.col("engines").is_null())
        .then(pl.lit(NO_READING))
        .when(pl.col("nodes").is_not_null())
        .then(mixed_text())
        .when(pl.col("instance").is_in(mine))
        .then(pl.lit("no reading of its GPUs in this window or in the 2 min before it"))
        .otherwise(unjoined_text())
    )
