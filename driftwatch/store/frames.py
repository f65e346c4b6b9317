"""Scrape and GPU tables as bytes.

Few rows are packed (:mod:`driftwatch.store.packing`), many are Parquet, which is written in a tenth
of the time. Bytes per scrape of a real server (64 columns, 20 of them lists):

===========  ================  =============  =================  ======
rows         Arrow, zstd       Parquet, zstd  Arrow, then zlib   packed
===========  ================  =============  =================  ======
4            3,940             5,237          977                439
40           -                 -              366                134
160          -                 -              320                101
4,000        53                32             106                -
===========  ================  =============  =================  ======

(4,000 rows: copies of one page.) Each form is known by its first bytes; "Arrow, then zlib" is what
earlier releases wrote, and read still.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping

import polars as pl

from driftwatch.collect.schema import SCRAPE_SCHEMA
from driftwatch.store.packing import MAGIC, pack, unpack

PARQUET_FROM_ROWS = 300
_PARQUET_MAGIC = b"PAR1"


def encode(rows: pl.DataFrame) -> bytes:
    """A table as bytes; the same frame gives the same bytes."""
    if rows.height >= PARQUET_FROM_ROWS:
        buffer = io.BytesIO()
        rows.write_parquet(buffer, compression="zstd", compression_level=3, statistics=False)
        return buffer.getvalue()
    return pack(rows)


def decode(
    blob: bytes, schema: Mapping[str, pl.DataType | type[pl.DataType]] = SCRAPE_SCHEMA
) -> pl.DataFrame:
    """Bytes → a table in today's schema, of scrapes unless another one is named.

    Columns that a later version added are NULL, columns that it dropped are left out.
    """
    if blob.startswith(MAGIC):
        return unpack(blob, schema)
    if blob.startswith(_PARQUET_MAGIC):
        frame = pl.read_parquet(io.BytesIO(blob))
    else:
        frame = pl.read_ipc_stream(io.BytesIO(zlib.decompress(blob)))
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in schema.items()
    )
