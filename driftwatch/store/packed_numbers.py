"""A column of numbers as few bytes, for :mod:`driftwatch.store.packing`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

ALL_BITS = 53  # of a double's significand
# whole numbers up to here are exact in a double, and differences of two of them in 64 bits
_LARGEST_WHOLE = float(2**53)
_SINGLE_BITS = 24
_UNSIGNED = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}


@dataclass(frozen=True, slots=True)
class Numbers:
    """A packed column.

    Attributes:
        told: what reading it takes, as JSON can hold it.
        data: the bytes.
    """

    told: list[Any]
    data: bytes


def packed_numbers(values: Floats, known: Flags, bits: int = ALL_BITS) -> Numbers:
    """Numbers as bytes.

    Args:
        values: one per row.
        known: whether the row has one; what ``values`` says of others is not kept.
        bits: significant bits that a number keeps which is not whole.
    """
    mask = b"" if known.all() else np.packbits(known).tobytes()
    held = values[known]
    if held.size == 0:
        return Numbers(["null"], b"")
    head: list[Any] = [len(mask)]
    first = float(held[0])
    if np.isfinite(first) and (held == first).all():
        if first != np.rint(first):
            first = float(_rounded(held[:1], bits)[0])
        return Numbers(["same", *head, first], mask)
    if is_whole(held):
        told, data = _whole(held.astype(np.int64))
    elif bits <= _SINGLE_BITS and _fits_single(held):
        told, data = ["f4"], _by_weight(_rounded(held, bits).astype("<f4").view(np.uint8), 4)
    else:
        told, data = ["f8"], _by_weight(_rounded(held, bits).astype("<f8").view(np.uint8), 8)
    return Numbers([told[0], *head, *told[1:]], mask + data)


def unpacked_numbers(told: list[Any], data: memoryview, count: int) -> tuple[Floats, Flags]:
    """What was packed: numbers (0 where unknown), and which are known."""
    values, known = np.zeros(count), np.ones(count, dtype=np.bool_)
    kind = told[0]
    if kind == "null":
        known[:] = False
        return values, known
    size, rest = int(told[1]), told[2:]
    if size:
        known = np.unpackbits(np.frombuffer(data[:size], np.uint8), count=count).astype(np.bool_)
    body = np.frombuffer(data[size:], np.uint8)
    if kind == "same":
        values[known] = rest[0]
    elif kind in ("f4", "f8"):
        values[known] = _by_row(body, int(kind[1])).view(f"<{kind}").astype(np.float64)
    else:
        width, offset = int(kind[1:]), int(rest[0])
        whole = _by_row(body, width).view(_UNSIGNED[width]).astype(np.int64)
        if kind[0] == "s":  # steps, the sign in the lowest bit
            whole = np.cumsum((whole >> 1) ^ -(whole & 1))
        values[known] = whole + offset
    return values, known


def is_whole(values: Floats) -> bool:
    """Whether all are whole numbers that a double holds exactly."""
    finite = bool(np.isfinite(values).all())
    return finite and bool(
        (values == np.rint(values)).all() and (np.abs(values) < _LARGEST_WHOLE).all()
    )


def _fits_single(values: Floats) -> bool:
    """Every number is finite, and 0 or a normal float32."""
    large = np.abs(values[values != 0])
    limits = np.finfo(np.float32)
    return bool(np.isfinite(values).all()) and bool(
        (large >= limits.tiny).all() and (large < limits.max).all()
    )


def _rounded(values: Floats, bits: int) -> Floats:
    """Numbers with that many significant bits; whole ones stay, whatever they need."""
    if bits >= ALL_BITS:
        return values
    with np.errstate(invalid="ignore"):
        part, power = np.frexp(values)
        near: Floats = np.ldexp(np.rint(np.ldexp(part, bits)), power - bits)
    return np.where(np.isfinite(values), near, values)


def _whole(values: NDArray[np.int64]) -> tuple[list[Any], bytes]:
    """Whole numbers above their least, or their steps: what is shorter."""
    least = int(values.min())
    above = (values - least).view(np.uint64)
    steps = np.diff(values, prepend=values[:1])
    signed = ((steps << 1) ^ (steps >> 63)).view(np.uint64)
    if _weight(signed) < _weight(above):
        letter, offset, numbers = "s", int(values[0]), signed
    else:
        letter, offset, numbers = "u", least, above
    width = next(w for w in _UNSIGNED if int(numbers.max()) < 1 << (8 * w))
    data = _by_weight(numbers.astype(_UNSIGNED[width]).view(np.uint8), width)
    return [f"{letter}{width}", offset], data


def _weight(numbers: NDArray[np.uint64]) -> float:
    """Bits that the numbers would need, each on its own: what a compressor comes near to."""
    return float(np.log2(numbers.astype(np.float64) + 1.0).sum())


def _by_weight(data: NDArray[np.uint8], width: int) -> bytes:
    """Bytes of numbers, all first bytes first."""
    return np.ascontiguousarray(data.reshape(-1, width).T).tobytes()


def _by_row(data: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """Bytes of one number after the other again."""
    return np.ascontiguousarray(data.reshape(width, -1).T).reshape(-1)
