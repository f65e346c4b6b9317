"""What the detectors remember, over a restart: a checkpoint an hour, and the minutes since.

Folding the stored minutes in again gives the very memory that the last process had, as long as it
is told of everything that changed a memory besides minutes: which targets were forgotten, and
when. A change of the pins in force begins with a checkpoint of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.baselines.pinned import pinned
from driftwatch.detect.pins import Pins
from driftwatch.detect.stage import Memory, detect, memory_from
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import State, nothing_forgotten
from driftwatch.store.frames import from_arrow, to_arrow
from driftwatch.store.history import Checkpoint
from driftwatch.store.store import Store

EVERY = timedelta(hours=1)
# Folded in at once: bounded memory in a large fleet. How minutes are split changes nothing.
_STEP = timedelta(minutes=10)
_FORGOTTEN = "tick.forgotten"


@dataclass(frozen=True, slots=True)
class Keeping:
    """What the store has of the detectors' memory.

    Attributes:
        at: time of the checkpoint; None before the first.
        pins: names of the pins that were in force then, and what they were not in force for.
        forgotten: :data:`driftwatch.pipeline.state.FORGOTTEN_SCHEMA`, since then.
    """

    at: datetime | None = None
    pins: tuple[tuple[str, ...], frozenset[tuple[str, str, str]]] = ((), frozenset())
    forgotten: pl.DataFrame = field(default_factory=nothing_forgotten)

    def memory(self) -> dict[str, bytes]:
        """What the next process must know besides the checkpoint."""
        return {_FORGOTTEN: to_arrow(self.forgotten)}


def kept(before: Keeping, state: State, gone: pl.DataFrame) -> tuple[Keeping, Checkpoint | None]:
    """Whether a checkpoint is due after a tick.

    Args:
        before: what the store has.
        state: after the tick.
        gone: the targets that the tick forgot.

    Returns:
        What the store is to have, and the checkpoint, None where the last one still serves.
    """
    at, pins = state.evaluated_until, before.pins
    if state.pinned.made_of is not None:  # else they are looked at anew with the next minute
        pins = _names(state.pinned.pins)
    if at is not None and (before.at is None or at - before.at >= EVERY or pins != before.pins):
        return Keeping(at, pins), Checkpoint(at, state.detection.frames())
    if gone.is_empty():
        return before, None
    return replace(before, forgotten=pl.concat([before.forgotten, gone])), None


def _names(pins: Pins) -> tuple[tuple[str, ...], frozenset[tuple[str, str, str]]]:
    return tuple(pin.id for pin in pins.pins), pins.not_for


def resumed(store: Store, state: State, plan: Plan) -> tuple[State, Keeping]:
    """The state with what the detectors remembered when the last process ended.

    Args:
        store: of the last process.
        state: what else it left, with the accepted pins.
        plan: pools, settings, and what the servers say of themselves.
    """
    found = store.checkpoint()
    if state.evaluated_until is None:
        return state, Keeping()
    gone = _gone(store.memory())
    memory, at = Memory(), None
    if found is not None and found.at <= state.evaluated_until:
        memory, at = memory_from(found.frames), found.at
    targets = plan.assign(state.targets)
    pins = pinned(state.pins, targets, plan, state.gpus).pins
    since = at or state.evaluated_until - EVERY
    for first, last in _spans(since, state.evaluated_until, gone):
        minutes = store.minutes(first, last)
        if len(minutes):
            _, memory = detect(minutes, memory, pins, plan.detection)
        leaving = gone.filter(pl.col("at") == last).select("instance", "engine")
        if len(leaving):
            memory = memory.without(leaving)
    return replace(state, detection=memory), Keeping(at, _names(pins), gone)


def _gone(memory: Mapping[str, bytes]) -> pl.DataFrame:
    return from_arrow(memory[_FORGOTTEN]) if _FORGOTTEN in memory else nothing_forgotten()


def _spans(
    since: datetime, until: datetime, gone: pl.DataFrame
) -> Iterable[tuple[datetime, datetime]]:
    """(since, until] in steps that end where a target was forgotten."""
    ends = {at for at in gone["at"] if since < at <= until}
    while since < until:
        step = min([since + _STEP, until, *(at for at in ends if at > since)])
        yield since, step
        since = step
