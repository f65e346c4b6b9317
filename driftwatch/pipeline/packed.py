"""Small frames as bytes of the tick's memory."""

from __future__ import annotations

import io

import polars as pl


def packed(frame: pl.DataFrame) -> bytes:
    """A frame as bytes; the same frame gives the same bytes."""
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="zstd")
    return buffer.getvalue()


def unpacked(data: bytes) -> pl.DataFrame:
    """The frame that :func:`packed` was given."""
    return pl.read_ipc(io.BytesIO(data))
