"""Traffic of two stretches, matched: minutes with the same load and the same lengths.

Coarsened exact matching (Iacus, King, Porro, "Causal Inference without Balance Checking: Coarsened
Exact Matching", Political Analysis 20, 2012): offered load and both mean lengths are cut into bins,
minutes of both stretches in one cell are compared, the others are left out. The bins:

* load, requests/s: ×1.25. A server below saturation changes by less within a bin than its own
  noise; narrower bins leave few minutes matched.
* mean prompt and generation tokens: ×1.32 = 1.15², so that lengths within a bin lie within ×1.15 of
  its middle, the smallest shift that counts as one everywhere else here.

The grid is laid so that the middle of a bin is the later stretch's median: else traffic that sits
on an edge would match by chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

LOAD_BIN = 1.25
LENGTH_BIN = 1.15**2
BINS = {
    "requests_per_second": LOAD_BIN,
    "prompt_tokens_mean": LENGTH_BIN,
    "generation_tokens_mean": LENGTH_BIN,
}
LENGTHS = ("prompt_tokens_mean", "generation_tokens_mean")

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Minutes of two stretches in common cells.

    Attributes:
        before: those of the first that were matched, in order.
        after: those of the second.
        before_cell: [len(before)] number of the cell.
        after_cell: [len(after)].
        weights: [cells] what a cell counts, the same on both sides.
        by: columns that were matched on.
    """

    before: pl.DataFrame
    after: pl.DataFrame
    before_cell: Ints
    after_cell: Ints
    weights: Floats
    by: tuple[str, ...]

    @property
    def minutes(self) -> tuple[int, int]:
        """How many were matched on either side."""
        return len(self.before), len(self.after)


def matched(
    before: pl.DataFrame, after: pl.DataFrame, by: tuple[str, ...] = tuple(BINS)
) -> Matched:
    """Match two stretches.

    A cell with b and a minutes counts b·a/(b+a) (Cochran's weight: the inverse of the variance of
    the difference where minutes are equally noisy).

    Args:
        before: from :func:`driftwatch.verify.traffic.comparable`.
        after: the same.
        by: names of :data:`BINS`.
    """
    cells_before, cells_after = _cells(before, after, by)
    # a scalar key: the combinations that occur, numbered
    _, numbered = np.unique(
        np.concatenate([cells_before, cells_after]), axis=0, return_inverse=True
    )
    keys = numbered.ravel().astype(np.int64)
    one, other = keys[: len(before)], keys[len(before) :]
    common = np.intersect1d(one, other)
    in_one, in_other = np.isin(one, common), np.isin(other, common)
    one, other = np.searchsorted(common, one[in_one]), np.searchsorted(common, other[in_other])
    b, a = (np.bincount(side, minlength=len(common)).astype(float) for side in (one, other))
    with np.errstate(invalid="ignore"):
        weights: Floats = b * a / (b + a)
    return Matched(
        before=before.filter(pl.Series(in_one, dtype=pl.Boolean)),
        after=after.filter(pl.Series(in_other, dtype=pl.Boolean)),
        before_cell=one.astype(np.int64),
        after_cell=other.astype(np.int64),
        weights=weights,
        by=by,
    )


def _cells(before: pl.DataFrame, after: pl.DataFrame, by: tuple[str, ...]) -> tuple[Ints, Ints]:
    """[minutes, columns] bin numbers of both stretches, on one grid."""
    return bins_of(before, after, by), bins_of(after, after, by)


def bins_of(minutes: pl.DataFrame, after: pl.DataFrame, by: tuple[str, ...]) -> Ints:
    """[minutes, columns] bin numbers of minutes on the grid of a later stretch.

    Args:
        minutes: any of them.
        after: the stretch whose median is the middle of a bin.
        by: names of :data:`BINS`.
    """
    found: list[Ints] = []
    for name in by:
        middle = after[name].log().median()
        width = float(np.log(BINS[name]))
        logs = minutes[name].log().to_numpy()
        found.append(np.floor((logs - float(middle or 0.0)) / width + 0.5).astype(np.int64))  # type: ignore[arg-type]
    return np.stack(found, axis=1) if len(minutes) else np.zeros((0, len(by)), dtype=np.int64)
