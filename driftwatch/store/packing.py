"""Tables of many like rows as few bytes: columns of small numbers, then LZMA.

Made for minutes of one target after the other: counts that stay below some thousand, histograms
of which most cells are empty, gauges, and columns that say the same all day. A column is written
as the smallest of what gives it back:

* nothing, where every row is NULL; one value, where every row has the same;
* whole numbers above the least of them, or their steps from row to row, in as few bytes as the
  largest needs;
* other floats in full, or rounded to so many significant bits where the caller allows it;
* text as numbers of a dictionary, times as microseconds;
* a cumulative histogram as the counts of its cells, its edges once for all rows with the same.

Bytes of the same weight lie together. Everything is little-endian; NaN comes back as NULL.
"""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from typing import Any

import orjson
import polars as pl

from driftwatch.store.packed_histograms import packed_histogram, unpacked_histogram
from driftwatch.store.packed_numbers import (
    ALL_BITS,
    Flags,
    Floats,
    packed_numbers,
    unpacked_numbers,
)

Schema = Mapping[str, pl.DataType | type[pl.DataType]]

MAGIC = b"DWP1"
_BUCKETS, _EDGES = "_buckets", "_edges"
# A raw stream names none of its parameters: these belong to MAGIC. SQLite's pages are around it.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 22}]


def pack(rows: pl.DataFrame, significant_bits: Mapping[str, int] | None = None) -> bytes:
    """A table as bytes; the same table gives the same bytes.

    Args:
        rows: columns of String, Float64, Boolean, Datetime, List(Int64), and pairs of List(Float64)
            that are named ``*_buckets`` (cumulative) and ``*_edges``.
        significant_bits: column → bits kept of floats that are no whole numbers; all of them
            without one.
    """
    bits = significant_bits or {}
    head: list[Any] = []
    body: list[bytes] = []
    histograms: set[str] = set()
    for name, dtype in rows.schema.items():
        stem, of_histogram = name, False
        for suffix in (_BUCKETS, _EDGES):
            if name.endswith(suffix) and isinstance(dtype, pl.List):
                stem, of_histogram = name.removesuffix(suffix), True
        if of_histogram:
            if stem in histograms:
                continue
            histograms.add(stem)
            name = stem + _BUCKETS
            told, data = packed_histogram(*(_lists(rows, stem + s) for s in (_BUCKETS, _EDGES)))
        else:
            told, data = _packed(rows[name], bits.get(name, ALL_BITS))
        head.append([name, len(data), *told])
        body.append(data)
    text = orjson.dumps([rows.height, head])
    payload = b"".join([len(text).to_bytes(4, "little"), text, *body])
    return MAGIC + lzma.compress(payload, format=lzma.FORMAT_RAW, filters=_FILTERS)


def unpack(blob: bytes, schema: Schema | None = None) -> pl.DataFrame:
    """Bytes → a table in today's schema, or with the columns it was packed with.

    Columns that a later version added are NULL, columns that it dropped are left out.

    Raises:
        ValueError: these are no such bytes, or damaged ones.
    """
    if not blob.startswith(MAGIC):
        raise ValueError("not a packed table")
    try:
        raw = lzma.decompress(blob[len(MAGIC) :], format=lzma.FORMAT_RAW, filters=_FILTERS)
        size = int.from_bytes(raw[:4], "little")
        count, head = orjson.loads(raw[4 : 4 + size])
    except (lzma.LZMAError, orjson.JSONDecodeError) as error:
        raise ValueError(f"a damaged packed table: {error}") from error
    data = memoryview(raw)[4 + size :]
    found: dict[str, pl.Series] = {}
    for name, length, kind, *told in head:
        part, data = data[:length], data[length:]
        if kind == "histogram":
            edges = name.removesuffix(_BUCKETS) + _EDGES
            if schema is None or name in schema or edges in schema:
                found[name], found[edges] = unpacked_histogram(told, part, count)
        elif schema is None or name in schema:
            found[name] = _unpacked(kind, told, part, count)
    if schema is None:
        return pl.DataFrame(found)
    return pl.DataFrame(
        {
            name: found[name].cast(dtype)
            if name in found
            else pl.repeat(None, count, dtype=dtype, eager=True)
            for name, dtype in schema.items()
        }
    )


def _packed(column: pl.Series, bits: int) -> tuple[list[Any], bytes]:
    """Kind and what reading it takes; the bytes."""
    if isinstance(column.dtype, pl.List):
        names = column.list.eval(pl.element().cast(pl.String)).list.join(" ", ignore_nulls=False)
        text, data = _packed(names, bits)
        return ["lists", *text[1:]], data
    if column.dtype == pl.String:
        words = column.drop_nulls().unique().sort()
        coded = column.to_frame("w").join(
            words.to_frame("w").with_row_index("n"), on="w", how="left", maintain_order="left"
        )
        numbers = packed_numbers(*_known(coded["n"]))
        return ["text", numbers.told, words.to_list()], numbers.data
    kind = "bool" if column.dtype == pl.Boolean else "float"
    if isinstance(column.dtype, pl.Datetime):
        kind, column = "time", column.dt.epoch("us")
    numbers = packed_numbers(*_known(column), bits)
    return [kind, numbers.told], numbers.data


def _lists(rows: pl.DataFrame, name: str) -> pl.Series:
    if name in rows.columns:
        return rows[name]
    return pl.repeat(None, rows.height, dtype=pl.List(pl.Float64), eager=True)


def _known(column: pl.Series) -> tuple[Floats, Flags]:
    """Numbers (0 where there is none), and where there is one."""
    floats = column.cast(pl.Float64).fill_nan(None)
    return floats.fill_null(0.0).to_numpy(), floats.is_not_null().to_numpy()


def _unpacked(kind: str, told: list[Any], data: memoryview, count: int) -> pl.Series:
    values, known = unpacked_numbers(told[0], data, count)
    found = pl.Series(values)
    if kind in ("text", "lists"):
        words = pl.Series(told[1] or [""], dtype=pl.String)
        found = words.gather(found.cast(pl.UInt32))
        if kind == "lists":
            found = found.str.split(" ").list.eval(
                pl.element().filter(pl.element() != "").cast(pl.Int64)
            )
    elif kind == "time":
        found = found.cast(pl.Int64).cast(pl.Datetime("us", "UTC"))
    elif kind == "bool":
        found = found.cast(pl.Boolean)
    if known.all():
        return found
    return pl.select(pl.when(pl.Series(known)).then(pl.lit(found))).to_series()
