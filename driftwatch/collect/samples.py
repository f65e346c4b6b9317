"""Samples of answers and pages as one long frame: unit, slot, time, value.

A *unit* is a server, engine and model; a *slot* is a cell of the scrape table. Each source numbers
both with a :class:`SeriesReader`; :mod:`driftwatch.collect.rows` makes rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson
import polars as pl

from driftwatch.arrays import Integers
from driftwatch.collect.identity import Identity, Names
from driftwatch.collect.registry import (
    CHOOSING,
    Labels,
    Slot,
    short_name,
    slots_of,
    wire_names_of,
)
from driftwatch.model import TargetKey

NONE = -1
SAMPLE_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "unit": pl.Int32,
    "slot": pl.Int32,
    "time": pl.Int64,  # unix microseconds
    "value": pl.Float64,  # NaN where it is no number
}


class Unit(NamedTuple):
    """The server, engine and model that series belong to."""

    server: Identity
    engine: str | None  # None: the series does not say
    model: str | None


def unit_of(server: Identity, labels: Labels) -> Unit:
    """The unit of a series."""
    return Unit(server, labels.get("engine") or None, labels.get("model_name"))


class Attempt(NamedTuple):
    """A try to scrape."""

    server: Identity
    time: int  # unix microseconds
    reason: str | None  # why it failed; None: the server answered


@dataclass(slots=True)
class SourceMemory:
    """What a source keeps between answers: names, engines and models of its servers."""

    names: Names = field(default_factory=Names)
    engines: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by name
    models: dict[TargetKey, str] = field(default_factory=dict)


class SeriesReader:
    """Numbers slots and units; ``server_labels``: those that distinguish servers."""

    def __init__(self, prefixes: Iterable[str] = (), server_labels: Iterable[str] = ()) -> None:
        self.server_labels, self.prefixes = frozenset(server_labels), frozenset(prefixes)
        self.wire_names = wire_names_of(prefixes)
        self.slots: dict[Slot, int] = {}
        self.units: dict[Unit, int] = {}
        self._cells: dict[tuple[str | None, ...], tuple[int, ...] | None] = {}

    def unit(self, one: Unit) -> int:
        """The number of a unit."""
        return self.units.setdefault(one, len(self.units))

    def cells(self, labels: Labels) -> tuple[int, ...] | None:
        """Numbers of the slots that a series fills; None: its labels are the value."""
        name = self.wire_names.get(labels.get("__name__", ""), "")
        key = (name, labels.get("le"), *map(labels.get, CHOOSING))
        if key not in self._cells:
            found = slots_of(name, labels)
            is_info = any(slot.part == "labels" for slot in found)
            numbers = (self.slots.setdefault(slot, len(self.slots)) for slot in found)
            self._cells[key] = None if is_info else tuple(numbers)
        return self._cells[key]

    def configuration(self, labels: Labels) -> str:
        """The labels of ``cache_config_info`` that the server itself set, as sorted JSON."""
        outer = self.server_labels | {"__name__", "le", "engine"}
        ours = {k: v for k, v in labels.items() if k not in outer}
        return orjson.dumps(ours, option=orjson.OPT_SORT_KEYS).decode()


class Samples:
    """Samples of any number of answers or pages, numbered by one reader."""

    def __init__(self, reader: SeriesReader) -> None:
        self.reader = reader
        # (unit, unix microseconds, labels of cache_config_info as sorted JSON)
        self.configurations: list[tuple[int, int, str]] = []
        self.doubts: list[tuple[Identity, int, str]] = []  # server, time, what is wrong with all
        self._frames: list[pl.DataFrame] = []

    @property
    def is_empty(self) -> bool:
        """There is no sample."""
        return not self._frames and not self.configurations

    def add(self, frame: pl.DataFrame) -> None:
        """Samples in :data:`SAMPLE_SCHEMA`."""
        if len(frame):
            self._frames.append(frame)

    def add_lists(self, unit: Any, slot: Any, time: Any, value: Any) -> None:
        """Samples as lists or arrays, side by side."""
        columns = zip(SAMPLE_SCHEMA, (unit, slot, time, value), strict=True)
        self.add(pl.DataFrame(dict(columns), schema=dict(SAMPLE_SCHEMA)))

    def frame(self) -> tuple[pl.DataFrame, list[Unit], list[Slot]]:
        """All samples, with their units and slots, numbered anew."""
        frame = pl.concat([pl.DataFrame(schema=dict(SAMPLE_SCHEMA)), *self._frames])
        units, unit = _in_use(self.reader.units, frame["unit"], self.configurations)
        slots, slot = _in_use(self.reader.slots, frame["slot"])
        self.configurations = [(int(unit[u]), at, text) for u, at, text in self.configurations]
        numbers = (
            pl.Series(n, new[frame[n].to_numpy()]) for n, new in (("unit", unit), ("slot", slot))
        )
        return frame.with_columns(*numbers), units, slots


def _in_use(
    every: Iterable[Any], numbers: pl.Series, others: Iterable[tuple[int, int, str]] = ()
) -> tuple[list[Any], Integers]:
    """The entries in use, in order; and old number → new number."""
    held = list(every)
    used = np.bincount(numbers.to_numpy(), minlength=len(held)) > 0
    used[[number for number, _, _ in others]] = True
    return [one for one, is_used in zip(held, used, strict=True) if is_used], np.cumsum(used) - 1


def series_text(slot: Slot, unit: Unit) -> str:
    """A sample's series as problems name it: ``vllm:num_requests_running{engine="0"}``."""
    labels = {"engine": unit.engine, "model_name": unit.model, **dict(slot.metric.labels)}
    labels |= dict(zip(slot.metric.sum_over, slot.summand.split("\x00"), strict=False))
    if slot.part == "bucket":
        labels["le"] = "+Inf" if slot.edge == np.inf else str(slot.edge)
    shown = {name: value for name, value in labels.items() if value}
    return short_name({"__name__": slot.wire_name, **shown})
