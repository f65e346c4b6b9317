"""Bodies of Prometheus remote write 1.0, as a sender writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from cramjam import snappy

STALE = struct.unpack("<d", (0x7FF0000000000002).to_bytes(8, "little"))[0]

Written = tuple[Mapping[str, str], Iterable[tuple[int, float]]]  # labels, (unix ms, value)


def write_request(series: Iterable[Written]) -> bytes:
    """A WriteRequest in a snappy block."""
    return compressed(b"".join(map(time_series, series)))


def compressed(body: bytes) -> bytes:
    """A snappy block."""
    return bytes(snappy.compress_raw(body))


def time_series(written: Written) -> bytes:
    """One series as a field of a WriteRequest."""
    labels, samples = written
    message = b"".join(
        field(1, field(1, name.encode()) + field(2, text.encode()))
        for name, text in sorted(labels.items())
    )
    for at_ms, value in samples:
        message += field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + varint(at_ms))
    return field(1, message)


def field(number: int, content: bytes) -> bytes:
    """A field of bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    """A number as protobuf writes it; a negative one as 64 bits."""
    number &= 2**64 - 1
    text = bytearray()
    while number > 0x7F:
        text.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*text, number))
