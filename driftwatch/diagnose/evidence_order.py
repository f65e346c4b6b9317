"""The published form of the evidence table: which columns, of which type, in which order."""

from __future__ import annotations

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.detect.reference import REFERENCE_COLUMNS
from driftwatch.evidence import COLUMNS
from driftwatch.signals.minutes import CARRIED_BY_ROWS


def evidence_only(rows: pl.DataFrame) -> pl.DataFrame:
    """Key, pool, window and the evidence columns: the published table, nothing internal."""
    return rows.select([*KEY, "pool", "start", "end", *(c.name for c in COLUMNS)])


def in_schema_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Evidence columns in the schema's order (NULL where nothing fills them yet), then the rest."""
    dtypes: dict[str, pl.DataType | type[pl.DataType]] = {
        "float": pl.Float64,
        "bool": pl.Boolean,
        "string": pl.String,
    }
    head = [*KEY, "pool", "start", "end"]
    evidence = [
        (pl.col(c.name) if c.name in rows.columns else pl.lit(None).alias(c.name)).cast(
            dtypes[c.dtype]
        )
        for c in COLUMNS
    ]
    names = {c.name for c in COLUMNS}
    extra = [c for c in rows.columns if c in _EXTRA and c not in names]
    return rows.select(*head, *evidence, *extra)


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
    "reference_kind",
    "reference_since",
    "reference_until",
    *REFERENCE_COLUMNS,
    *CARRIED_BY_ROWS,
)
