"""Samples of DCGM fields → the GPU table: units, sentinels, and a reason for each gap."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from driftwatch.collect.dcgm.names import DCGM_NAME_INDEX, DCGM_NAMES, Gpu
from driftwatch.collect.gpus import (
    BLANK_FROM,
    GPU_FIELD_BY_COLUMN,
    GPU_FIELDS,
    GPU_SCHEMA,
    SHARE_OVER,
    TIME,
    GpuField,
    empty_gpus,
)

# dcgm_structs.h: DCGM_FP64_BLANK and DCGM_INT32_BLANK, and one, two and three above each
_BLANKS = np.concatenate([2.0**47 + np.arange(4), float(0x7FFFFFF0) + np.arange(4)])
_LIVE = ("utilization_ratio", "engine_active_ratio", "sm_clock_hertz")  # of a GPU that answers
_GONE_XID = 79  # "GPU has fallen off the bus" (NVIDIA's list of XID errors)

_OK, _MISSING, _BLANK, _ODD = range(4)

_COLUMNS = tuple(field.column for field in GPU_FIELDS)
_KEYS = ("exporter", "uuid", "namespace", "pod", "time")

_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GpuSamples:
    """Samples side by side, one per position."""

    gpu: _Ints  # index into the list of GPUs
    moment: _Ints  # index into the list of times
    name: _Ints  # as :data:`driftwatch.collect.dcgm.names.DCGM_NAME_INDEX` counts them.
    value: _Floats  # in DCGM's unit


def gpu_table(
    gpus: Sequence[Gpu],
    moments: Sequence[datetime],
    samples: GpuSamples,
    unread: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """The GPU table of these samples, a row per GPU, workload and time.

    Of two samples with the same GPU, time and name the first counts.

    ``moments``: aware times; ``unread``: column → why it could not be asked for, where it is
    missing.
    """
    if not samples.value.size:
        return empty_gpus()
    cell, row = np.unique(samples.gpu * len(moments) + samples.moment, return_inverse=True)
    place, first = np.unique(samples.name * cell.size + row, return_index=True)
    raw = np.full((len(DCGM_NAME_INDEX), cell.size), np.nan)
    there = np.zeros(raw.shape, dtype=np.bool_)
    raw.ravel()[place] = samples.value[first]
    there.ravel()[place] = True
    who, when = cell // len(moments), cell % len(moments)
    raw, there = _one_name_each(raw, there)
    codes = _judged(raw, there)
    values = {
        field.column: pl.Series(np.where(codes[i] == _OK, _in_base(field, raw[i]), np.nan))
        .fill_nan(None)
        .alias(field.column)
        for i, field in enumerate(GPU_FIELDS)
    }
    schema = {name: GPU_SCHEMA[name] for name in Gpu._fields}
    listed: pl.DataFrame = pl.DataFrame(list(gpus), schema=schema, orient="row")[who]
    times = pl.Series("time", list(moments), dtype=TIME)[when]
    table = listed.with_columns(
        times,
        pl.lit("DCGM").alias("origin"),
        pl.lit(False).alias("own_host"),
        _lost(values),
        _reasons(codes, raw, unread or {}),
        *values.values(),
    )
    return table.select(list(GPU_SCHEMA)).sort(_KEYS, maintain_order=True)


def _lost(values: Mapping[str, pl.Series]) -> pl.Series:
    """Whether each GPU has fallen off the bus.

    The XID stays on the gauge after the GPU is back (dcgm-exporter#500); readings do not come from
    one that is lost.
    """
    live = pl.Series([False] * len(values["xid_code"]), dtype=pl.Boolean)
    for column in _LIVE:
        live |= values[column].is_not_null()
    return ((values["xid_code"] == _GONE_XID) & ~live).alias("lost")


def _in_base(field: GpuField, raw: _Floats) -> _Floats:
    """Values in the base unit; a share that rounding put above the whole is the whole."""
    value = raw * field.factor
    return np.minimum(value, 1.0) if field.column.endswith("_ratio") else value


def _one_name_each(raw: _Floats, there: _Bools) -> tuple[_Floats, _Bools]:
    """A line per field instead of one per name: its preferred name where it is there."""
    value = np.full((len(GPU_FIELDS), raw.shape[1]), np.nan)
    filled = np.zeros(value.shape, dtype=np.bool_)
    for name, (_, index, _) in enumerate(DCGM_NAMES):  # preferred names first
        take = there[name] & ~filled[index]
        value[index][take] = raw[name][take]
        filled[index] |= take
    return value, filled


def _judged(raw: _Floats, there: _Bools) -> npt.NDArray[np.uint8]:
    """What each value is worth, one of the codes above."""
    codes = np.full(raw.shape, _OK, dtype=np.uint8)
    with np.errstate(invalid="ignore"):
        codes[~np.isfinite(raw) | (raw < 0)] = _ODD
        for i, field in enumerate(GPU_FIELDS):
            over = SHARE_OVER if field.column.endswith("_ratio") else 0.0
            codes[i, raw[i] * field.factor > field.most + over] = _ODD
        codes[np.isin(raw, _BLANKS) | (np.isfinite(raw) & (raw >= BLANK_FROM))] = _BLANK
    codes[~there] = _MISSING
    return codes


def _reasons(codes: npt.NDArray[np.uint8], raw: _Floats, unread: Mapping[str, str]) -> pl.Series:
    """The column ``reasons``: rows with the same gaps share one text."""
    patterns, pattern = np.unique(
        np.ascontiguousarray(codes.T).view(f"V{len(GPU_FIELDS)}").ravel(), return_inverse=True
    )
    lines = patterns.view(np.uint8).reshape(patterns.size, len(GPU_FIELDS))
    texts = [
        _json((i, _why(i, int(c), None, unread)) for i, c in enumerate(line)) for line in lines
    ]
    reasons = pl.Series("reasons", texts, dtype=pl.String)[pattern]
    odd = np.flatnonzero((codes == _ODD).any(axis=0))
    if not odd.size:
        return reasons
    own = [
        _json((i, _why(i, int(codes[i, r]), float(raw[i, r]), unread)) for i in range(len(codes)))
        for r in odd
    ]
    return reasons.scatter(odd, own)


def _json(reasons: Iterable[tuple[int, str | None]]) -> str | None:
    texts = {_COLUMNS[i]: why for i, why in reasons if why is not None}
    return orjson.dumps(texts).decode() if texts else None


def _why(index: int, code: int, value: float | None, unread: Mapping[str, str]) -> str | None:
    """Why a field is NULL; None where it is not."""
    field = GPU_FIELDS[index]
    name = field.dcgm_names[0]
    if code == _OK:
        return None
    if code == _BLANK:
        return f"not supported: {name} is DCGM's mark for no value"
    if code == _ODD:
        return f"{name} is {_odd(value, field.why_most)}"
    return unread.get(field.column) or not_exported(field.column)


def _odd(value: float | None, why_most: str) -> str:
    if value is None or math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinite"
    return f"{value:.12g}: {'negative' if value < 0 else why_most}"


def not_exported(column: str) -> str:
    """Why a field may be missing that was asked for."""
    field = GPU_FIELD_BY_COLUMN[column]
    name = " or ".join(field.dcgm_names)
    if not field.on_by_default:
        return f"{name} not exported: it is off in dcgm-exporter's shipped list of counters"
    if name.startswith("DCGM_FI_PROF_"):
        return (
            f"{name} not exported: the GPU or its driver gives no profiling fields, "
            "or a profiler has paused them"
        )
    if column == "xid_code":
        return f"{name} not exported: some exporters write it only after the first XID"
    return f"{name} not exported"


def rows_as_samples(rows: Sequence[tuple[int, int, int, float]]) -> GpuSamples:
    """(gpu, moment, name, value) one by one → side by side."""
    indices = np.array([row[:3] for row in rows], dtype=np.int64).reshape(-1, 3)
    value = np.array([row[3] for row in rows], dtype=np.float64)
    return GpuSamples(indices[:, 0], indices[:, 1], indices[:, 2], value)
