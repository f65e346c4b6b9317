"""The parts of histograms → sum, count and buckets, those that are sound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftwatch.collect.prometheus.columns import BUCKET, COUNT, SUM, Floats, Shape
from driftwatch.collect.prometheus.query import Numbers

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sound:
    """Histograms with the same edges."""

    rows: Numbers  # index into those that were given
    sums: Floats
    counts: Floats
    buckets: Floats  # (rows, edges), cumulative; no edges where only sum and count are there
    edges: Floats


def why_bad(largest: float) -> str:
    """What is wrong with a number that is not in 0 … largest."""
    return f"NaN, infinite, negative or above {largest:g}"


def checked(
    shape: Shape, value: Floats, there: Bools, largest: float
) -> tuple[list[Sound], list[tuple[Numbers, str]]]:
    """Those that are sound; and rows with what is wrong with them, or left out on purpose.

    ``value``: (rows, parts of the shape); ``there``: (rows, parts), whether the part has a sample;
    ``largest``: more than this is none of the metric's numbers.
    """
    sound: list[Sound] = []
    problems: list[tuple[Numbers, str]] = []
    for rows, kinds in _alike(shape, there):
        numbers, part, edges = value[rows][:, kinds], shape.part[kinds], shape.edge[kinds]
        buckets, edges = numbers[:, part == BUCKET], edges[part == BUCKET]
        sums, counts = numbers[:, part == SUM], numbers[:, part == COUNT]
        has_both, has_buckets = bool(sums.shape[1] and counts.shape[1]), len(edges) > 0
        # relabelling may drop the buckets and keep what means and rates are made of
        if has_both and not has_buckets:
            problems.append((rows, "_sum and _count, no _bucket"))
        bad = ~((numbers >= 0) & (numbers <= largest)).all(axis=1)
        problems.append((rows[bad], why_bad(largest)))
        if np.isnan(edges).any():
            problems.append((rows[~bad], "an le is not a number"))
            continue
        if not has_both or (has_buckets and edges[-1] != np.inf):
            problems.append((rows[~bad], 'incomplete: no le="+Inf", _sum or _count'))
            continue
        falls = ~bad & (np.diff(buckets, axis=1) < 0).any(axis=1)
        problems.append((rows[falls], "a bucket is below the one before"))
        unlike = ~bad & ~falls & (buckets[:, -1:] != counts).any(axis=1)
        problems.append((rows[unlike], "the +Inf bucket is not the count"))
        good = ~(bad | falls | unlike)
        if not good.all():
            rows, sums, counts, buckets = rows[good], sums[good], counts[good], buckets[good]
        sound.append(Sound(rows, sums[:, 0], counts[:, 0], buckets, edges))
    return sound, problems


def _alike(shape: Shape, there: Bools) -> Iterator[tuple[Numbers, Numbers]]:
    """Rows with samples of the same parts, and these parts, each once: "1" and "1.0" are one."""
    patterns, which = there[:1], np.zeros(len(there), np.int64)
    if not there.all():
        patterns, which = np.unique(there, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        kinds = np.nonzero(pattern)[0]
        part, edge = shape.part[kinds], shape.edge[kinds]
        new = np.ones(len(kinds), np.bool_)
        new[1:] = (part[1:] != part[:-1]) | (edge[1:] != edge[:-1])
        yield np.nonzero(which.reshape(-1) == number)[0], kinds[new]
