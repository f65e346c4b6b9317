"""GPU readings joined to targets: how many GPUs a target has, and what they did in a window."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

# What is known of a target that can join it to its GPUs; one row per engine.
GPU_TARGET_SCHEMA: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "namespace": pl.String,
    "pod": pl.String,
    "host": pl.String,  # hostname or node label, else the instance's host
    "port": pl.Int64,
    "own_host": pl.Boolean,  # the machine that driftwatch runs on
    "gpu_uuids": pl.List(pl.String),  # declared for its pool
    "gpus_declared": pl.Float64,  # gpus_per_replica: of all engines of the instance
}


def gpu_columns(
    windows: pl.DataFrame, gpus: pl.DataFrame | None, targets: pl.DataFrame | None
) -> pl.DataFrame:
    """The GPU columns of the evidence table, one row per window, in the windows' order.

    Args:
        windows: instance, engine, start, end.
        gpus: GPU table (:data:`driftwatch.collect.gpu_schema.GPU_SCHEMA`), None = none read.
        targets: :data:`GPU_TARGET_SCHEMA`, None = nothing known.

    Returns:
        ``gpu_count``, ``gpu_count_source``, and a mean per reading; NULL where nothing joins.
    """
    known = pl.DataFrame(schema=dict(GPU_TARGET_SCHEMA)) if targets is None else targets
    joined = windows.select("instance", "engine").join(
        known, on=["instance", "engine"], how="left", maintain_order="left"
    )
    engines = known.group_by("instance").agg(pl.len().alias("engines"))
    joined = joined.join(engines, on="instance", how="left", maintain_order="left")
    declared = pl.col("gpus_declared")
    return joined.select(
        gpu_count=declared / pl.col("engines"),
        gpu_count_source=pl.when(declared.is_not_null()).then(pl.lit("declared")),
    )
