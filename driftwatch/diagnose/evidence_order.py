"""The published form of the evidence table: its columns, their types and their order."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.detect.reference import REFERENCE_COLUMNS
from driftwatch.evidence import BY_NAME, COLUMNS, TEXTS, DType
from driftwatch.signals.minutes import MINUTE_SCHEMA


def in_schema_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Evidence columns in the schema's order (NULL where nothing filled them), then the rest."""
    missing = [pl.lit(None).alias(name) for name in _TYPES if name not in rows.columns]
    extra = [name for name in rows.columns if name in _EXTRA]
    return rows.with_columns(missing).select(*_FIRST, *_TYPES, *extra).cast(_TYPES)


DTYPES: Mapping[DType, type[pl.DataType]] = {
    "float": pl.Float64,
    "bool": pl.Boolean,
    "string": pl.String,
}
_TYPES = pl.Schema({c.name: DTYPES[c.dtype] for c in COLUMNS})
_FIRST = (*KEY, "pool", "start", "end")
# What minutes are made of, and what pages and reasons say beside the columns.
_EXTRA = {
    "gpu_count_source",
    "gpu_reasons",
    "gpus_lost_names",
    "gpus_of_server",
    "model_name",
    "cache_config",
    "first_time",
    "last_time",
    "kv_block_tokens",
    "max_num_batched_tokens_configured",
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
    *TEXTS,
    "reference_kind",
    "reference_since",
    "reference_until",
    *REFERENCE_COLUMNS,
    *MINUTE_SCHEMA,
}.difference(BY_NAME, _FIRST)
