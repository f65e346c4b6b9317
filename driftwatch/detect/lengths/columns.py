"""The evidence columns of length drift, minute by minute: against peers, and against contexts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from driftwatch.arrays import Flags, Floats, Integers, Singles
from driftwatch.detect.lengths.fold import fold
from driftwatch.detect.lengths.layouts import SIGNALS, read, wider
from driftwatch.detect.lengths.memory import Memory, memory_from
from driftwatch.detect.lengths.scales import SOURCES
from driftwatch.detect.lengths.states import Block
from driftwatch.detect.null import day_number
from driftwatch.detect.output import Schema, frame_of
from driftwatch.detect.settings import DetectSettings

__all__ = ["Memory", "columns", "memory_from"]

# Minutes that nobody was seen in are lived through up to so many; a longer gap forgets.
_GAP = 180
# (minute, target) cells of a block: what is worked on at a time stays below some 100 MB
_CELLS = 60_000
_OF_TARGETS = ("peer_score", "peer_ratio")
_OF_POOLS = ("drift_score", "drift_ratio", "smallest_detectable_ratio")
_STATES = ("traffic_shifted", "traffic_shift_over", "traffic_uneven", "traffic_uneven_over")
SCHEMA: Schema = {
    **{
        f"{signal}_{name}": pl.Float64
        for signal in SIGNALS
        for name in (*_OF_POOLS[:2], *_OF_TARGETS, _OF_POOLS[2])
    },
    **{f"{signal}_calibration": pl.String for signal in SIGNALS},
    **dict.fromkeys(_STATES, pl.Boolean),
}


def columns(
    minutes: pl.DataFrame, memory: Memory, settings: DetectSettings
) -> tuple[pl.DataFrame, Memory]:
    """The detector's evidence columns (:data:`SCHEMA`), row for row beside the minutes.

    ``minutes``: MINUTE_SCHEMA, by instance, engine and end, with the speed detector's columns.
    """
    if not len(minutes):
        return pl.DataFrame(schema=SCHEMA), memory
    memory = memory.with_grid(wider(memory.grid, minutes)).with_units(
        minutes.select("instance", "engine").unique(maintain_order=True),
        minutes.select("pool").drop_nulls().unique(maintain_order=True),
    )
    rows = _rows(minutes, memory)
    numbers = {name: np.full(len(minutes), np.nan) for name, t in SCHEMA.items() if t != pl.String}
    sources = np.full((len(minutes), len(SIGNALS)), -1, dtype=np.int64)
    holidays = {day_number(day) for day in settings.holidays}
    for block in _blocks(rows, memory.minute, len(memory.targets)):
        memory = _with_pools(memory, rows, block)
        least = memory.pools["detectable"]
        dense, budget = _dense(rows, block, memory), settings.false_episodes_per_server_month
        memory, verdicts = fold(memory, dense, budget, holidays)
        verdicts["smallest_detectable_ratio"] = np.broadcast_to(least, (block.size, *least.shape))
        _write(numbers, sources, rows, block, memory.targets["of_pool"], verdicts)
    names = np.array([*SOURCES, None], dtype=object)
    calibration = {f"{s}_calibration": names[sources[:, i]] for i, s in enumerate(SIGNALS)}
    return frame_of({**numbers, **calibration}, SCHEMA), memory


@dataclass(frozen=True, slots=True)
class _Rows:
    """The minutes as arrays, a row each; the last six as in :class:`Block`."""

    minute: Integers  # numbers since 1970
    target: Integers  # places
    pool: Integers  # places, -1 = none
    order: Integers  # rows by minute
    counts: Singles
    sums: Floats
    is_known: Flags
    restarted: Flags
    clean: Flags
    slow: Flags


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Minutes of one block: rows in it, its first minute and its number of minutes."""

    rows: Integers
    first: int
    size: int


def _rows(minutes: pl.DataFrame, memory: Memory) -> _Rows:
    minute = minutes["end"].dt.epoch("s").to_numpy() // 60
    slow = _flag(minutes, "slower_than_pool")
    missed = _flag(minutes, "slo_missed") & (
        minutes["limit_binding_share_10m_ratio"].fill_null(0.0).to_numpy() >= 0.5
    )
    silent = minutes["seconds_since_last_token"].fill_null(0.0).to_numpy() >= 120.0
    waiting = minutes["running_requests"].fill_null(0.0).to_numpy() > 0
    dirty = slow | missed | (silent & waiting) | _flag(minutes, "slower_at_equal_load")
    counts, sums, is_known = read(minutes, memory.grid)
    return _Rows(
        minute=minute.astype(np.int64),
        target=memory.targets.places(minutes),
        pool=memory.pools.places(minutes),
        order=np.argsort(minute, kind="stable"),
        counts=counts,
        sums=sums,
        is_known=is_known,
        restarted=_flag(minutes, "restarted") | _flag(minutes, "configuration_changed"),
        clean=~dirty,
        slow=slow,
    )


def _flag(minutes: pl.DataFrame, name: str) -> Flags:
    """A column of yes or no; unknown, or not there yet, is no."""
    if name not in minutes.columns:
        return np.zeros(len(minutes), dtype=bool)
    return minutes[name].cast(pl.Boolean).fill_null(False).to_numpy().astype(bool)


def _blocks(rows: _Rows, last: int, targets: int) -> Iterator[_Stretch]:
    """Stretches within one hour in which no target changes its pool; anew after a gap of _GAP."""
    minute = rows.minute[rows.order]
    observed = np.unique(minute)
    switches = set(_switches(rows).tolist())
    most = max(1, _CELLS // max(1, targets))
    at = int(observed[0]) if last < 0 or observed[0] - last > _GAP + 1 else last + 1
    for until in [*(observed[:-1][np.diff(observed) > _GAP + 1]).tolist(), int(observed[-1])]:
        while at <= until:
            end = min(until, (at - 1) // 60 * 60 + 60, at + most - 1)
            end = next((m - 1 for m in range(at + 1, end + 1) if m in switches), end)
            low, high = np.searchsorted(minute, [at, end + 1])
            yield _Stretch(rows.order[low:high], at, end - at + 1)
            at = end + 1
        following = np.searchsorted(observed, at)
        if following < len(observed):
            at = int(observed[following])


def _switches(rows: _Rows) -> Integers:
    """Minutes in which a target is in another pool than in its row before."""
    order = np.lexsort((rows.minute, rows.target))
    target, pool = rows.target[order], rows.pool[order]
    other = (target[1:] == target[:-1]) & (pool[1:] != pool[:-1])
    switches: Integers = rows.minute[order][1:][other]
    return switches


def _with_pools(memory: Memory, rows: _Rows, block: _Stretch) -> Memory:
    """Before a block: a long gap forgets what was running, a target in another pool starts over."""
    if memory.minute >= 0 and block.first > memory.minute + 1:
        targets, pools = memory.targets, memory.pools
        memory = memory.of_targets(
            counts=np.zeros_like(targets["counts"]),
            sums=np.zeros_like(targets["sums"]),
            watch=memory.uneven.silenced().rows(),
        ).of_pools(
            counts=np.zeros_like(pools["counts"]),
            sums=np.zeros_like(pools["sums"]),
            watch=memory.shifted.silenced().rows(),
        )
    of_pool = memory.targets["of_pool"].copy()
    of_pool[rows.target[block.rows]] = rows.pool[block.rows]
    other = of_pool != memory.targets["of_pool"]
    if not other.any():
        return memory
    counts, sums = memory.targets["counts"].copy(), memory.targets["sums"].copy()
    counts[:, other], sums[:, other] = 0.0, 0.0
    return memory.of_targets(of_pool=of_pool, counts=counts, sums=sums)


def _dense(rows: _Rows, block: _Stretch, memory: Memory) -> Block:
    """The block's rows in their places."""
    at, target = rows.minute[block.rows] - block.first, rows.target[block.rows]
    arrays = {}
    for name in ("counts", "sums", "is_known", "restarted", "clean", "slow"):
        values = getattr(rows, name)
        placed = np.zeros((block.size, len(memory.targets), *values.shape[1:]), values.dtype)
        placed[at, target] = values[block.rows]
        arrays[name] = placed
    return Block(first=block.first, **arrays)


def _write(
    numbers: dict[str, Floats],
    sources: Integers,
    rows: _Rows,
    block: _Stretch,
    of_pool: Integers,
    verdicts: Mapping[str, Floats],
) -> None:
    """What a block showed, row by row; of a pool only where the row itself knows lengths."""
    here = block.rows
    at, target = rows.minute[here] - block.first, rows.target[here]
    pooled = of_pool[target] >= 0
    there, pool = here[pooled], (at[pooled], of_pool[target][pooled])
    is_known = rows.is_known[there]
    for name in _STATES[:2]:
        numbers[name][there] = np.where(is_known.any(axis=1), verdicts[name][pool], np.nan)
    for name in _STATES[2:]:
        numbers[name][here] = verdicts[name][at, target]
    for s, signal in enumerate(SIGNALS):
        for name in _OF_TARGETS:
            numbers[f"{signal}_{name}"][here] = verdicts[name][at, target, s]
        for name in _OF_POOLS:
            values = np.where(is_known[:, s], verdicts[name][(*pool, s)], np.nan)
            numbers[f"{signal}_{name}"][there] = values
        # the less certain of the scales that were used
        peers = np.isnan(numbers[f"{signal}_peer_score"][here])
        sources[here, s] = np.where(peers, -1, verdicts["peer_source"][target, s])
        drift = np.isnan(numbers[f"{signal}_drift_score"][there])
        of_drift = np.where(drift, -1, verdicts["drift_source"][pool[1], s])
        sources[there, s] = np.maximum(sources[there, s], of_drift)
