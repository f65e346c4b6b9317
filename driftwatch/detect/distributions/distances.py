"""Distances between histograms: Jensen-Shannon, Wasserstein-1 of ln values, PSI, KS, mean ratio.

Every function takes counts [n, k] and a reference [n, k] or [1, k] of the same edges and returns
[n]; NaN where either side holds nothing. None depends on how large the counts are, only on shares.

Inside, cells come first ([k, n]): sums over cells then run along whole rows of memory, and never
through BLAS, whose threads cost more than they bring and whose sums depend on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftwatch.detect.distributions.cells import LOWEST_TOKENS, Floats, ln_widths

# What an empty cell counts as in PSI, whose logarithm knows no 0: the 0.01 % that scorecard
# practice uses, so that its rules of thumb (0.1 some, 0.25 much) keep their meaning. A floor of
# half a request would fit small samples better but make PSI depend on their size.
PSI_FLOOR = 1e-4
# Rows that are worked on at a time: a block of ~20 cells then stays in the second-level cache.
_BLOCK = 2048
# Added where 0 ln 0 or 0/0 would be NaN; far below any share, so nothing else changes.
_TINY = 1e-300


def js_distance(counts: Floats, reference: Floats) -> Floats:
    """Jensen-Shannon distance, base 2: 0 for equal shares, 1 for no cell in common.

    sqrt((Σ p ln(p/m) + Σ q ln(q/m)) / (2 ln 2)), m = (p + q)/2; no smoothing (Lin 1991, "Divergence
    measures based on the Shannon entropy"; its root is a metric, Endres & Schindelin 2003).

    >>> js_distance(np.array([[10.0, 0.0], [5.0, 5.0]]), np.array([[0.0, 7.0]])).round(3)
    array([1.   , 0.558])
    """
    return _js(_shares(counts), _shares(reference))


def _shares(counts: Floats) -> Floats:
    """Counts [n, k] → shares [k, n]; NaN where a row holds nothing."""
    found: Floats = np.ascontiguousarray(counts.T, dtype=float)
    total = found.sum(axis=0)
    return found / np.where(total > 0, total, np.nan)


def _js(p: Floats, q: Floats) -> Floats:
    middle = p + q
    middle *= 0.5
    middle += _TINY
    divergence = _relative_entropy(p, middle)
    divergence += _relative_entropy(q, middle)
    found: Floats = np.sqrt(np.clip(divergence.sum(axis=0) / (2 * np.log(2)), 0.0, 1.0))
    return found


def _relative_entropy(p: Floats, middle: Floats) -> Floats:
    """p ln(p/m) by cell; 0 where p is 0."""
    found = (p + _TINY) / middle  # p may be one column for all
    np.log(found, out=found)
    found *= p
    return found


@dataclass(frozen=True, slots=True)
class Wasserstein:
    """Wasserstein-1 distance of ln values, each [n], as a ratio: "the typical length x1.3".

    Attributes:
        ratio: exp(W1), values spread evenly (in ln) over their cells.
        lower_ratio: the smallest that any placement of the values inside their cells allows.
        upper_ratio: the largest; far above 1 for equal histograms of wide cells, so no alarm may
            stand on it.
    """

    ratio: Floats
    lower_ratio: Floats
    upper_ratio: Floats


def w1_ratio(
    counts: Floats, reference: Floats, edges: Floats, lowest: float = LOWEST_TOKENS
) -> Floats:
    """exp of the Wasserstein-1 distance of ln values [n]: see :class:`Wasserstein`.

    Σ w_k g(d_{k-1}, d_k) with d = F - G at the edges and g the mean of a straight line's size
    between them, which is exact where both sides lie evenly in ln inside each cell.

    Args:
        counts: [n, k].
        reference: [n, k] or [1, k].
        edges: [k].
        lowest: see :func:`driftwatch.detect.distributions.cells.cell_bounds`.
    """
    widths = ln_widths(edges, lowest)
    found: Floats = np.exp(_w1(_shares(counts), _shares(reference), widths))
    return found


def _w1(p: Floats, q: Floats, widths: Floats) -> Floats:
    after = _cdf(p - q)
    size = np.abs(after)
    # twice the mean size between the edges, less what a line that crosses zero there saves
    mean = size.copy()
    mean[1:] += size[:-1]
    crossing = after[1:] * after[:-1]
    np.minimum(crossing, 0.0, out=crossing)
    crossing /= mean[1:] + _TINY
    mean *= 0.5
    mean[1:] += crossing
    mean *= widths[:, None]
    found: Floats = mean.sum(axis=0)
    return found


def _cdf(shares: Floats) -> Floats:
    """Sums over the cells so far [k, n], in place."""
    for cell in range(1, len(shares)):
        shares[cell] += shares[cell - 1]
    return shares


def wasserstein(
    counts: Floats, reference: Floats, edges: Floats, lowest: float = LOWEST_TOKENS
) -> Wasserstein:
    """The distance with its hard bounds from the width of the cells; see :class:`Wasserstein`.

    Inside a cell each CDF may rise anywhere between its values at the two edges. Where those
    ranges overlap they may coincide; else they stay as far apart as the ranges are.
    """
    p, q = _shares(counts), _shares(reference)
    widths = ln_widths(edges, lowest)
    f, g = _cdf(p.copy()), _cdf(q.copy())
    f0, g0 = f - p, g - q
    apart = np.maximum(np.maximum(f0 - g, g0 - f), 0.0)
    furthest = np.maximum(np.abs(f - g0), np.abs(g - f0))
    return Wasserstein(
        ratio=np.exp(_w1(p, q, widths)),
        lower_ratio=np.exp((apart * widths[:, None]).sum(axis=0)),
        upper_ratio=np.exp((furthest * widths[:, None]).sum(axis=0)),
    )


def psi(counts: Floats, reference: Floats) -> Floats:
    """Population stability index Σ (p - q) ln(p/q) [n], empty cells raised to :data:`PSI_FLOOR`.

    A cell that is empty on both sides adds nothing.
    """
    p, q = (np.maximum(_shares(side), PSI_FLOOR) for side in (counts, reference))
    found: Floats = ((p - q) * np.log(p / q)).sum(axis=0)
    return found


def ks_distance(counts: Floats, reference: Floats) -> Floats:
    """Kolmogorov-Smirnov distance at the edges [n]; what lies between edges can only add to it."""
    found: Floats = np.abs(_cdf(_shares(counts) - _shares(reference))).max(axis=0)
    return found


def mean_log_ratio(sums: Floats, counts: Floats, of_sums: Floats, of_counts: Floats) -> Floats:
    """|ln((S/n) / (S_r/n_r))| [n] from ``_sum`` and ``_count``: exact, and sees inside cells.

    NaN where a sum or a count is not positive.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where((counts > 0) & (sums > 0), sums / counts, np.nan)
        of_means = np.where((of_counts > 0) & (of_sums > 0), of_sums / of_counts, np.nan)
        found: Floats = np.abs(np.log(means / of_means))
    return found


def js_and_w1(
    counts: Floats, reference: Floats, edges: Floats, lowest: float = LOWEST_TOKENS
) -> tuple[Floats, Floats]:
    """:func:`js_distance` and :func:`w1_ratio` at once, block by block: what the scores need.

    Args:
        counts: [n, k].
        reference: [n, k] or [1, k].
        edges: [k].
        lowest: see :func:`driftwatch.detect.distributions.cells.cell_bounds`.

    Returns:
        Two arrays [n].
    """
    widths = ln_widths(edges, lowest)
    js, w1 = np.empty(len(counts)), np.empty(len(counts))
    for first in range(0, len(counts), _BLOCK):
        block = slice(first, first + _BLOCK)
        p = _shares(counts[block])
        q = _shares(reference if len(reference) == 1 else reference[block])
        js[block], w1[block] = _js(p, q), np.exp(_w1(p, q, widths))
    return js, w1
