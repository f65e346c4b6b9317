"""WriteRequests are read as they were written, and nothing that is none crashes."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.collect.remote_write import request
from driftwatch.collect.remote_write.request import read_request
from driftwatch.errors import BadPage, TooExpensive
from driftwatch.testing.write_requests import (
    STALE,
    compressed,
    field,
    time_series,
    varint,
    write_request,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SAMPLES = st.lists(st.tuples(st.integers(-(2**62), 2**62), st.floats()), max_size=3)
SERIES = st.lists(st.tuples(st.dictionaries(TEXT, TEXT, max_size=4), SAMPLES), max_size=6)


def _labels(read: request.WriteRequest) -> list[Any]:
    pieces = read.heads(np.arange(len(read.labels)))
    return [orjson.loads(head) for _, heads in pieces for head in heads]


@settings(max_examples=200, deadline=None)
@given(SERIES)
def test_what_was_written_is_read(series: list[Any]) -> None:
    read = read_request(write_request(series))
    assert _labels(read) == [labels for labels, _ in series]
    assert read.counts.tolist() == [len(samples) for _, samples in series]
    assert read.at_ms.tolist() == [at for _, samples in series for at, _ in samples]
    values = [value for _, samples in series for _, value in samples]
    assert read.value.tobytes() == struct.pack(f"<{len(values)}d", *values)  # NaN bits too


@settings(max_examples=50, deadline=None)
@given(SERIES)
def test_series_have_one_hash_where_their_labels_are_one(series: list[Any]) -> None:
    read = read_request(write_request(series))
    texts = [repr(sorted(labels.items())) for labels, _ in series]
    hashes = [row.tobytes() for row in read.hashes]
    for one, text in zip(hashes, texts, strict=True):
        assert [h == one for h in hashes] == [t == text for t in texts]


def test_fields_that_are_not_known_are_passed_over() -> None:
    labels = field(1, field(1, b"a") + field(2, b"b"))
    extra = varint(9 << 3) + varint(5) + varint(10 << 3 | 5) + b"1234" + field(3, b"an exemplar")
    sample = field(2, b"\x09" + struct.pack("<d", 2.5) + b"\x10" + varint(7) + b"\x18\x01")
    body = (
        field(3, b"metadata") + field(1, extra + labels + extra + sample) + varint(8 << 3) + b"\0"
    )
    read = read_request(compressed(body))
    assert (read.at_ms.tolist(), read.value.tolist(), read.native) == ([7], [2.5], 0)
    assert _labels(read) == [{"a": "b"}]


def test_a_sample_of_zeros_and_a_native_histogram() -> None:
    labels = field(1, field(1, b"a") + field(2, b"b"))
    read = read_request(compressed(field(1, labels + field(2, b"") + field(4, b"\x08\x01"))))
    assert (read.at_ms.tolist(), read.value.tolist(), read.native) == ([0], [0.0], 1)


def test_a_body_that_is_cut_or_changed_is_refused_or_read() -> None:
    body = b"".join(time_series(({"a": "b" * i, "c": "d"}, [(i, STALE)])) for i in range(20))
    refused = 0
    for size in range(len(body)):
        try:
            read_request(compressed(body[:size]))
        except BadPage as error:
            refused += 1
            assert "no WriteRequest" in error.message
    assert refused > len(body) // 2
    dice = random.Random(5)
    for _ in range(3000):
        changed = bytearray(body)
        for _ in range(dice.randint(1, 8)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        try:
            _labels(read_request(compressed(bytes(changed))))
        except (BadPage, orjson.JSONDecodeError):
            refused += 1
    assert refused > len(body)


@pytest.mark.parametrize("body", [b"", b"\xff" * 6, b"not snappy at all", compressed(b"abc")[:-1]])
def test_what_is_no_snappy_block_is_named(body: bytes) -> None:
    with pytest.raises(BadPage, match="no snappy block"):
        read_request(body)


def test_a_block_that_says_it_is_large_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooExpensive, match="lower max_samples_per_send"):
        read_request(varint(2**31) + b"\0")
    monkeypatch.setattr(request, "MOST_BYTES", 10)
    with pytest.raises(TooExpensive, match="more than 10"):
        read_request(compressed(b"\x1a\x09" + b"metadata!"))
