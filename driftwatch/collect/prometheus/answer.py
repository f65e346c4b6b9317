"""The answer to ``selector[range]``: raw samples, as they were scraped, as one long table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from driftwatch.collect.cells import (
    CHOSEN_NAMES,
    OWN_LABELS,
    Labels,
    short_name,
    slots_of,
    wire_names_of,
)
from driftwatch.collect.identity import identity_of
from driftwatch.collect.samples import NONE, Attempt, Samples
from driftwatch.errors import BadPage

_CONFIG = -2  # a series whose labels are its value


_FIRST = b'"result":[{"metric":'
_NEXT = b'{"metric":'
_VALUES = b',"values":['
_END = b"]]}"
_PAIR = {"at": pl.Float64, "value": pl.Float64}


@dataclass(frozen=True, slots=True)
class Cut:
    """Series of an answer as they are written, not parsed: an answer is nearly all labels, and
    those of one server's series are nearly the same."""

    heads: list[bytes]  # labels of each series, a JSON object
    values: list[bytes]  # samples of each: ``[0,"1"],[15,"2"]``


def cut(body: bytes) -> tuple[bytes, Cut] | None:
    """What stands around the series of a matrix, and these; None where it is written in any other
    way than Prometheus does.

    No separator can be inside a JSON string, where a quote has a backslash before it.
    """
    start = body.find(_FIRST)
    if start < 0:
        return None
    pieces = body[start + len(_FIRST) :].split(_NEXT)
    heads, lists = [], []
    for piece in pieces:
        head, found, tail = piece.partition(_VALUES)
        end = tail.find(_END)
        if not found or end < 0:
            return None
        heads.append(head)
        lists.append(tail[: end + 1])
    around = body[:start] + b'"result":[' + tail[end + len(_END) :]
    return around, Cut(heads, lists)


@dataclass(frozen=True, slots=True)
class RawSamples:
    """Series and their samples, series after series."""

    heads: Sequence[bytes]  # labels of each series, with ``__name__``, as JSON
    series: npt.NDArray[np.int32]  # of each sample
    time: npt.NDArray[np.int64]  # unix microseconds
    value: npt.NDArray[np.float64]  # NaN where it is no number
    native: Sequence[Labels] = ()  # series of native histograms, of which nothing is read

    @property
    def labels(self) -> list[dict[str, str]]:
        """Labels of each series; for what is small."""
        return [orjson.loads(head) for head in self.heads]

    def times(self, index: int) -> npt.NDArray[np.int64]:
        """Times of one series."""
        first, after = np.searchsorted(self.series, (index, index + 1))
        return self.time[first:after]


def raw_samples(result: Cut | Sequence[Any], first_ms: int) -> RawSamples:
    """``data.result`` of a matrix → its samples from a time on.

    Raises BadPage: a series is not as the API promises.
    """
    if isinstance(result, Cut):
        text = b",".join(result.values).replace(b"],[", b"\n").translate(None, b'[]"')
        try:
            table = pl.read_csv(text, has_header=False, quote_char=None, schema=_PAIR)
            counts = [one.count(b"[") for one in result.values]
            if sum(counts) == len(table) and not any(table.null_count().row(0)):
                seconds, value = (table[name].to_numpy() for name in _PAIR)
                return _from(result.heads, counts, seconds, value, first_ms)
        except pl.exceptions.PolarsError:
            pass
        result = [
            {"metric": orjson.loads(head), "values": orjson.loads(b"[" + values + b"]")}
            for head, values in zip(result.heads, result.values, strict=True)
        ]
    try:
        labels = [one["metric"] for one in result]
        if not all(isinstance(one, dict) for one in labels):
            raise TypeError
        lists = [one.get("values") or () for one in result]
        native = [one["metric"] for one in result if one.get("histograms")]
        seconds = np.array([at for one in lists for at, _ in one], np.float64)
        texts = pl.Series([text for one in lists for _, text in one], dtype=pl.String)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BadPage(f"a series of the answer is malformed ({type(error).__name__})") from None
    value = texts.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    heads = [orjson.dumps(one, option=orjson.OPT_SORT_KEYS) for one in labels]
    return _from(heads, list(map(len, lists)), seconds, value, first_ms, native)


def _from(
    heads: Sequence[bytes],
    counts: Sequence[int],
    seconds: npt.NDArray[np.float64],
    value: npt.NDArray[np.float64],
    first_ms: int,
    native: Sequence[Labels] = (),
) -> RawSamples:
    series = np.repeat(np.arange(len(heads), dtype=np.int32), counts)
    ms = np.rint(seconds * 1000).astype(np.int64)
    inside = ms >= first_ms
    if not inside.all():
        series, ms, value = series[inside], ms[inside], value[inside]
    return RawSamples(heads, series, ms * 1000, value, native)


_NAME = b'{"__name__":"'
_EDGE = b'"le":"'


def _apart(head: bytes) -> tuple[bytes, bytes, bytes]:
    """Name, edge and the other labels of a series, as they are written; ``b""`` where it has none.

    >>> _apart(b'{"__name__":"x_bucket","job":"a","le":"0.5","pod":"b"}')
    (b'x_bucket', b'0.5', b'"job":"a","pod":"b"}')
    """
    name = edge = b""
    if head.startswith(_NAME):
        end = head.find(b'"', len(_NAME))
        name, head = head[len(_NAME) : end], head[end + 2 :]
    elif _NAME[1:] in head:  # after labels in capitals
        labels = orjson.loads(head)
        name = labels.pop("__name__").encode()
        head = orjson.dumps(labels)
    at = head.find(_EDGE)
    if at >= 0:
        end = head.find(b'"', at + len(_EDGE))
        edge, head = head[at + len(_EDGE) : end], head[:at] + head[end + 2 :]
    return name, edge, head


class Reader:
    """Puts the series of answers where they belong.

    ``prefixes``: what stands before vLLM's names, beside ``vllm:``.
    """

    def __init__(self, prefixes: Iterable[str] = ()) -> None:
        self._wire_names = wire_names_of(prefixes)
        self.samples = Samples()
        self.telling: frozenset[str] = frozenset()  # labels that tell servers apart
        self.nameless: list[Labels] = []  # series without an instance
        self._unit_of: dict[bytes, int] = {}  # by the labels without the metric's own
        self._slots_of: dict[tuple[bytes, ...], tuple[int, ...]] = {}

    @property
    def is_empty(self) -> bool:
        """Nothing was read."""
        return not self.samples.any

    def learn(self, series: Iterable[Labels]) -> None:
        """The labels of series that every engine has one of."""
        self.telling = frozenset(chain.from_iterable(series)) - OWN_LABELS

    def add(self, answer: RawSamples) -> None:
        """Read an answer."""
        if not len(answer.series):
            return
        heads, wire = answer.heads, self._wire_names
        parts = list(map(_apart, heads))
        found: list[tuple[int, ...]] = []
        for index, (written, edge, rest) in enumerate(parts):
            name = wire.get(written.decode(), "")
            kind = (written, edge, rest) if name in CHOSEN_NAMES else (written, edge)
            of = self._slots_of.get(kind)
            if of is None:
                labels = orjson.loads(heads[index])
                of = self._slots_of[kind] = self._slots(name, labels.get("le"), labels)
            if of == (_CONFIG,):
                self._config(_labels(heads[index]), answer.times(index))
                of = ()
            found.append(of)
        keys = [rest for _, _, rest in parts]  # the same for all parts of a histogram
        for key, head in dict(zip(keys, heads, strict=True)).items():
            if key not in self._unit_of:
                self._unit_of[key] = self._unit(_labels(head))
        unit = np.fromiter(map(self._unit_of.__getitem__, keys), np.int32, len(keys))
        self.nameless += [orjson.loads(heads[i]) for i in np.nonzero(unit == NONE)[0].tolist()]
        slots = []
        for depth in range(max(map(len, found))):
            each = [of[depth] if depth < len(of) else NONE for of in found]
            slots.append(np.where(unit == NONE, NONE, np.array(each, np.int32)).astype(np.int32))
        if slots:
            self.samples.add(
                answer.series,
                answer.time,
                answer.value,
                unit=unit,
                slots=slots,
                text=lambda index: short_name(orjson.loads(heads[index])),
            )

    def _slots(self, name: str, edge: str | None, labels: Labels) -> tuple[int, ...]:
        le = {} if edge is None else {"le": edge}
        found = slots_of(name, {**labels, **le})
        if any(slot.part == "labels" for slot in found):
            return (_CONFIG,)
        return tuple(map(self.samples.slot, found))

    def _unit(self, labels: Labels) -> int:
        if not labels.get("instance"):
            return NONE
        server = identity_of({k: v for k, v in labels.items() if k in self.telling}, ())
        return self.samples.unit(server, labels.get("engine"), labels.get("model_name"))

    def _config(self, labels: Labels, times: npt.NDArray[np.int64]) -> None:
        """The labels that the server itself set, as the page shows them."""
        server = identity_of({k: v for k, v in labels.items() if k in self.telling}, ())
        ours = {k: v for k, v in labels.items() if k not in self.telling and k != "engine"}
        text = orjson.dumps(ours, option=orjson.OPT_SORT_KEYS).decode()
        unit = self.samples.unit(server, labels.get("engine"), None)
        self.samples.add_config(unit, times.tolist(), text)


def _labels(head: bytes) -> dict[str, str]:
    """The labels of a series but for the metric's own."""
    labels: dict[str, str] = orjson.loads(head)
    return {k: v for k, v in labels.items() if k not in ("__name__", "le")}


def attempts_of(up: RawSamples) -> list[Attempt]:
    """Every scrape that the ``up`` series tell of."""
    servers = [identity_of(labels, ("__name__",)) for labels in up.labels]
    return [
        Attempt(servers[series], time, None if value == 1 else "up == 0")
        for series, time, value in zip(
            up.series.tolist(), up.time.tolist(), up.value.tolist(), strict=True
        )
    ]
