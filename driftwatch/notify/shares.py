"""Shares of requests by length, the baseline above now. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from driftwatch.documents import Document
from driftwatch.numbers import count

# six cells of at most "≤65.5k" leave room for the label and the counts in 80 columns
_WIDTH = 80
_MOST_CELLS = 6
_LABEL, _CELL = 17, 6


class LengthShares(Document):
    """Two distributions of a length on their common edges."""

    edges_tokens: tuple[float | None, ...]  # upper edge of each cell; None = no upper edge
    baseline_share: tuple[float, ...]  # of the requests in each cell, summing to 1
    share: tuple[float, ...]  # the window's
    baseline_requests: float
    requests: float


def shares(histograms: Mapping[str, Sequence[float]], stem: str) -> LengthShares | None:
    """The shares of one length; None without both histograms or a common edge.

    ``histograms``: cumulative counts and edges, of the window and (``reference_``) the baseline;
    ``stem``: prompt_tokens or generation_tokens.
    """
    names = [f"{which}{stem}_{part}" for which in ("reference_", "") for part in _PARTS]
    if any(not histograms.get(name) for name in names):
        return None
    was, was_edges, now, now_edges = (list(histograms[name]) for name in names)
    common = sorted(set(was_edges) & set(now_edges))
    if len(common) < 3 or len(was) != len(was_edges) or len(now) != len(now_edges):
        return None
    counted = [
        [cumulative[edges.index(edge)] for edge in common]
        for cumulative, edges in ((was, was_edges), (now, now_edges))
    ]
    if not all(counts[-1] > 0 for counts in counted):
        return None
    before, after = (
        tuple((b - a) / counts[-1] for a, b in pairwise([0.0, *counts])) for counts in counted
    )
    return LengthShares(
        edges_tokens=tuple(None if math.isinf(edge) else edge for edge in common),
        baseline_share=before,
        share=after,
        baseline_requests=counted[0][-1],
        requests=counted[1][-1],
    )


_PARTS = ("buckets", "edges")


def shares_table(both: LengthShares, stem: str) -> list[str]:
    """The table of one length, of at most 80 columns; ``stem``: prompt or generation."""
    for most in range(_MOST_CELLS, 1, -1):  # fewer cells, because a cut number is wrong
        lines = _table(both, stem, most)
        if max(map(len, lines)) <= _WIDTH:
            break
    return lines


def _table(both: LengthShares, stem: str, most: int) -> list[str]:
    edges, before, now = _merged(both, most)
    head = f"{stem} tokens".ljust(_LABEL) + "".join(
        _edge(edge, edges).rjust(_CELL + 1) for edge in edges
    )
    lines = [f"{head}  requests, %"]
    of = (f"n {count(both.baseline_requests)}", f"n {count(both.requests)}")
    for name, row, note in zip(("baseline", "now"), (before, now), of, strict=True):
        cells = "".join(f"{100 * share:.0f}".rjust(_CELL + 1) for share in row)
        lines.append(f"{f' {name}'.ljust(_LABEL)}{cells}  {note}")
    return lines


def _merged(both: LengthShares, most: int) -> tuple[list[float | None], list[float], list[float]]:
    """Merge the smallest cells with their neighbours until the rest fit a line."""
    edges, before, now = list(both.edges_tokens), list(both.baseline_share), list(both.share)
    while len(edges) > 2:
        weight = [one + other for one, other in zip(before, now, strict=True)]
        least = min(range(len(edges)), key=weight.__getitem__)
        if len(edges) <= most and weight[least] >= 0.01:
            break
        # merged cells keep the upper cell's edge
        upper = max(1, least) if least + 1 == len(edges) else least + 1
        for row in (before, now):
            row[upper] += row[upper - 1]
            del row[upper - 1]
        del edges[upper - 1]
    return edges, before, now


def _edge(edge: float | None, edges: Sequence[float | None]) -> str:
    if edge is None:
        return f">{_short(edges[-2])}" if len(edges) > 1 else "all"
    return f"≤{_short(edge)}"


def _short(tokens: float | None) -> str:
    """``200``, ``1k``, ``4.1k``, ``20k``."""
    if tokens is None or tokens < 1000:
        return f"{tokens:.3g}"
    return f"{tokens / 1000:.3g}k" if tokens < 999_500 else f"{tokens / 1e6:.3g}M"
