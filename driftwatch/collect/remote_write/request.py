"""One WriteRequest of Prometheus remote write 1.0: snappy and protobuf → arrays."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from driftwatch.collect.remote_write import kernel_wire as kernel
from driftwatch.collect.remote_write.kernel_wire import Bytes, Floats, Hashes, Numbers
from driftwatch.errors import BadPage, TooExpensive, UsageError

MOST_BYTES = 64 * 2**20  # of a request, decompressed
_WRITTEN_BYTES = 2**20  # of labels that are written as JSON at once
_KEY = np.frombuffer(secrets.token_bytes(16), np.uint64)


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What one request holds."""

    body: Bytes  # protobuf
    labels: Numbers  # (series, 2), where the labels of each begin and end in the body
    hashes: Hashes  # (series, 2), of the labels
    counts: Numbers  # samples of each series
    at_ms: Numbers  # of each sample, series after series
    value: Floats  # of each sample
    native: int  # native histograms, of which nothing is read

    def heads(self, series: Numbers) -> Iterator[tuple[Numbers, list[bytes]]]:
        """Labels as JSON of these series, piece by piece: indexes and texts.

        Raises BadPage: labels that are no protobuf.
        """
        if not len(series):
            return
        sizes = np.diff(self.labels[series], axis=1).reshape(-1)
        pieces = np.cumsum(sizes) // _WRITTEN_BYTES
        for piece in np.split(series, np.nonzero(np.diff(pieces))[0] + 1):
            labels = np.ascontiguousarray(self.labels[piece])
            text = np.empty(6 * int(np.diff(labels, axis=1).sum()) + 8 * len(labels), np.uint8)
            size = kernel.write_json(self.body, labels, text)
            if size < 0:
                raise BadPage(f"labels that are no protobuf: {kernel.WRONG[-size]}")
            yield piece, text[:size].tobytes().split(b"\n")


def read_request(compressed: bytes) -> WriteRequest:
    """The request of a body.

    Raises BadPage: no snappy block, or no protobuf in it; TooExpensive: larger than
    :data:`MOST_BYTES`; UsageError: the extra is not installed.
    """
    body = _decompressed(compressed)
    most = len(body) // 2 + 1  # no message takes less than two bytes; what is not used is no memory
    labels, hashes = np.empty((most, 2), np.int64), np.empty((most, 2), np.uint64)
    counts, at_ms, value = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most)
    sizes = np.zeros(3, np.int64)
    wrong = kernel.walk(body, _KEY, labels, hashes, counts, at_ms, value, sizes)
    if wrong:
        raise BadPage(f"no WriteRequest in protobuf: {kernel.WRONG[wrong]}")
    series, samples, native = sizes.tolist()
    return WriteRequest(
        body, labels[:series], hashes[:series], counts[:series],
        at_ms[:samples], value[:samples], native,
    )  # fmt: skip


def _decompressed(compressed: bytes) -> Bytes:
    try:
        from cramjam import DecompressionError, snappy
    except ImportError:
        raise UsageError(
            "remote write needs the package cramjam",
            help_text="pip install 'vllm-driftwatch[remote-write]'",
        ) from None
    try:
        size = snappy.decompress_raw_len(compressed)
        if size > MOST_BYTES:
            raise TooExpensive(
                f"{size} bytes, more than {MOST_BYTES}: lower max_samples_per_send of the sender"
            )
        return np.frombuffer(memoryview(snappy.decompress_raw(compressed)), np.uint8)
    except DecompressionError as error:
        raise BadPage(f"no snappy block: {error}") from None
