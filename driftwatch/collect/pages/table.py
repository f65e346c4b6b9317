"""Rows of one shape as a matrix → scrape table; the rows with doubtful numbers one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from driftwatch.collect.pages.layout import EngineLayout, Floats, Layout, Shape, short_name
from driftwatch.collect.registry import BY_COLUMN
from driftwatch.collect.schema import (
    BUCKETS,
    SCRAPE_SCHEMA,
    TIME,
    empty_scrapes,
    scrape_frame,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One engine of one page, not yet checked."""

    instance: str  # host:port
    time: datetime  # when the page was taken
    layout: Layout  # the page's layout
    engine: EngineLayout  # this engine's part of it
    vector: Floats  # float64, one number per slot of the engine's shape
    # slot → what is wrong with a series that is there twice with different values
    twice: dict[int, str]
    doubts: tuple[str, ...]  # what is wrong with the page as a whole (broken lines)


def table(rows: Sequence[Row]) -> tuple[pl.DataFrame, list[tuple[Row, str]]]:
    """Checked rows, any shapes → scrape table (unsorted) and what was wrong, per row.

    A negative, infinite or NaN number, one above what its metric can be, a falling bucket or a
    count that is not its +Inf bucket makes the column NULL (all of the histogram's columns) and
    is named.
    """
    groups: dict[Shape, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.engine.shape, []).append(row)
    frames = [empty_scrapes()]
    problems: list[tuple[Row, str]] = []
    for shape, group in groups.items():
        matrix = np.stack([row.vector for row in group])
        doubtful = _doubtful(shape, matrix)
        for i, row in enumerate(group):
            if row.twice or row.doubts or row.engine.problems:
                doubtful[i] = True
        sound = [row for row, doubt in zip(group, doubtful, strict=True) if not doubt]
        if sound:
            frames.append(_columns(shape, sound, matrix[~doubtful]))
        singles = []
        for row in (row for row, doubt in zip(group, doubtful, strict=True) if doubt):
            values, wrong = _checked(row)
            problems.extend((row, text) for text in wrong)
            singles.append(values)
        if singles:
            frames.append(scrape_frame(singles))
    return pl.concat(frames, how="diagonal"), problems


def _doubtful(shape: Shape, matrix: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(rows,) True where a number of the row needs a closer look."""
    with np.errstate(invalid="ignore"):
        doubtful = ~((matrix >= 0) & (matrix <= _largest(shape))).all(axis=1)
    scalars = len(shape.scalars)
    for _, first, after in list(shape.slots())[scalars:]:
        buckets = matrix[:, first : after - 2]
        with np.errstate(invalid="ignore"):
            doubtful |= (np.diff(buckets, axis=1) < 0).any(axis=1)
        doubtful |= buckets[:, -1] != matrix[:, after - 1]
    return np.asarray(doubtful, dtype=np.bool_)


def _largest(shape: Shape) -> Floats:
    """(slots,) the largest number that each slot can hold."""
    return np.array(
        [
            BY_COLUMN[column].largest
            for column, first, after in shape.slots()
            for _ in range(first, after)
        ]
    )


def _columns(shape: Shape, rows: Sequence[Row], matrix: Floats) -> pl.DataFrame:
    """Sound rows of one shape, column by column."""
    n = len(rows)
    columns: dict[str, Any] = {
        "instance": [row.instance for row in rows],
        "engine": [row.engine.engine for row in rows],
        "time": pl.Series([row.time for row in rows], dtype=TIME),
        "ok": pl.Series([True], dtype=pl.Boolean).new_from_index(0, n),
        "model_name": pl.Series([row.engine.model_name for row in rows], dtype=pl.String),
        "several_api_servers": [row.layout.several_api_servers for row in rows],
        "cache_config": pl.Series([row.engine.cache_config for row in rows], dtype=pl.String),
    }
    by_slot = np.ascontiguousarray(matrix.T)
    edges_of = dict(shape.histograms)
    for column, first, after in shape.slots():
        edges = edges_of.get(column)
        if edges is None:
            columns[column] = (
                by_slot[first] if after == first + 1 else by_slot[first:after].sum(axis=0)
            )
            continue
        buckets = np.ascontiguousarray(matrix[:, first : after - 2])
        columns |= {
            f"{column}_sum": by_slot[after - 2],
            f"{column}_count": by_slot[after - 1],
            f"{column}_buckets": pl.Series(buckets).cast(BUCKETS),
            f"{column}_edges": pl.Series([list(edges)], dtype=BUCKETS).new_from_index(0, n),
        }
    return pl.DataFrame(columns).select(name for name in SCRAPE_SCHEMA if name in columns)


def _checked(row: Row) -> tuple[dict[str, object], list[str]]:
    """One row whose numbers are in doubt → its columns, the bad ones left out, and the reasons."""
    engine = row.engine
    wrong: list[str] = list(engine.problems)
    values: dict[str, object] = {}
    edges_of = dict(engine.shape.histograms)
    for column, first, after in engine.shape.slots():
        numbers = [float(v) for v in row.vector[first:after]]
        reasons = [row.twice[slot] for slot in range(first, after) if slot in row.twice]
        if not reasons:
            reasons = [
                f"{short_name(row.layout.series[engine.take[first + i]])} is {why}"
                for i, number in enumerate(numbers)
                if (why := _why_not(number, BY_COLUMN[column].largest))
            ]
        edges = edges_of.get(column)
        if edges is None:
            if not reasons:
                values[column] = numbers[0] if len(numbers) == 1 else float(np.sum(numbers))
        else:
            reasons = reasons or _histogram_wrong(row, column, edges, numbers)
            if not reasons:
                values |= {
                    f"{column}_sum": numbers[-2],
                    f"{column}_count": numbers[-1],
                    f"{column}_buckets": numbers[:-2],
                    f"{column}_edges": list(edges),
                }
        wrong += [text for text in reasons if text not in wrong]
    doubts = [*row.doubts, *wrong]
    values |= {
        "instance": row.instance,
        "engine": engine.engine,
        "time": row.time,
        "ok": True,
        "reason": _doubt_text(doubts),
        "model_name": engine.model_name,
        "several_api_servers": row.layout.several_api_servers,
        "cache_config": engine.cache_config,
    }
    return values, wrong


def _doubt_text(doubts: Sequence[str]) -> str | None:
    """Problems of a page in one line, the first three in full; None without any."""
    if not doubts:
        return None
    rest = len(doubts) - 3
    return "; ".join(doubts[:3]) + (f"; and {rest} more" if rest > 0 else "")


def _why_not(number: float, largest: float) -> str | None:
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "infinite"
    if number > largest:
        return f"{number:g}, above {largest:g}"
    return f"negative ({number:g})" if number < 0 else None


def _histogram_wrong(
    row: Row, column: str, edges: tuple[float, ...], numbers: list[float]
) -> list[str]:
    wire = BY_COLUMN[column].wire_name
    buckets, count = numbers[:-2], numbers[-1]
    for edge, below, here in zip(edges[1:], buckets, buckets[1:], strict=False):
        if here < below:
            return [f"{wire} falls from {below:g} to {here:g} at le={edge:g}"]
    if buckets[-1] != count:
        return [f"{wire} has {buckets[-1]:g} in its +Inf bucket but a count of {count:g}"]
    return []
