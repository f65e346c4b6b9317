"""``data.result`` of a range query: the series that it names, and their numbers.

A fleet's answer is nearly all labels, and they are those of the answer before. So it is read in
pieces as it comes, cut between two series; of the labels only a hash is kept where they are known,
and only the numbers are read. JSON that is written in any other way than Prometheus does is read
by a JSON parser, the piece that it stands in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from driftwatch.errors import BadPage, TooExpensive

PIECE_BYTES = 2 * 2**20  # what is read at once
PARSED_BYTES = 32 * 2**20  # of a body that no cut between two series is found in

_FIRST = b'"result":[{"metric":'
_NEXT = b']},{"metric":'
_VALUES = b',"values":['
_NUMBER = b"0123456789.eE+-NaInf"
_ROW = {"at": pl.Float64, "value": pl.Float64}
_AT, _VALUE = itemgetter(0), itemgetter(1)
_START_BYTES = 60

Keys = npt.NDArray[np.int64]


class Heads:
    """Labels of series as JSON, many to a piece: single ones would leave memory in shreds."""

    def __init__(self) -> None:
        self._pieces: list[tuple[Keys, bytes]] = []

    def add(self, keys: Keys, heads: Sequence[bytes]) -> None:
        """Series whose labels were not known."""
        if heads:
            self._pieces.append((keys, b"\n".join(heads)))  # no JSON string has one

    def extend(self, other: Heads) -> None:
        """All that another has."""
        self._pieces += other._pieces

    def pieces(self) -> Iterator[tuple[Keys, list[bytes]]]:
        """Keys and labels, piece by piece."""
        for keys, text in self._pieces:
            yield keys, text.split(b"\n")

    def named(self) -> dict[int, bytes]:
        """Key → labels."""
        return {
            key: head for keys, heads in self.pieces()
            for key, head in zip(keys.tolist(), heads, strict=True)
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Points:
    """The samples of an answer, series after series, in order of time per series."""

    # hash of each series' labels as they were written. Python keys it anew in each process, so
    # nobody can choose labels that meet.
    keys: Keys
    heads: Heads  # labels of the series that were not known
    counts: npt.NDArray[np.int64]  # how many samples each series has
    at: npt.NDArray[np.int64]  # unix ms of each sample
    value: npt.NDArray[np.float64]  # of each sample
    # labels of series with native histograms, of which nothing is read
    native: tuple[bytes, ...] = ()


@dataclass(slots=True)
class LastSeries:
    """The series of the answer before, in its order."""

    keys: Keys = field(default_factory=lambda: np.empty(0, np.int64))
    _order: Keys | None = None

    def find(self, keys: Keys) -> Keys:
        """Index of each key, -1 where it is not known."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        if self._order is None:
            self._order = np.argsort(self.keys, kind="stable")
        ordered = self.keys[self._order]
        place = np.searchsorted(ordered, keys).clip(max=len(ordered) - 1)
        return np.where(ordered[place] == keys, self._order[place], -1)

    def missing(self, keys: Keys, start: int) -> Sequence[int]:
        """Which of the keys, the first of them the answer's number ``start``, are not known."""
        if np.array_equal(self.keys[start : start + len(keys)], keys):
            return ()
        indexes: list[int] = np.nonzero(self.find(keys) < 0)[0].tolist()
        return indexes


_NO_HEADS = Heads()


class Scan:
    """Reads the body of an answer as it comes.

    ``last_series``: series whose labels need not be kept.
    """

    def __init__(
        self, last_series: LastSeries | None = None, *, piece_bytes: int = PIECE_BYTES
    ) -> None:
        self.start = b""
        self._last_series = last_series or LastSeries()
        self._piece_bytes = piece_bytes
        self._before: bytes | None = None  # what comes before the first series
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._wanted_bytes = piece_bytes
        self._heads = Heads()
        self._blocks: list[Points] = []
        self._native: list[bytes] = []
        self._series = 0

    def feed(self, data: bytes) -> None:
        """The next bytes.

        Raises BadPage: a series is not as the API promises; TooExpensive: too much to parse at
        once, and nowhere to cut it.
        """
        if len(self.start) < _START_BYTES:
            self.start = (self.start + data[:_START_BYTES])[:_START_BYTES]
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= self._wanted_bytes:
            self._cut()
            # where there was no cut, look again when there is twice as much
            self._wanted_bytes = max(self._piece_bytes, 2 * self._pending_bytes)
            if self._pending_bytes > PARSED_BYTES:
                raise TooExpensive(
                    f"more than {PARSED_BYTES} bytes that are not written as Prometheus does"
                )

    def finish(self) -> object:
        """The parsed answer, its ``result`` as :class:`Points`; None: it is not JSON.

        Raises BadPage: a series is not as the API promises.
        """
        self._cut()
        text = b"".join(self._pending)
        self._pending = []
        around = text if self._before is None else self._before + b'[{"metric":' + text
        try:
            parsed: object = orjson.loads(around)
        except orjson.JSONDecodeError:
            return None
        data = parsed.get("data") if isinstance(parsed, dict) else None
        result = data.get("result") if isinstance(data, dict) else None
        if not isinstance(result, list) or not isinstance(data, dict):
            if self._blocks:
                raise BadPage("JSON with series, but they are not its data.result")
            return parsed
        if self._blocks and not result:
            raise BadPage("JSON with series, but they are not its data.result")
        if data.get("resultType") == "matrix":
            self._take(_parsed(result, _head(text) if self._before and len(result) == 1 else None))
            data["result"] = self._points()
        return parsed

    def _cut(self) -> None:
        """Read the series that are held whole, and keep the rest."""
        text = b"".join(self._pending)
        if self._before is None:
            at = text.find(_FIRST)
            if at >= 0:
                self._before = text[: at + len(b'"result":')]
                text = text[at + len(_FIRST) :]
        if self._before is not None:
            # no separator can be inside a JSON string, where a quote has a backslash before it
            at = text.rfind(_NEXT)
            if at >= 0:
                piece, text = text[:at], text[at + len(_NEXT) :]
                block = _scanned(piece)
                if block is None or not self._take(block):
                    self._take(_parsed_piece(piece))
        self._pending, self._pending_bytes = [text], len(text)

    def _take(self, block: _Block) -> bool:
        """Keep what was read; False where new labels are none, so that it must be parsed."""
        keys = np.fromiter(map(hash, block.heads), np.int64, len(block.heads))
        missing = self._last_series.missing(keys, self._series)
        heads = [block.heads[index] for index in missing]
        if block.raw and not all(map(_is_labels, heads)):
            return False
        self._native += block.native
        self._heads.add(keys[list(missing)], heads)
        self._series += len(keys)
        self._blocks.append(Points(keys, _NO_HEADS, block.counts, block.at, block.value))
        return True

    def _points(self) -> Points:
        blocks = self._blocks
        if len(blocks) == 1:
            one = blocks[0]
            return Points(one.keys, self._heads, one.counts, one.at, one.value, tuple(self._native))
        return Points(
            np.concatenate([one.keys for one in blocks]),
            self._heads,
            np.concatenate([one.counts for one in blocks]),
            np.concatenate([one.at for one in blocks]),
            np.concatenate([one.value for one in blocks]),
            tuple(self._native),
        )


@dataclass(frozen=True, slots=True)
class _Block:
    """Series with their samples; ``raw``: nobody has parsed the heads; ``native``: as Points."""

    heads: Sequence[bytes]
    counts: npt.NDArray[np.int64]
    at: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]
    raw: bool
    native: Sequence[bytes] = ()


def points(result: Sequence[Any], last_series: LastSeries | None = None) -> Points:
    """The samples of an answer that was parsed.

    ``result``: a list of ``{"metric": …, "values": …}``; ``last_series``: series whose labels need
    not be kept.
    Raises BadPage: a series is not as the API promises.
    """
    scan = Scan(last_series)
    scan._take(_parsed(result))
    return scan._points()


def _scanned(piece: bytes) -> _Block | None:
    """The series of a piece that is written as Prometheus does, None for any other.

    It begins with the labels of its first series and ends with the last sample of its last one.
    """
    parts = piece.replace(_NEXT, _VALUES).split(_VALUES)
    heads, samples = parts[0::2], parts[1::2]
    if len(heads) != len(samples) or piece.count(_VALUES) != len(samples):
        return None
    text = b";".join(samples)
    counts = _counts(text, samples)
    if counts is None:
        return None
    rows = text.replace(b";", b"\n").replace(b"],[", b"\n").translate(None, b'[]"')
    try:
        table = pl.read_csv(rows, has_header=False, quote_char=None, schema=_ROW)
    except pl.exceptions.PolarsError:
        return None
    times, value = (table[name].to_numpy() for name in _ROW)
    if not np.isfinite(times).all() or table["value"].null_count():
        return None
    return _Block(heads, counts, _milliseconds(times), value, raw=True)


def _counts(text: bytes, samples: Sequence[bytes]) -> npt.NDArray[np.int64] | None:
    """How many samples each series has; None where they are not written as ``[0,"1"],[0,"1"]``.

    With the numbers taken out, what is left of the text is known to the byte.
    """

    def bare(count: int) -> bytes:
        return (b'[,""],' * count)[:-1]

    brackets = text.translate(None, _NUMBER)
    each = text.count(b"[") // len(samples)
    if brackets == (bare(each) + b";") * (len(samples) - 1) + bare(each):
        counts = [each] * len(samples)
    else:  # series that began or ended in between
        counts = [one.count(b"[") for one in samples]
        if brackets != b";".join(map(bare, counts)):
            return None
    return np.array(counts, dtype=np.int64) if all(counts) else None


def _is_labels(head: bytes) -> bool:
    try:
        return isinstance(orjson.loads(head), dict)
    except orjson.JSONDecodeError:
        return False


def _head(text: bytes) -> bytes | None:
    """The labels of a text's first series as they are written, None where that is not plain."""
    head, values, _ = text.partition(_VALUES)
    return head if values and _is_labels(head) else None


def _parsed_piece(piece: bytes) -> _Block:
    try:
        result = orjson.loads(b'[{"metric":' + piece + b"]}]")
    except orjson.JSONDecodeError:
        raise BadPage("no JSON from Prometheus: data.result is broken") from None
    return _parsed(result)


def _parsed(result: Sequence[Any], head: bytes | None = None) -> _Block:
    """Series that a JSON parser has read; ``head``: how the first one's labels are written."""
    heads: list[bytes] = []
    counts: list[int] = []
    last: list[float] = []
    milliseconds = np.empty(0, np.int64)
    times: list[npt.NDArray[np.int64]] = []
    values: list[str] = []
    native: list[bytes] = []
    try:
        for one in result:
            metric, samples = one["metric"], one.get("values") or ()
            if not isinstance(metric, dict):
                raise TypeError
            heads.append(head or orjson.dumps(metric, option=orjson.OPT_SORT_KEYS))
            if one.get("histograms"):
                native.append(heads[-1])
            counts.append(len(samples))
            moments = list(map(_AT, samples))
            if moments != last:  # nearly all series have the times of the one before
                last = moments
                milliseconds = _milliseconds(np.array(moments, dtype=np.float64))
            times.append(milliseconds)
            values.extend(map(_VALUE, samples))
        at = np.concatenate(times) if times else milliseconds
        value = _floats(values)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BadPage(f"a series of the answer is malformed ({type(error).__name__})") from None
    return _Block(heads, np.array(counts, np.int64), at, value, raw=False, native=native)


def _floats(texts: list[str]) -> npt.NDArray[np.float64]:
    try:
        return pl.Series(texts, dtype=pl.String).cast(pl.Float64).to_numpy()
    except (TypeError, pl.exceptions.PolarsError):  # no text, or one that Python alone reads
        return np.array([float(text) for text in texts], np.float64)


def _milliseconds(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    return np.rint(seconds * 1000).astype(np.int64)
