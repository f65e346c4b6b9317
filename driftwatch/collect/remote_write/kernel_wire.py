"""Loops over the bytes of a WriteRequest (Prometheus remote write 1.0) and over its samples.

Protobuf without objects: a fleet of 10,000 servers writes 2.4 million series each scrape, and they
are those of the scrape before. A series is known by a hash of its labels as they were written, 128
bits with a key of the process: of n series two meet with a chance of n²/2¹²⁹ (10⁻²⁵ for 10
million), unless the sender knows the key.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from driftwatch.simulate.kernel.compiling import cached, compiled

Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]  # (series, 2)
Numbers = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

OK, CUT, BAD_WIRE_TYPE, BAD_VARINT = 0, 1, 2, 3
WRONG = {
    CUT: "a field is longer than what holds it",
    BAD_WIRE_TYPE: "a wire type that protobuf does not have",
    BAD_VARINT: "a number of more than ten bytes",
}
# the bits of a stale marker: the series ended
STALE = 0x7FF0000000000002
NONE = -1  # number of a series that is not known
_K0, _K1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


def _loading(width: int) -> Any:
    """A function that loads so many bits of an array of bytes, from any place."""

    @intrinsic
    def load(_context: Any, body: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            pointer = builder.gep(array.data, [arguments[1]])
            word = ir.IntType(width)
            loaded = builder.load(builder.bitcast(pointer, word.as_pointer()))
            loaded.align = 1
            return builder.zext(loaded, ir.IntType(64)) if width < 64 else loaded

        return types.uint64(body, types.int64), generate

    return load


_byte, _word = _loading(8), _loading(64)


@compiled
def _varint(body: Bytes, at: int, end: int) -> tuple[np.uint64, int]:
    """The number and what follows it; below 0: what is wrong."""
    value = np.uint64(0)
    for i in range(10):
        if at + i >= end:
            return value, -CUT
        byte = _byte(body, at + i)
        value |= (byte & np.uint64(0x7F)) << np.uint64(7 * i)
        if byte < np.uint64(0x80):
            return value, at + i + 1
    return value, -BAD_VARINT


@compiled
def _after(body: Bytes, at: int, end: int, wire_type: np.uint64) -> tuple[int, int]:
    """Where the content of a field begins and ends; the latter below 0: what is wrong."""
    if wire_type == 2:
        size, begin = _varint(body, at, end)
        if begin < 0:
            return begin, begin
        if size > np.uint64(end - begin):
            return begin, -CUT
        return begin, begin + np.int64(size)
    if wire_type == 0:
        _, after = _varint(body, at, end)
        return at, after
    if wire_type == 1 or wire_type == 5:
        after = at + (8 if wire_type == 1 else 4)
        return at, after if after <= end else -CUT
    return at, -BAD_WIRE_TYPE


@compiled
def _hash(body: Bytes, at: int, end: int, key: Hashes, out: Hashes, row: int) -> None:
    """Both halves of a series' hash, of the bytes of its labels."""
    a, b = key[0] ^ np.uint64(end - at), key[1]
    while at < end:
        if at + 8 <= end:
            word = _word(body, at)
        else:
            word = np.uint64(0)
            for i in range(end - at):
                word |= _byte(body, at + i) << np.uint64(8 * i)
        a = (a ^ word) * _K0
        a ^= a >> np.uint64(32)
        b = (b + word) * _K1
        b ^= b >> np.uint64(29)
        at += 8
    a ^= b << np.uint64(7)
    out[row, 0] = (a ^ (a >> np.uint64(31))) * _K1
    b = (b ^ (b >> np.uint64(33))) * _K0
    out[row, 1] = b ^ (b >> np.uint64(30))


@cached
def walk(
    body: Bytes,
    key: Hashes,
    labels: Numbers,
    hashes: Hashes,
    counts: Numbers,
    at_ms: Numbers,
    value: Floats,
    sizes: Numbers,
) -> int:
    """Read a WriteRequest; what is wrong, or OK.

    ``labels``: (series, 2), where the labels of each begin and end; ``counts``: its samples;
    ``at_ms``, ``value``: of each sample, series after series; all with room for half as many as
    there are bytes. ``sizes``: how many series, samples and native histograms there are.
    """
    bits = value.view(np.uint64)
    at, end, series, sample, native = 0, len(body), 0, 0, 0
    while at < end:
        tag, at = _varint(body, at, end)
        if at < 0:
            return -at
        inner, after = _after(body, at, end, tag & np.uint64(7))
        if after < 0:
            return -after
        at = after
        if tag != 10:  # field 1, a TimeSeries
            continue
        first, last = after, inner
        counts[series] = 0
        while inner < after:
            here = inner
            tag, inner = _varint(body, inner, after)
            if inner < 0:
                return -inner
            begin, inner = _after(body, inner, after, tag & np.uint64(7))
            if inner < 0:
                return -inner
            if tag == 10:  # field 1, a Label
                first, last = min(first, here), inner
            elif tag == 34:  # field 4, a Histogram
                native += 1
            elif tag == 18:  # field 2, a Sample
                at_ms[sample], bits[sample] = 0, 0
                while begin < inner:
                    tag, begin = _varint(body, begin, inner)
                    if begin < 0:
                        return -begin
                    content, begin = _after(body, begin, inner, tag & np.uint64(7))
                    if begin < 0:
                        return -begin
                    if tag == 9:  # field 1, a double
                        bits[sample] = _word(body, content)
                    elif tag == 16:  # field 2, an int64
                        number, _ = _varint(body, content, begin)
                        at_ms[sample] = np.int64(number)
                sample += 1
                counts[series] += 1
        last = max(first, last)
        labels[series, 0], labels[series, 1] = first, last
        _hash(body, first, last, key, hashes, series)
        series += 1
    sizes[0], sizes[1], sizes[2] = series, sample, native
    return OK


@compiled
def _put(text: Bytes, to: int, byte: int) -> int:
    text[to] = np.uint8(byte)
    return to + 1


@compiled
def _escaped(body: Bytes, at: int, end: int, text: Bytes, to: int) -> int:
    """A JSON string of these bytes; what follows it."""
    to = _put(text, to, 34)
    for i in range(at, end):
        byte = body[i]
        if byte == 34 or byte == 92:
            to = _put(text, to, 92)
            to = _put(text, to, byte)
        elif byte < 32:
            for one in (92, 117, 48, 48, 48 + (byte >> 4)):  # \u00 and the first digit
                to = _put(text, to, one)
            digit = byte & 15
            to = _put(text, to, 48 + digit if digit < 10 else 87 + digit)
        else:
            to = _put(text, to, byte)
    return _put(text, to, 34)


@cached
def write_json(body: Bytes, labels: Numbers, text: Bytes) -> int:
    """Labels of series as JSON objects, one a line; how many bytes, below 0: what is wrong.

    ``text``: room for six bytes a byte and eight more a series.
    """
    to = 0
    for row in range(len(labels)):
        if row:
            to = _put(text, to, 10)
        to = _put(text, to, 123)
        at, end = labels[row, 0], labels[row, 1]
        is_first = True
        while at < end:
            tag, at = _varint(body, at, end)
            inner, after = _after(body, at, end, tag & np.uint64(7))
            at = after
            if tag != 10:  # samples may stand between labels
                continue
            name, name_end, content, content_end = inner, inner, inner, inner
            while inner < after:
                tag, inner = _varint(body, inner, after)
                if inner < 0:
                    return inner
                begin, inner = _after(body, inner, after, tag & np.uint64(7))
                if inner < 0:
                    return inner
                if tag == 10:
                    name, name_end = begin, inner
                elif tag == 18:
                    content, content_end = begin, inner
            if not is_first:
                to = _put(text, to, 44)
            is_first = False
            to = _escaped(body, name, name_end, text, to)
            to = _put(text, to, 58)
            to = _escaped(body, content, content_end, text, to)
        to = _put(text, to, 125)
    return to


@compiled
def _place(hashes: Hashes, row: int, all_hashes: Hashes, slots: Small) -> int:
    """The slot that holds this hash, or the free one that it would take."""
    mask = len(slots) - 1
    slot = np.int64(hashes[row, 0] & np.uint64(mask))
    while slots[slot] >= 0 and (
        all_hashes[slots[slot], 0] != hashes[row, 0] or all_hashes[slots[slot], 1] != hashes[row, 1]
    ):
        slot = (slot + 1) & mask
    return slot


@cached
def find(hashes: Hashes, all_hashes: Hashes, slots: Small, numbers: Small) -> int:
    """The number of each hash, NONE where it is not known; how many are not.

    ``slots``: an open table of a power of two, at most half of it used: numbers, or NONE.
    """
    missing = 0
    for row in range(len(hashes)):
        numbers[row] = slots[_place(hashes, row, all_hashes, slots)]
        missing += numbers[row] < 0
    return missing


@cached
def insert(all_hashes: Hashes, slots: Small, first: int, after: int) -> None:
    """Put these of the known hashes into the table."""
    for number in range(first, after):
        slots[_place(all_hashes, number, all_hashes, slots)] = number


@cached
def scatter(
    series: Small,
    at_ms: Numbers,
    value: Floats,
    row_of: Small,
    instance_of: Small,
    starts: Numbers,
    times: Numbers,
    table: Floats,
    there: Any,
    twice: Any,
) -> int:
    """Samples into (row, scrape of the instance); how many are of no scrape.

    ``row_of``, ``instance_of``: of each series; ``starts``: where each instance's scrapes begin in
    ``times``; ``twice``: (row,) set where two samples of one time differ, which both are lost.
    """
    bits, lost = value.view(np.uint64), 0
    for i in range(len(series)):
        one = series[i]
        first, after = starts[instance_of[one]], starts[instance_of[one] + 1]
        place = first
        while place < after and times[place] != at_ms[i]:
            place += 1
        if place == after:
            lost += 1
            continue
        row, column = row_of[one], place - first
        if bits[i] == np.uint64(STALE):
            continue
        if (
            there[row, column]
            and table[row, column] != value[i]
            and not (np.isnan(value[i]) and np.isnan(table[row, column]))
        ):
            twice[row], table[row, column] = True, np.nan
        else:
            table[row, column] = value[i]
        there[row, column] = True
    return lost
