"""Samples of series, as answers and pages bring them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from driftwatch.collect.cells import Slot
from driftwatch.collect.identity import Identity, Names
from driftwatch.collect.schema import (
    Collected,
)
from driftwatch.model import TargetKey

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
NONE = -1


class Unit(NamedTuple):
    """What series of one server share."""

    server: Identity
    engine: str | None  # None: the series does not say
    model: str | None


class Attempt(NamedTuple):
    """A try to scrape."""

    server: Identity
    time: int  # unix microseconds
    reason: str | None  # why it brought nothing; None: it was answered


@dataclass(slots=True)
class Known:
    """What a source knows of its servers from one answer to the next."""

    names: Names = field(default_factory=Names)
    engines: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by name
    models: dict[TargetKey, str] = field(default_factory=dict)


@dataclass(slots=True)
class Block:
    """Samples that came together."""

    series: Ints32  # of each sample
    time: Ints  # unix microseconds
    value: Floats
    unit: Ints32  # of each series
    slots: Sequence[Ints32]  # of each series, -1 where it has no (further) one
    text: Callable[[int], str]  # a series as problems name it


class Part(NamedTuple):
    """Samples of engines, side by side."""

    block: Block
    series: Ints32
    code: Ints  # engine and time
    slot: Ints32
    value: Floats


@dataclass(slots=True)
class Samples:
    """Samples of any number of answers or pages, made into rows at the end."""

    _slots: dict[Slot, int] = field(default_factory=dict)  # may be shared
    _units: dict[Unit, int] = field(default_factory=dict)
    _blocks: list[Block] = field(default_factory=list)
    _configs: list[tuple[int, int, str]] = field(default_factory=list)  # unit, time, labels
    _doubts: list[tuple[Identity, int, str]] = field(default_factory=list)  # server, time, reason

    @property
    def any(self) -> bool:
        """There is a sample."""
        return bool(self._blocks or self._configs)

    def unit(self, server: Identity, engine: str | None, model: str | None) -> int:
        """The number of a unit."""
        return self._units.setdefault(Unit(server, engine or None, model), len(self._units))

    def slot(self, slot: Slot) -> int:
        """The number of a slot."""
        return self._slots.setdefault(slot, len(self._slots))

    def add(
        self,
        series: Ints32,
        time: Ints,
        value: Floats,
        *,
        unit: Ints32,
        slots: Sequence[Ints32],
        text: Callable[[int], str],
    ) -> None:
        """Samples: the number of the series, the time and the value of each.

        ``unit``, ``slots``: of each series; ``text``: a series as problems name it.
        """
        self._blocks.append(Block(series, time, value, unit, slots, text))

    def add_config(self, unit: int, times: Iterable[int], text: str) -> None:
        """The labels of ``cache_config_info``, sorted JSON, at these times."""
        self._configs += [(unit, int(time), text) for time in times]

    def doubt(self, server: Identity, time: int, reason: str) -> None:
        """Something is wrong with a scrape as a whole."""
        self._doubts.append((server, time, reason))

    def used(self) -> tuple[list[Block], list[tuple[int, int, str]], list[Unit], list[Slot]]:
        """Blocks and configurations, by the units and slots that they have samples of."""
        configured = np.array([unit for unit, _, _ in self._configs], np.int64)
        here = [_is_there(len(b.unit), [b.series])[:-1] for b in self._blocks]
        both = list(zip(self._blocks, here, strict=True))
        units = _places(len(self._units), [configured, *(b.unit[has] for b, has in both)])
        slots = _places(len(self._slots), [slot[has] for b, has in both for slot in b.slots])
        blocks = [
            replace(b, unit=units[b.unit], slots=[slots[one] for one in b.slots])
            for b in self._blocks
        ]
        return (
            blocks,
            [(int(units[unit]), time, text) for unit, time, text in self._configs],
            [unit for unit, place in zip(self._units, units, strict=False) if place != NONE],
            [slot for slot, place in zip(self._slots, slots, strict=False) if place != NONE],
        )

    def rows(
        self,
        attempts: Sequence[Attempt] = (),
        known: Known | None = None,
        *,
        unread: Sequence[tuple[Sequence[str], str]] = (),
        silent: str = "",
        any_server: bool = True,
    ) -> Collected:
        """Every scrape once.

        Args:
            attempts: every try to scrape that is known of.
            known: servers and engines that were seen before; what is learnt is added.
            unread: columns that were asked for together, and why they may be missing.
            silent: why a scrape that was answered has no row.
            any_server: whether an attempt at a server that was never seen is a row.
        """
        from driftwatch.collect.rows import Table

        table = Table(self, known or Known())
        return table.rows(attempts, unread, silent, any_server)


def _places(count: int, numbers: Sequence[npt.NDArray[Any]]) -> Ints32:
    """Number → its place among those that are there; NONE, which is last, where it is not."""
    is_there = _is_there(count, numbers)
    return np.where(is_there, np.cumsum(is_there) - 1, NONE).astype(np.int32)


def _is_there(count: int, numbers: Sequence[npt.NDArray[Any]]) -> Bools:
    is_there = np.zeros(count + 1, np.bool_)
    for several in numbers:
        is_there[several] = True
    is_there[NONE] = False
    return is_there
