"""Frames as bytes, in standard formats: each is known by its first bytes.

==================  ====================  ==============================================
what                form                  why
==================  ====================  ==============================================
minutes that stay   Arrow in xz           a third smaller than zstd Parquet (decision 47)
few rows of a tick  Arrow in xz           a Parquet file names 160 columns
many rows           Parquet, zstd         written in a tenth of the time
detectors' memory   Arrow, zstd           read as it lies
==================  ====================  ==============================================
"""

from __future__ import annotations

import io
import lzma
from collections.abc import Mapping

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from driftwatch.errors import StoreError

Schema = Mapping[str, pl.DataType | type[pl.DataType]]

PARQUET_FROM_ROWS = 300
_PARQUET, _XZ = b"PAR1", b"\xfd7zXZ\x00"
# LZMA presets: a tick waits for the first; the second takes four times as long for 4 % less
_QUICK, _SMALL = 1, 6
_LARGEST_WHOLE = float(2**53)
_BUCKETS = "_buckets"


def encode(rows: pl.DataFrame) -> bytes:
    """A frame as bytes, exactly; the same frame gives the same bytes."""
    if rows.height < PARQUET_FROM_ROWS:
        return _xz(rows, {}, _QUICK)
    buffer = io.BytesIO()
    rows.write_parquet(buffer, compression="zstd", compression_level=3, statistics=False)
    return buffer.getvalue()


def pack(rows: pl.DataFrame, significant_bits: Mapping[str, int] | None = None) -> bytes:
    """A frame as few bytes; the same frame gives the same bytes.

    Whole numbers are written as small integers, cumulative counts as those of their cells.

    ``rows``: numbers are Float64; List(Float64) columns named ``*_buckets`` are cumulative;
    ``significant_bits``: column → bits (at most 24) kept of floats that are no whole numbers; all
    of them without one.
    """
    return _xz(rows, significant_bits or {}, _SMALL)


def _xz(rows: pl.DataFrame, bits: Mapping[str, int], preset: int) -> bytes:
    small = [_small(rows[name], bits.get(name)) for name in rows.columns]
    buffer = io.BytesIO()
    pl.DataFrame(small).write_ipc(buffer, compression="uncompressed")
    # lp and pb: numbers of four bytes beside each other
    filters = [{"id": lzma.FILTER_LZMA2, "preset": preset, "lc": 0, "lp": 2, "pb": 2}]
    return lzma.compress(buffer.getvalue(), check=lzma.CHECK_CRC32, filters=filters)


def decode(blob: bytes, schema: Schema | None = None) -> pl.DataFrame:
    """Bytes → a frame in today's schema, or with the columns that it was written with.

    Columns that a later version added are NULL, columns that it dropped are left out.

    Raises StoreError: these are no such bytes, or damaged ones.
    """
    try:
        if blob.startswith(_PARQUET):
            frame = pl.read_parquet(io.BytesIO(blob))
        elif blob.startswith(_XZ):
            written = pl.read_ipc(io.BytesIO(lzma.decompress(blob)))
            frame = pl.DataFrame([_as_written(column) for column in written])
        else:
            raise StoreError("a stored table is in no known form", code="corrupt")
    except (lzma.LZMAError, PolarsError) as error:
        raise StoreError(f"a stored table is damaged: {error}", code="corrupt") from error
    if schema is None:
        return frame
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in schema.items()
    )


def to_arrow(frame: pl.DataFrame) -> bytes:
    """Any frame as bytes; the same frame gives the same bytes."""
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="zstd")
    return buffer.getvalue()


def from_arrow(data: bytes) -> pl.DataFrame:
    """The frame that :func:`to_arrow` was given."""
    return pl.read_ipc(io.BytesIO(data))


def _small(column: pl.Series, bits: int | None) -> pl.Series:
    """The same numbers in fewer bytes."""
    if column.dtype == pl.Float64:
        column = column.fill_nan(None)
        if _is_whole(column):
            return column.cast(pl.Int64).shrink_dtype()
        return column if bits is None else _rounded(column, bits)
    if column.name.endswith(_BUCKETS) and isinstance(column.dtype, pl.List):
        numbers = column.list.explode(empty_as_null=False, keep_nulls=False)
        if not numbers.null_count() and _is_whole(numbers):
            before = pl.element().shift(1, fill_value=0.0)
            cells = column.list.eval(pl.element() - before)
            largest = cells.list.explode(empty_as_null=False, keep_nulls=False).cast(pl.Int64)
            return cells.cast(pl.List(largest.shrink_dtype().dtype))
    return column


def _as_written(column: pl.Series) -> pl.Series:
    """The inverse of :func:`_small`; what was rounded stays so."""
    if column.dtype.is_integer() or column.dtype == pl.Float32:
        return column.cast(pl.Float64)
    of_lists = column.dtype
    if isinstance(of_lists, pl.List) and column.name.endswith(_BUCKETS):
        assert of_lists.inner is not None  # noqa: S101 - a list of something
        if of_lists.inner.is_integer():
            return (
                column.cast(pl.List(pl.Int64))
                .list.eval(pl.element().cum_sum())
                .cast(pl.List(pl.Float64))
            )
    return column


def _is_whole(column: pl.Series) -> bool:
    """Whether all are whole numbers that a double holds exactly."""
    values = column.drop_nulls().to_numpy()
    return bool(
        np.isfinite(values).all()
        and (values == np.rint(values)).all()
        and (np.abs(values) < _LARGEST_WHOLE).all()
    )


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
