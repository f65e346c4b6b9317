"""Which series of a column can be read at once, and which engines want a choice first."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftwatch.collect.prometheus.roster import Numbers, Roster, Variants
from driftwatch.collect.registry import Metric


@dataclass(frozen=True, slots=True)
class Block:
    """Engines whose series can be read without a look at their labels: one of each kind."""

    engines: Numbers  # their numbers
    origins: Numbers  # the one of each engine
    # (engines, kinds): of a histogram its buckets by edge, then sum and count; of any other metric
    # the summands
    series: npt.NDArray[np.int32]
    edges: tuple[float, ...] = ()  # upper edges of the buckets


@dataclass(frozen=True, slots=True)
class Column:
    """The series that one column is read from."""

    metric: Metric  # what is read
    origins: Numbers  # those that its series have, each once
    blocks: tuple[Block, ...]  # what can be read at once
    # engines that a choice must be made for: several origins or names, the same series twice,
    # buckets that are not whole
    rest: Numbers


def column_of(
    metric: Metric,
    origins: npt.NDArray[np.int32],
    variants: npt.NDArray[np.int32],
    said: Variants,
    roster: Roster,
) -> Column | None:
    """The column of a metric, None where the answer has no series of it.

    Args:
        origins: of each series, -1 where it is not of the metric.
    """
    series = np.nonzero(origins >= 0)[0]
    if not len(series):
        return None
    origin, variant = origins[series].astype(np.int64), variants[series].astype(np.int64)
    engine = roster.engine[origin]
    kind = variant if metric.type != "histogram" else said.edge[variant]
    # by engine; of a histogram the buckets by edge, then sum and count
    order = np.lexsort((kind, said.suffix[variant], engine))
    engine, kinds = engine[order], variant[order]
    starts = np.nonzero(np.diff(engine, prepend=-1))[0]
    sizes = np.diff(starts, append=len(engine))
    chosen = origin[order] * 64 + said.rank[kinds].astype(np.int64)
    plain = np.minimum.reduceat(chosen, starts) == np.maximum.reduceat(chosen, starts)
    twice = (np.diff(kinds, prepend=-1) == 0) & (np.diff(engine, prepend=-1) == 0)
    plain &= ~np.logical_or.reduceat(twice, starts)
    blocks: list[Block] = []
    rest = [engine[starts[~plain]]]
    for size in np.unique(sizes[plain]).tolist():
        at = starts[plain & (sizes == size)]
        of = at[:, None] + np.arange(size)
        block = Block(engine[at], origin[order][at], series[order][of].astype(np.int32))
        if metric.type == "histogram":
            whole, blocks_of = _histograms(block, said, kinds[of])
            blocks += blocks_of
            rest.append(block.engines[~whole])
        else:
            blocks.append(block)
    return Column(metric, np.unique(origin), tuple(blocks), np.concatenate(rest))


def _histograms(
    block: Block, said: Variants, kinds: Numbers
) -> tuple[npt.NDArray[np.bool_], list[Block]]:
    """Engines with all parts of a histogram, those with the same edges together."""
    size = kinds.shape[1]
    if size < 3:
        return np.zeros(len(kinds), np.bool_), []
    parts, edges = said.suffix[kinds], said.edge[kinds][:, :-2]
    wanted = [1.0] * (size - 2) + [2.0, 3.0]
    whole = (parts == wanted).all(axis=1) & (edges[:, -1] == math.inf)
    whole &= (np.diff(edges, axis=1) > 0).all(axis=1) & ~np.isnan(edges).any(axis=1)
    if not whole.any():
        return whole, []
    kept = Block(block.engines[whole], block.origins[whole], block.series[whole])
    different, which = np.unique(edges[whole], axis=0, return_inverse=True)
    which = which.reshape(-1)
    return whole, [
        Block(
            kept.engines[which == number],
            kept.origins[which == number],
            kept.series[which == number],
            tuple(one.tolist()),
        )
        for number, one in enumerate(different)
    ]
