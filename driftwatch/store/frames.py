"""Frames as bytes: Arrow in zlib for what a tick writes, in xz for what stays; known by the first
bytes. Of 1,000 minutes xz takes a third of zlib's bytes and fifteen times its time.
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

# Of packed numbers so much is kept: they are off by 1.5e-5 of their value at most; all is printed
# with three digits, and the noise of a minute is a hundred times that. Counts stay exact.
SIGNIFICANT_BITS = 15
_LARGEST_SINGLE = 2.0**24  # up to which a float32 holds every whole number
_XZ, _ZLIB = b"\xfd7zXZ\x00", b"\x78\x01"
# lp and pb: numbers of four bytes beside each other
_FILTER = {"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 2, "pb": 2}
_DICTIONARY_BYTES = 8 << 20


def encode(rows: pl.DataFrame) -> bytes:
    """A frame as bytes, exactly; the same frame gives the same bytes."""
    return zlib.compress(_arrow(rows), 1)


def pack(rows: pl.DataFrame) -> bytes:
    """A frame as few bytes, its Float64 columns rounded; the same frame gives the same bytes."""
    names = [name for name, dtype in rows.schema.items() if dtype == pl.Float64]
    raw = _arrow(rows.with_columns(_rounded(rows[name]) for name in names))
    # a dictionary larger than all of it costs time alone
    size = min(_DICTIONARY_BYTES, 1 << max(len(raw).bit_length(), 12))
    return lzma.compress(raw, check=lzma.CHECK_CRC32, filters=[{**_FILTER, "dict_size": size}])


def decode(blob: bytes, schema: Schema) -> pl.DataFrame:
    """Bytes → a frame in today's schema.

    Columns that a later version added are NULL, columns that it dropped are left out.

    Raises StoreError: these are no such bytes, or damaged ones.
    """
    try:
        if blob.startswith(_ZLIB):
            arrow = zlib.decompress(blob)
        elif blob.startswith(_XZ):
            arrow = lzma.decompress(blob)
        else:
            raise StoreError("a stored table is in no known form", code="corrupt")
        written = pl.read_ipc_schema(io.BytesIO(arrow))
        # one for the height where none is wanted
        wanted = [name for name in written if name in schema] or [next(iter(written))]
        frame = pl.read_ipc(io.BytesIO(arrow), columns=wanted)
    except (lzma.LZMAError, zlib.error, PolarsError) as error:
        raise StoreError(f"a stored table is damaged: {error}", code="corrupt") from error
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


def _arrow(rows: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    rows.write_ipc(buffer, compression="uncompressed")
    return buffer.getvalue()


def _rounded(column: pl.Series) -> pl.Series:
    """As Float32 where that holds all; whole numbers and unix seconds stay exact; NaN is NULL."""
    column = column.fill_nan(None)
    values = column.fill_null(0.0).to_numpy()
    mantissa, exponent = np.frexp(values)
    near = np.ldexp(np.rint(np.ldexp(mantissa, SIGNIFICANT_BITS)), exponent - SIGNIFICANT_BITS)
    is_exact = (values == np.rint(values)) | (np.abs(values) >= _LARGEST_SINGLE)
    rounded = np.where(is_exact, values, near)
    with np.errstate(over="ignore"):
        single = rounded.astype(np.float32)
    fits = bool((single.astype(np.float64) == rounded).all())
    stored = pl.Series(column.name, single if fits else rounded)
    return pl.select(pl.when(column.is_not_null()).then(stored).alias(column.name)).to_series()
