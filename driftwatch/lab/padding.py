"""Padding: what a batch of unequal lengths wastes where all are brought to one length.

Holds for models served in rectangles (static and dynamic batching). vLLM packs tokens without
padding, and does not group requests by length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Padding:
    """What padding a set of lengths costs."""

    count: int  # how many lengths
    useful_tokens: int  # their sum
    padded_tokens: int  # what is computed once each has its padded length
    waste_ratio: float  # 1 − useful / padded, 0 … 1


def padded_lengths(lengths_tokens: npt.ArrayLike, bucket_tokens: tuple[int, ...] = ()) -> Integers:
    """Each length after padding, in tokens.

    Without buckets all get the longest. With buckets each gets the first bucket that holds it;
    those above the last bucket get the longest of all.

    Raises ValueError: no lengths, a length below 1, or buckets not rising or below 1.
    """
    lengths = np.asarray(lengths_tokens, dtype=np.int64)
    check_buckets(bucket_tokens)
    if lengths.ndim != 1 or len(lengths) == 0:
        raise ValueError("no lengths to pad")
    if lengths.min() < 1:
        raise ValueError(f"a length must be at least 1 token, not {lengths.min()}")
    edges = np.asarray((*bucket_tokens, max(int(lengths.max()), *bucket_tokens, 1)), dtype=np.int64)
    return np.asarray(edges[np.searchsorted(edges, lengths)], dtype=np.int64)


def padding(lengths_tokens: npt.ArrayLike, bucket_tokens: tuple[int, ...] = ()) -> Padding:
    """The waste of one batch of these lengths (tokens), or of a batch a bucket.

    >>> round(padding([64, 128, 256, 512, 1024] * 2).waste_ratio, 4)
    0.6125

    Raises:
        ValueError: as `padded_lengths`.
    """
    padded = int(padded_lengths(lengths_tokens, bucket_tokens).sum())
    useful = int(np.asarray(lengths_tokens, dtype=np.int64).sum())
    return Padding(len(np.asarray(lengths_tokens)), useful, padded, 1 - useful / padded)


def used_ratios(lengths_tokens: npt.ArrayLike, bucket_tokens: tuple[int, ...] = ()) -> Floats:
    """Of each length, the share of its padded length that is its own, 0 … 1."""
    lengths = np.asarray(lengths_tokens, dtype=np.float64)
    return np.asarray(lengths / padded_lengths(lengths_tokens, bucket_tokens), dtype=np.float64)


def batches_padding(
    lengths_tokens: npt.ArrayLike, size: int, bucket_tokens: tuple[int, ...] = ()
) -> Padding:
    """The waste where requests are batched ``size`` at a time in their order.

    With buckets each bucket fills its own batches, padded to the bucket; without, each batch is
    padded to its own longest. The last batch of each may be smaller.

    Raises ValueError: as `padded_lengths`; size below 1.
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}")
    lengths = np.asarray(lengths_tokens, dtype=np.int64)
    padded = padded_lengths(lengths, bucket_tokens)
    if not bucket_tokens:
        starts = np.arange(0, len(lengths), size)
        sizes = np.diff(np.append(starts, len(lengths)))
        padded = np.repeat(np.maximum.reduceat(lengths, starts), sizes)
    useful, spent = int(lengths.sum()), int(padded.sum())
    return Padding(len(lengths), useful, spent, 1 - useful / spent)


def check_buckets(bucket_tokens: tuple[int, ...]) -> None:
    """Refuse buckets that are below 1 or do not rise.

    Raises ValueError: with the buckets.
    """
    if any(a >= b for a, b in zip((0, *bucket_tokens), bucket_tokens, strict=False)):
        raise ValueError(f"buckets must be at least 1 and rise, not {list(bucket_tokens)}")
