"""The published form of the evidence table: its columns, their types and their order."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.detect.reference import REFERENCE_COLUMNS
from driftwatch.evidence import BY_NAME, COLUMNS, DType
from driftwatch.signals.minutes import CARRIED_BY_ROWS


def in_schema_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Evidence columns in the schema's order (NULL where nothing filled them), then the rest."""
    present = rows.columns
    there = set(present)
    evidence = (column if name in there else null for name, column, null in _EVIDENCE)
    extra = (name for name in present if name in _EXTRA and name not in BY_NAME)
    return rows.select(*KEY, "pool", "start", "end", *evidence, *extra)


DTYPES: Mapping[DType, type[pl.DataType]] = {
    "float": pl.Float64,
    "bool": pl.Boolean,
    "string": pl.String,
}
# name, the published column, and its NULL stand-in
_EVIDENCE = tuple(
    (
        column.name,
        pl.col(column.name).cast(DTYPES[column.dtype]),
        pl.lit(None).alias(column.name).cast(DTYPES[column.dtype]),
    )
    for column in COLUMNS
)
_EXTRA = (
    "gpu_reasons",
    "gpus_lost_names",
    "gpus_of_server",
    "model_name",
    "cache_config",
    "first_time",
    "last_time",
    "kv_block_tokens",
    "slo_ttft_seconds",
    "slo_tpot_seconds",
    "slo_share",
    "ttft_in_target_10m_upper_ratio",
    "tpot_in_target_10m_upper_ratio",
    "allows_max_num_seqs",
    "allows_max_num_batched_tokens",
    "allows_kv_cache",
    "binding_requests",
    "binding_since",
    "deferred_since",
    "speed_unknown_code",
    "reference_kind",
    "reference_since",
    "reference_until",
    *REFERENCE_COLUMNS,
    *CARRIED_BY_ROWS,
)
