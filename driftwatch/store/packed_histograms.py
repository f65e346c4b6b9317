"""Cumulative histograms as few bytes, for :mod:`driftwatch.store.packing`."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from driftwatch.store.packed_numbers import Floats, is_whole, packed_numbers, unpacked_numbers

_LISTS = pl.List(pl.Float64)


def packed_histogram(buckets: pl.Series, edges: pl.Series) -> tuple[list[Any], bytes]:
    """Cumulative counts and their edges, row by row.

    Rows with the same edges are one matrix, cell by cell. Counts that are whole numbers are
    written as those of each cell; others, and lists that fit no edges, as they are.
    """
    layouts, which = _layouts(edges)
    where = packed_numbers(which.astype(np.float64), np.ones(len(which), dtype=np.bool_))
    lengths = buckets.list.len().fill_null(0).to_numpy()
    has = buckets.is_not_null().to_numpy()
    told: list[Any] = []
    data = [where.data]
    widths = np.array([len(layout) for layout in layouts] + [-1])[which]  # -1: no edges
    regular = has & (lengths == widths)
    other = np.flatnonzero(has & ~regular)
    for number, layout in enumerate(layouts):
        rows = np.flatnonzero(regular & (which == number))
        values, known = _matrix(buckets.gather(rows), len(rows), len(layout))
        whole = bool(known.all()) and is_whole(values)
        cells = np.diff(values, axis=1, prepend=0.0) if whole else values
        numbers = packed_numbers(cells.T.reshape(-1), known.T.reshape(-1))
        told.append([whole, _present(rows, which == number), numbers.told, len(numbers.data)])
        data.append(numbers.data)
    # as text, for JSON has no infinity
    odd = [
        [int(row), [None if v is None else repr(v) for v in buckets[int(row)].to_list()]]
        for row in other
    ]
    finite = [[None if np.isinf(edge) else edge for edge in layout] for layout in layouts]
    return ["histogram", finite, where.told, len(where.data), told, odd], b"".join(data)


def _present(rows: NDArray[np.intp], of_layout: NDArray[np.bool_]) -> list[int] | None:
    """Which of a layout's rows have counts; None = all of them."""
    mine = np.flatnonzero(of_layout)
    return None if len(mine) == len(rows) else np.flatnonzero(np.isin(mine, rows)).tolist()


def _matrix(lists: pl.Series, rows: int, columns: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Lists of one length as a matrix (0 where NULL), and where a number is known."""
    flat = lists.explode(empty_as_null=False) if rows * columns else pl.Series([], dtype=pl.Float64)
    shape = (rows, columns)
    return (
        flat.fill_null(0.0).to_numpy().reshape(shape),
        flat.is_not_null().to_numpy().reshape(shape),
    )


def _layouts(edges: pl.Series) -> tuple[list[list[float]], NDArray[np.int64]]:
    """The different edges, and each row's number among them; -1 without edges."""
    which = np.full(len(edges), -1, dtype=np.int64)
    lengths = edges.list.len().fill_null(0).to_numpy()
    has = edges.is_not_null().to_numpy()
    layouts: list[list[float]] = []
    for length in np.unique(lengths[has]):
        rows = np.flatnonzero(has & (lengths == length))
        matrix, _ = _matrix(edges.gather(rows), len(rows), int(length))
        if (matrix == matrix[:1]).all():
            different, number = matrix[:1], np.zeros(len(rows), dtype=np.int64)
        else:
            different, number = np.unique(matrix, axis=0, return_inverse=True)
        which[rows] = len(layouts) + number.reshape(-1)
        layouts += different.tolist()
    return layouts, which


def unpacked_histogram(
    told: list[Any], data: memoryview, count: int
) -> tuple[pl.Series, pl.Series]:
    """Cumulative counts and edges, row by row."""
    finite, where, length, parts, odd = told
    layouts = [[np.inf if edge is None else edge for edge in layout] for layout in finite]
    which = unpacked_numbers(where, data[:length], count)[0].astype(np.int64)
    data = data[length:]
    place = np.full(count, -1, dtype=np.int64)
    found: list[pl.Series] = []
    at = 0
    for number, (whole, present, numbers, size) in enumerate(parts):
        rows = np.flatnonzero(which == number)
        rows = rows if present is None else rows[present]
        width = len(layouts[number])
        flat, known = unpacked_numbers(numbers, data[:size], len(rows) * width)
        data = data[size:]
        matrix = np.ascontiguousarray(flat.reshape(width, len(rows)).T)
        if whole:
            matrix = np.cumsum(matrix, axis=1)
        values = pl.Series(matrix.reshape(-1))
        if not known.all():
            held = pl.Series(np.ascontiguousarray(known.reshape(width, len(rows)).T).reshape(-1))
            values = pl.select(pl.when(held).then(pl.lit(values))).to_series()
        found.append(_lists(values, len(rows), width))
        place[rows] = np.arange(at, at + len(rows))
        at += len(rows)
    for row, values in odd:
        floats = [None if value is None else float(value) for value in values]
        found.append(pl.Series([floats], dtype=_LISTS))
        place[row], at = at, at + 1
    buckets = pl.concat([pl.Series([], dtype=_LISTS), *found])
    return _gathered(buckets, place), _gathered(pl.Series(layouts, dtype=_LISTS), which)


def _lists(flat: pl.Series, rows: int, width: int) -> pl.Series:
    if rows * width == 0:
        return pl.Series([[]] * rows, dtype=_LISTS)
    return flat.reshape((rows, width)).cast(_LISTS)


def _gathered(lists: pl.Series, place: NDArray[np.int64]) -> pl.Series:
    """The lists in these places; NULL for -1."""
    places = pl.Series(place)
    return lists.gather(pl.select(pl.when(places >= 0).then(places)).to_series())
