"""Reading the numbers of an answer without parsing its labels: the same as a JSON parser."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.collect.prometheus import answer as prometheus_points
from driftwatch.collect.prometheus.answer import Heads, LastSeries, Points, Scan, points
from driftwatch.errors import BadPage, TooExpensive


def written(result: list[Any], **beside: Any) -> bytes:
    """An answer, to the byte as Prometheus writes it."""
    data = {"resultType": "matrix", "result": result}
    answer = {"status": "success", "data": data, **beside}
    return json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode()


def scanned(
    body: bytes, piece_bytes: int = 1, last: LastSeries | None = None, cuts: int = 7
) -> Any:
    """What is read of a body that comes in small pieces."""
    scan = Scan(last, piece_bytes=piece_bytes)
    for at in range(0, len(body), cuts):
        scan.feed(body[at : at + cuts])
    return scan.finish()


def quickly(body: bytes) -> Points | None:
    """What is read without a JSON parser but for the last series, None where that cannot be."""
    inside = body[body.index(b'{"metric":') + len(b'{"metric":') : body.rindex(b"]}]")]
    read = prometheus_points._scanned(inside)
    if read is None:
        return None
    keys = np.arange(len(read.heads))
    heads = Heads()
    heads.add(keys, read.heads)
    return Points(keys, heads, read.counts, read.at, read.value)


def labels(points: Points) -> list[Any]:
    heads = points.heads.named()
    return [orjson.loads(heads[key]) for key in points.keys.tolist()]


def same(one: Points, other: Points) -> bool:
    return (
        labels(one) == labels(other)
        and one.counts.tolist() == other.counts.tolist()
        and one.at.tolist() == other.at.tolist()
        and np.array_equal(one.value, other.value, equal_nan=True)
    )


def sample(at: float, text: str) -> list[Any]:
    return [at, text]


# names and values with everything that separates series in the bytes
TEXTS = st.text(st.sampled_from('ab"\\[]{},:é\n')) | st.sampled_from(
    [',"values":[', ']},{"metric":', '"result":[{"metric":', "]]}]", '[1,"2"]']
)
NUMBERS = st.floats(allow_infinity=False).map(repr) | st.sampled_from(
    ["NaN", "+Inf", "-Inf", "1e+06", "0", "12"]
)
MOMENTS = st.integers(0, 4_000_000_000_000).map(lambda ms: ms / 1000)
SAMPLES = st.lists(st.builds(sample, MOMENTS, NUMBERS), min_size=1, max_size=4)
RESULTS = st.lists(
    st.builds(
        lambda metric, values: {"metric": metric, "values": values},
        st.dictionaries(TEXTS, TEXTS, max_size=4),
        SAMPLES,
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(RESULTS, st.sampled_from([1, 40, 10_000]), st.integers(1, 60))
def test_the_bytes_are_read_as_the_parser_reads_them(
    result: list[Any], piece_bytes: int, cuts: int
) -> None:
    body = written(result, warnings=["]]}] is odd"])
    truth = points(result)
    parsed = scanned(body, piece_bytes, cuts=cuts)
    assert same(parsed["data"].pop("result"), truth)
    assert parsed["warnings"] == ["]]}] is odd"]
    assert parsed["data"] == {"resultType": "matrix"}


@settings(max_examples=40, deadline=None)
@given(RESULTS, st.data())
def test_an_answer_that_was_damaged_is_read_as_the_parser_reads_it_or_not_at_all(
    result: list[Any], data: st.DataObject
) -> None:
    body = written(result)
    at = data.draw(st.integers(0, len(body) - 1))
    put = data.draw(st.sampled_from([b"", b'"', b"[", b"]", b",", b"x", b"-", b"5", b"{", b"\\"]))
    damaged = body[:at] + put + body[at + 1 :]
    try:
        answer = orjson.loads(damaged)
        truth = points(answer["data"]["result"])
    except (orjson.JSONDecodeError, BadPage, KeyError, TypeError):
        truth = None
    try:
        read = scanned(damaged)["data"]["result"]
    except (BadPage, KeyError, TypeError):
        return
    if not isinstance(read, Points):
        return  # not a matrix: the session refuses it
    if truth is not None:
        assert same(read, truth)
    else:  # a number that JSON does not write like that, 00 for example
        assert body[at] in b"0123456789.eE+-NaInf"


ONE = {"metric": {"__name__": "up", "instance": "a:1"}, "values": [[1.5, "2"]]}


@pytest.mark.parametrize(
    "values",
    [
        [],
        [[1, "2", 3]],
        [[1, ""]],
        [[1, "1e"]],
        [[[1, "2"]]],
        [None],
        None,
    ],
)
def test_what_is_not_written_like_that_is_left_to_the_parser(values: Any) -> None:
    body = written([ONE, {"metric": {}, "values": values}, ONE])
    try:
        truth: Points | str = points(json.loads(body)["data"]["result"])
    except BadPage as error:
        truth = error.message
    try:
        read: Points | str = scanned(body)["data"]["result"]
    except BadPage as error:
        read = error.message
    assert read == truth if isinstance(truth, str) else same(read, truth)  # type: ignore[arg-type]


def test_numbers_are_rounded_as_python_rounds_them() -> None:
    texts = ["0.1", "2.2250738585072011e-308", "12345678901234567890", "9007199254740993", "-0"]
    found = quickly(written([{"metric": {}, "values": [[1, text] for text in texts]}]))
    assert found is not None
    assert [v.hex() for v in found.value.tolist()] == [float(text).hex() for text in texts]
    found = quickly(written([{"metric": {}, "values": [[1, "NaN"], [1, "+Inf"], [1, "-Inf"]]}]))
    assert found is not None
    assert math.isnan(found.value[0])
    assert found.value[1:].tolist() == [math.inf, -math.inf]


def test_a_body_that_is_spread_out_is_parsed() -> None:
    body = json.dumps(json.loads(written([ONE, ONE])), indent=2).encode()
    assert scanned(body)["data"]["result"].value.tolist() == [2.0, 2.0]


def test_a_body_without_a_cut_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_points, "PARSED_BYTES", 1000)
    with pytest.raises(TooExpensive, match="not written as Prometheus does"):
        scanned(b" " * 3000)


def test_series_beside_the_result_are_no_answer() -> None:
    around = b'{"status":"success","x":{"result":[{"metric":{},"values":[[1,"1"]]},{"metric":{},'
    around += b'"values":[[1,"1"]]}]},"data":{"resultType":"matrix","result":[]}}'
    with pytest.raises(BadPage, match=r"not its data\.result"):
        scanned(around)


def test_labels_that_are_no_json_are_a_bad_page() -> None:
    body = written([ONE, ONE, ONE]).replace(b'"a:1"', b'"a:1', 1)
    with pytest.raises(BadPage, match=r"data\.result is broken"):
        scanned(body)


# a source that knows the series of the answer before
