"""The answer to ``selector[range]``: raw samples, as they were scraped, as one long table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from driftwatch.collect.cells import (
    CHOOSING,
    CHOSEN_NAMES,
    OWN_LABELS,
    Labels,
    short_name,
    slots_of,
    wire_names_of,
)
from driftwatch.collect.identity import identity_of
from driftwatch.collect.rows import NONE, Attempt, Samples
from driftwatch.errors import BadPage

_CONFIG = -2  # a series whose labels are its value


@dataclass(frozen=True, slots=True)
class RawSamples:
    """Series and their samples, series after series."""

    labels: Sequence[dict[str, str]]  # of each series, with ``__name__``
    series: npt.NDArray[np.int32]  # of each sample
    time: npt.NDArray[np.int64]  # unix microseconds
    value: npt.NDArray[np.float64]  # NaN where it is no number
    native: Sequence[Labels] = ()  # series of native histograms, of which nothing is read

    def times(self, index: int) -> npt.NDArray[np.int64]:
        """Times of one series."""
        first, after = np.searchsorted(self.series, (index, index + 1))
        return self.time[first:after]


def raw_samples(result: Sequence[Any], first_ms: int) -> RawSamples:
    """``data.result`` of a matrix → its samples from a time on.

    Raises BadPage: a series is not as the API promises.
    """
    try:
        labels = [one["metric"] for one in result]
        if not all(isinstance(one, dict) for one in labels):
            raise TypeError
        lists = [one.get("values") or () for one in result]
        native = [one["metric"] for one in result if one.get("histograms")]
        counts = list(map(len, lists))
        seconds = np.fromiter(map(itemgetter(0), chain.from_iterable(lists)), np.float64)
        values = list(map(itemgetter(1), chain.from_iterable(lists)))
        numbers = pl.Series(values, dtype=pl.String).cast(pl.Float64, strict=False)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BadPage(f"a series of the answer is malformed ({type(error).__name__})") from None
    value = numbers.fill_null(np.nan).to_numpy()
    series = np.repeat(np.arange(len(labels), dtype=np.int32), counts)
    ms = np.rint(seconds * 1000).astype(np.int64)
    inside = ms >= first_ms
    if not inside.all():
        series, ms, value = series[inside], ms[inside], value[inside]
    return RawSamples(labels, series, ms * 1000, value, native)


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
        self._slots_of: dict[tuple[str | None, ...], tuple[int, ...]] = {}

    @property
    def is_empty(self) -> bool:
        """Nothing was read."""
        return not self.samples.any

    def learn(self, series: Iterable[Labels]) -> None:
        """The labels of series that every engine has one of."""
        self.telling = frozenset(chain.from_iterable(series)) - OWN_LABELS

    def add(self, answer: RawSamples) -> None:
        """Read an answer. The labels of its series are taken apart."""
        if not len(answer.series):
            return
        every = answer.labels
        wire = self._wire_names
        names = [(wire.get(o.pop("__name__", ""), ""), o.pop("le", None)) for o in every]
        kinds: list[tuple[str | None, ...]] = list(names)
        for index, (name, edge) in enumerate(names):
            if name in CHOSEN_NAMES:
                kinds[index] = (name, edge, *map(every[index].get, CHOOSING))
        for kind, labels in dict(zip(kinds, every, strict=True)).items():
            if kind not in self._slots_of:
                self._slots_of[kind] = self._slots(kind[0] or "", kind[1], labels)
        found = list(map(self._slots_of.__getitem__, kinds))
        if any(of == (_CONFIG,) for of in found):
            for index, of in enumerate(found):
                if of == (_CONFIG,):
                    self._config(every[index], answer.times(index))
                    found[index] = ()
        keys = list(map(orjson.dumps, every))  # the same for all parts of a histogram
        for key, labels in dict(zip(keys, every, strict=True)).items():
            if key not in self._unit_of:
                self._unit_of[key] = self._unit(labels)
        unit = np.fromiter(map(self._unit_of.__getitem__, keys), np.int32, len(keys))
        for index in np.nonzero(unit == NONE)[0].tolist():
            self.nameless.append({"__name__": names[index][0], **every[index]})
        slots = []
        for depth in range(max(map(len, found))):
            each = [of[depth] if depth < len(of) else NONE for of in found]
            slots.append(np.where(unit == NONE, NONE, np.array(each, np.int32)).astype(np.int32))

        def text(index: int) -> str:
            name, edge = names[index]
            le = {} if edge is None else {"le": edge}
            return short_name({"__name__": name, **every[index], **le})

        if slots:
            self.samples.add(
                answer.series, answer.time, answer.value, unit=unit, slots=slots, text=text
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


def attempts_of(up: RawSamples) -> list[Attempt]:
    """Every scrape that the ``up`` series tell of."""
    servers = [identity_of(labels, ("__name__",)) for labels in up.labels]
    return [
        Attempt(servers[series], time, None if value == 1 else "up == 0")
        for series, time, value in zip(
            up.series.tolist(), up.time.tolist(), up.value.tolist(), strict=True
        )
    ]
