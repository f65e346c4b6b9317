"""Scrape and GPU tables as bytes.

Measured on a real server's pages (64 columns, many of them lists): the Arrow stream of a small
frame is mostly schema, which only an outer compression can squeeze. Bytes per batch:

===========  ================  =============  =================
rows         Arrow, zstd       Parquet, zstd  Arrow, then zlib
===========  ================  =============  =================
4            15,760            20,946         3,603
60           33,920            34,856         18,608
400          58,336            51,308         61,048
4,000        212,960           127,179        424,647
===========  ================  =============  =================

So a few hundred rows are an Arrow stream under zlib, more are Parquet. Both name themselves in
their first bytes.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping

import polars as pl

from driftwatch.collect.schema import SCRAPE_SCHEMA

PARQUET_FROM_ROWS = 300
_PARQUET_MAGIC = b"PAR1"


def encode(rows: pl.DataFrame) -> bytes:
    """A table as bytes; the same frame gives the same bytes."""
    buffer = io.BytesIO()
    if rows.height >= PARQUET_FROM_ROWS:
        rows.write_parquet(buffer, compression="zstd", compression_level=3, statistics=False)
        return buffer.getvalue()
    rows.write_ipc_stream(buffer, compression="uncompressed")
    return zlib.compress(buffer.getvalue(), 6)


def decode(
    blob: bytes, schema: Mapping[str, pl.DataType | type[pl.DataType]] = SCRAPE_SCHEMA
) -> pl.DataFrame:
    """Bytes → a table in today's schema, of scrapes unless another one is named.

    Columns that a later version added are NULL, columns that it dropped are left out.
    """
    if blob.startswith(_PARQUET_MAGIC):
        frame = pl.read_parquet(io.BytesIO(blob))
    else:
        frame = pl.read_ipc_stream(io.BytesIO(zlib.decompress(blob)))
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in schema.items()
    )
