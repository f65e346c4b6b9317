"""Frames as bytes, in standard formats: each is known by its first bytes.

==================  ====================  ==============================================
what                form                  why
==================  ====================  ==============================================
minutes that stay   Arrow in xz           a third smaller than zstd Parquet
few rows of a tick  Arrow in zlib         a Parquet file names 190 columns
many rows           Parquet, zstd         written in a tenth of the time
detectors' memory   Arrow, zstd           read as it lies
==================  ====================  ==============================================
"""

from __future__ import annotations

import io
import lzma
import zlib
from collections.abc import Mapping

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from driftwatch.errors import StoreError

Schema = Mapping[str, pl.DataType | type[pl.DataType]]

PARQUET_FROM_ROWS = 300
_PARQUET, _XZ, _ZLIB = b"PAR1", b"\xfd7zXZ\x00", b"\x78\x01"
_PRESET = 6  # of LZMA
_DICTIONARY_BYTES = 8 << 20
_LARGEST_WHOLE = float(2**53)
_BUCKETS = "_buckets"


def encode(rows: pl.DataFrame) -> bytes:
    """A frame as bytes, exactly; the same frame gives the same bytes."""
    buffer = io.BytesIO()
    if rows.height < PARQUET_FROM_ROWS:
        rows.write_ipc(buffer, compression="uncompressed")
        return zlib.compress(buffer.getvalue(), 1)
    rows.write_parquet(buffer, compression="zstd", compression_level=3, statistics=False)
    return buffer.getvalue()


def pack(rows: pl.DataFrame, significant_bits: Mapping[str, int] | None = None) -> bytes:
    """A frame as few bytes; the same frame gives the same bytes.

    Whole numbers are written as small integers, cumulative counts as those of their cells.

    ``rows``: numbers are Float64; List(Float64) columns named ``*_buckets`` are cumulative;
    ``significant_bits``: column → bits (at most 24) kept of floats that are no whole numbers; all
    of them without one.
    """
    return _xz(rows, significant_bits or {})


def _xz(rows: pl.DataFrame, bits: Mapping[str, int]) -> bytes:
    small = _whole_as_integers(rows)
    changed = [
        _rounded(small[name], bits[name])
        for name, dtype in small.schema.items()
        if dtype == pl.Float64 and name in bits
    ]
    buffer = io.BytesIO()
    small.with_columns(*changed, *_in_cells(small)).write_ipc(buffer, compression="uncompressed")
    raw = buffer.getvalue()
    # lp and pb: numbers of four bytes beside each other; a dictionary larger than all of it costs
    # time alone
    form = {"id": lzma.FILTER_LZMA2, "preset": _PRESET, "lc": 0, "lp": 2, "pb": 2}
    filters = [form | {"dict_size": min(_DICTIONARY_BYTES, 1 << max(len(raw).bit_length(), 12))}]
    return lzma.compress(raw, check=lzma.CHECK_CRC32, filters=filters)


def decode(blob: bytes, schema: Schema | None = None) -> pl.DataFrame:
    """Bytes → a frame in today's schema, or with the columns that it was written with.

    Columns that a later version added are NULL, columns that it dropped are left out.

    Raises StoreError: these are no such bytes, or damaged ones.
    """
    try:
        if blob.startswith(_PARQUET):
            wanted = _wanted(pl.read_parquet_schema(io.BytesIO(blob)), schema)
            frame = pl.read_parquet(
                io.BytesIO(blob), columns=wanted, use_statistics=False, parallel="none"
            )
        elif blob.startswith(_ZLIB):
            arrow = zlib.decompress(blob)
            frame = pl.read_ipc(
                io.BytesIO(arrow), columns=_wanted(pl.read_ipc_schema(io.BytesIO(arrow)), schema)
            )
        elif blob.startswith(_XZ):
            arrow = lzma.decompress(blob)
            wanted = _wanted(pl.read_ipc_schema(io.BytesIO(arrow)), schema)
            frame = _as_written(pl.read_ipc(io.BytesIO(arrow), columns=wanted))
        else:
            raise StoreError("a stored table is in no known form", code="corrupt")
    except (lzma.LZMAError, zlib.error, PolarsError) as error:
        raise StoreError(f"a stored table is damaged: {error}", code="corrupt") from error
    if schema is None or frame.schema == pl.Schema(schema):
        return frame
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in schema.items()
    )


def _wanted(written: Schema, schema: Schema | None) -> list[str] | None:
    """Columns to read: those of the schema that are there, or one for the height; None = all."""
    if schema is None or written.keys() <= schema.keys():
        return None
    return [name for name in written if name in schema] or [next(iter(written))]


def to_arrow(frame: pl.DataFrame) -> bytes:
    """Any frame as bytes; the same frame gives the same bytes."""
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="zstd")
    return buffer.getvalue()


def from_arrow(data: bytes) -> pl.DataFrame:
    """The frame that :func:`to_arrow` was given."""
    return pl.read_ipc(io.BytesIO(data))


def _whole_as_integers(rows: pl.DataFrame) -> pl.DataFrame:
    """Columns of whole numbers as small integers; NaN is NULL."""
    names = [name for name, dtype in rows.schema.items() if dtype == pl.Float64]
    if not names:
        return rows
    # NULL is NaN here, and both may stay
    numbers = rows.select(names).to_numpy()
    is_empty = np.isnan(numbers)
    with np.errstate(invalid="ignore"):
        is_whole = is_empty | ((numbers == np.rint(numbers)) & (np.abs(numbers) < _LARGEST_WHOLE))
    lowest = np.where(is_empty, 0.0, numbers).min(axis=0, initial=0.0)
    highest = np.where(is_empty, 0.0, numbers).max(axis=0, initial=0.0)
    columns = []
    for at, name in enumerate(names):
        column = pl.col(name).fill_nan(None)
        if is_whole[:, at].all():
            column = column.cast(_smallest(lowest[at], highest[at]))
        columns.append(column)
    return rows.with_columns(columns)


def _smallest(lowest: float, highest: float) -> pl.DataType:
    for dtype, bits in ((pl.Int8(), 8), (pl.Int16(), 16), (pl.Int32(), 32)):
        if -(2.0 ** (bits - 1)) <= lowest and highest < 2.0 ** (bits - 1):
            return dtype
    return pl.Int64()


def _in_cells(rows: pl.DataFrame) -> list[pl.Series]:
    """Columns of cumulative counts as those of their cells, where all are whole numbers."""
    buckets = [
        name
        for name, dtype in rows.schema.items()
        if name.endswith(_BUCKETS) and isinstance(dtype, pl.List)
    ]
    if not buckets:
        return []
    each = pl.element()
    cells = rows.select(pl.col(buckets).list.eval(each - each.shift(1, fill_value=0.0)))
    counts = pl.col(buckets).list.explode(empty_as_null=False, keep_nulls=False)
    is_whole = (counts == counts.round()) & (counts.abs() < _LARGEST_WHOLE)
    all_whole = rows.select(is_whole.fill_null(False).all()).row(0)
    lowest = cells.select(counts.min().fill_null(0.0)).row(0)
    highest = cells.select(counts.max().fill_null(0.0)).row(0)
    return [
        cells[name].cast(pl.List(_smallest(low, high)))
        for name, whole, low, high in zip(buckets, all_whole, lowest, highest, strict=True)
        if whole
    ]


def _as_written(frame: pl.DataFrame) -> pl.DataFrame:
    """The inverse of what made it small; what was rounded stays so."""
    columns = []
    for name, dtype in frame.schema.items():
        if dtype.is_integer() or dtype == pl.Float32:
            columns.append(pl.col(name).cast(pl.Float64))
        elif isinstance(dtype, pl.List) and name.endswith(_BUCKETS):
            assert dtype.inner is not None  # noqa: S101 - a list of something
            if dtype.inner.is_integer():
                counts = pl.col(name).cast(pl.List(pl.Int64)).list.eval(pl.element().cum_sum())
                columns.append(counts.cast(pl.List(pl.Float64)))
    return frame.with_columns(columns)


def _rounded(column: pl.Series, bits: int) -> pl.Series:
    """With so many significant bits; whole numbers stay exact, and so does what fits no float32."""
    is_known = column.is_not_null()
    values = column.fill_null(0.0).to_numpy()
    mantissa, exponent = np.frexp(values)
    near = np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)
    rounded = np.where(values == np.rint(values), values, near)
    single = rounded.astype(np.float32)
    fits = bool((single.astype(np.float64) == rounded).all())
    stored = pl.Series(column.name, single if fits else rounded)
    return pl.select(pl.when(is_known).then(stored).alias(column.name)).to_series()
