"""``data.result`` of a range query: the bytes of its series, and their numbers.

A fleet's answer is nearly all labels, and they are those of the answer before. So the labels stay
bytes, compared as such with what is known, and only the numbers are read; JSON that is written in
any other way than Prometheus does is read by a JSON parser, series by series.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from driftwatch.errors import BadPage

_FIRST = b'"result":[{"metric":'
_LAST = b"]]}]"  # of the last point, of its values, of its series, of the result
_NEXT = b']},{"metric":'
_VALUES = b',"values":['
_NUMBER = b"0123456789.eE+-NaInf"
_ROW = {"at": pl.Float64, "value": pl.Float64}


@dataclass(frozen=True, slots=True)
class Points:
    """The samples of an answer, series after series, in order of time per series.

    Attributes:
        heads: labels of each series as JSON; the same bytes are the same series.
        counts: how many samples each series has.
        at: unix ms of each sample.
        value: of each sample.
    """

    heads: Sequence[bytes]
    counts: npt.NDArray[np.int64]
    at: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]


class Matrix(Sequence[Any]):
    """The list of series in an answer, parsed when somebody looks into it.

    Args:
        raw: the list as the API wrote it.

    Raises:
        BadPage: at the first look, it is not JSON.
    """

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._parsed: Sequence[Any] | None = None

    def _list(self) -> Sequence[Any]:
        if self._parsed is None:
            try:
                self._parsed = orjson.loads(self.raw)
            except orjson.JSONDecodeError:
                raise BadPage("no JSON from Prometheus: data.result is broken") from None
        return self._parsed

    def __len__(self) -> int:
        return len(self._list())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._list()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._list())


def apart(body: bytes) -> tuple[bytes, Matrix] | None:
    """An answer with an empty ``result`` in its place, and the result.

    None where the first and last series are not where Prometheus writes them; the rest of the
    body is not looked at, so the caller must find the empty list at its place in what is left.
    """
    start, end = body.find(_FIRST), body.rfind(_LAST)
    if start < 0 or end < start:
        return None
    start, end = start + len(b'"result":'), end + len(_LAST)
    return body[:start] + b"[]" + body[end:], Matrix(body[start:end])


def points(result: Sequence[Any], known: Sequence[bytes] = ()) -> Points:
    """The samples of one answer.

    Args:
        result: a list of ``{"metric": …, "values": …}``, or a :class:`Matrix`.
        known: heads of the answer before to the same query; where they are the same, they are
            handed back themselves.

    Raises:
        BadPage: a series is not as the API promises.
    """
    found = _scanned(result.raw, known) if isinstance(result, Matrix) else None
    return _parsed(result) if found is None else found


def _scanned(raw: bytes, known: Sequence[bytes]) -> Points | None:
    """The samples of a result that is written as Prometheus does, None for any other.

    None of the separators can be inside a JSON string, where a quote has a backslash before it.
    """
    inside = raw[len(b'[{"metric":') : -len(b"]}]")]
    parts = inside.replace(_NEXT, _VALUES).split(_VALUES)
    heads: Sequence[bytes] = parts[0::2]
    samples = parts[1::2]
    if len(heads) != len(samples) or inside.count(_VALUES) != len(samples):
        return None
    text = b";".join(samples)
    counts = _counts(text, samples)
    if counts is None:
        return None
    if heads == known:
        heads = known
    elif not all(map(_is_labels, heads)):
        return None
    rows = text.replace(b";", b"\n").replace(b"],[", b"\n").translate(None, b'[]"')
    try:
        read = pl.read_csv(rows, has_header=False, quote_char=None, schema=_ROW)
    except pl.exceptions.PolarsError:
        return None
    times, value = (read[name].to_numpy() for name in _ROW)
    if not np.isfinite(times).all() or read["value"].null_count():
        return None
    return Points(heads, counts, _milliseconds(times), value)


def _counts(text: bytes, samples: Sequence[bytes]) -> npt.NDArray[np.int64] | None:
    """How many samples each series has; None where they are not written as ``[0,"1"],[0,"1"]``.

    With the numbers taken out, what is left of the text is known to the byte.
    """

    def bare(count: int) -> bytes:
        return (b'[,""],' * count)[:-1]

    left = text.translate(None, _NUMBER)
    each = text.count(b"[") // len(samples)
    if left == (bare(each) + b";") * (len(samples) - 1) + bare(each):
        counts = [each] * len(samples)
    else:  # series that began or ended in between
        counts = [one.count(b"[") for one in samples]
        if left != b";".join(map(bare, counts)):
            return None
    return np.array(counts, dtype=np.int64) if all(counts) else None


def _is_labels(head: bytes) -> bool:
    try:
        return isinstance(orjson.loads(head), dict)
    except orjson.JSONDecodeError:
        return False


def _parsed(result: Sequence[Any]) -> Points:
    heads: list[bytes] = []
    counts: list[int] = []
    times: list[float] = []
    values: list[float] = []
    try:
        for one in result:
            metric, samples = one["metric"], one.get("values") or ()
            if not isinstance(metric, dict):
                raise TypeError
            heads.append(orjson.dumps(metric, option=orjson.OPT_SORT_KEYS))
            counts.append(len(samples))
            times += [sample[0] for sample in samples]
            values += [float(sample[1]) for sample in samples]
        at = _milliseconds(np.array(times, dtype=np.float64))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BadPage(f"a series of the answer is malformed ({type(error).__name__})") from None
    return Points(heads, np.array(counts, np.int64), at, np.array(values, np.float64))


def _milliseconds(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    return np.rint(seconds * 1000).astype(np.int64)
