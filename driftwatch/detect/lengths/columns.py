"""The evidence columns of length drift, minute by minute: against peers, and against contexts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.lengths.fold import Verdicts, fold
from driftwatch.detect.lengths.layouts import SIGNALS, Lengths, read, wider
from driftwatch.detect.lengths.memory import Memory, memory_from
from driftwatch.detect.lengths.scales import SOURCES
from driftwatch.detect.lengths.states import Block
from driftwatch.detect.null import day_number
from driftwatch.detect.settings import DetectSettings

__all__ = ["Memory", "columns", "memory_from"]

# Minutes that nobody was seen in are lived through up to so many; a longer gap forgets.
_GAP = 180
# (minute, target) cells of a block: what is worked on at a time stays below some 100 MB
_CELLS = 60_000
_COUNTED = ("drift_score", "drift_ratio", "peer_score", "peer_ratio", "smallest_detectable_ratio")
_STATES = ("traffic_shifted", "traffic_shift_over", "traffic_uneven", "traffic_uneven_over")
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    **{f"{signal}_{name}": pl.Float64 for signal in SIGNALS for name in _COUNTED},
    **{f"{signal}_calibration": pl.String for signal in SIGNALS},
    **dict.fromkeys(_STATES, pl.Boolean),
}


def columns(
    minutes: pl.DataFrame, memory: Memory, baselines: Baselines, settings: DetectSettings
) -> tuple[pl.DataFrame, Memory]:
    """The detector's evidence columns, row for row beside the minutes.

    ``minutes``: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, by instance, engine and end, with
    the columns of the speed detector where it has run; ``memory``: from the minutes before. How
    minutes are split over calls changes nothing; ``pins``: not asked: peers and contexts are what
    these scores compare with; ``settings``: holidays and the budget of false episodes.
    Returns: :data:`SCHEMA`, and the memory after the last minute.
    """
    if not len(minutes):
        return pl.DataFrame(schema=SCHEMA), memory
    memory = memory.with_grid(wider(memory.grid, minutes)).with_units(
        minutes.select("instance", "engine").unique(maintain_order=True),
        minutes.select("pool").drop_nulls().unique(maintain_order=True),
    )
    rows = _rows(minutes, memory)
    out = _Out.of(len(minutes))
    holidays = {day_number(day) for day in settings.holidays}
    for block in _blocks(rows, memory.minute, len(memory.targets)):
        memory = _with_pools(memory, rows, block)
        least = memory.pools["detectable"]
        memory, verdicts = fold(
            memory,
            _dense(rows, block, memory),
            settings.false_episodes_per_server_month,
            holidays,
        )
        out.take(block, rows, memory.targets["of_pool"], verdicts, least)
    return out.frame(), memory


@dataclass(frozen=True, slots=True)
class _Rows:
    """The minutes as arrays, a row each."""

    minute: Integers  # numbers since 1970
    target: Integers  # places
    pool: Integers  # places, -1 = none
    lengths: Lengths  # of the row
    restarted: Flags  # a restart or a change of knobs
    clean: Flags  # usual enough to learn from
    slow: Flags  # slower than the peers
    order: Integers  # rows by minute


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Minutes of one block: rows in it, its first minute and its number of minutes."""

    rows: Integers
    first: int
    size: int


def _rows(minutes: pl.DataFrame, memory: Memory) -> _Rows:
    place = memory.targets.keys.with_row_index("place")
    keys = minutes.select("instance", "engine")
    target = keys.join(place, on=["instance", "engine"], how="left", maintain_order="left")
    pools = memory.pools.keys.with_row_index("place").with_columns(pl.col("place").cast(pl.Int64))
    pool = minutes.select("pool").join(pools, on="pool", how="left", maintain_order="left")
    minute = minutes["end"].dt.epoch("s").to_numpy() // 60
    slow = _flag(minutes, "slower_than_pool")
    missed = _flag(minutes, "slo_missed") & (
        minutes["limit_binding_share_10m_ratio"].fill_null(0.0).to_numpy() >= 0.5
    )
    silent = minutes["seconds_since_last_token"].fill_null(0.0).to_numpy() >= 120.0
    waiting = minutes["running_requests"].fill_null(0.0).to_numpy() > 0
    dirty = slow | missed | (silent & waiting) | _flag(minutes, "slower_at_equal_load")
    return _Rows(
        minute=minute.astype(np.int64),
        target=target["place"].to_numpy().astype(np.int64),
        pool=pool["place"].fill_null(-1).to_numpy().astype(np.int64),
        lengths=read(minutes, memory.grid),
        restarted=_flag(minutes, "restarted") | _flag(minutes, "configuration_changed"),
        clean=~dirty,
        slow=slow,
        order=np.argsort(minute, kind="stable"),
    )


def _flag(minutes: pl.DataFrame, name: str) -> Flags:
    """A column of yes or no; unknown, or not there yet, is no."""
    if name not in minutes.columns:
        return np.zeros(len(minutes), dtype=bool)
    return minutes[name].cast(pl.Boolean).fill_null(False).to_numpy().astype(bool)


def _blocks(rows: _Rows, last: int, targets: int) -> Iterator[_Stretch]:
    """Stretches of minutes within one hour, in which no target changes its pool.

    After a gap of more than :data:`_GAP` minutes they begin anew at the next minute seen.
    """
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
    shape = (block.size, len(memory.targets))
    at, target = rows.minute[block.rows] - block.first, rows.target[block.rows]
    counts = np.zeros((*shape, len(SIGNALS), len(memory.grid)), dtype=np.float32)
    sums, is_known = np.zeros((*shape, len(SIGNALS))), np.zeros((*shape, len(SIGNALS)), dtype=bool)
    restarted, slow, clean = (np.zeros(shape, dtype=bool) for _ in range(3))
    counts[at, target] = rows.lengths.counts[block.rows]
    sums[at, target] = rows.lengths.sums[block.rows]
    is_known[at, target] = rows.lengths.is_known[block.rows]
    restarted[at, target] = rows.restarted[block.rows]
    slow[at, target] = rows.slow[block.rows]
    clean[at, target] = rows.clean[block.rows]
    return Block(block.first, counts, sums, is_known, restarted, clean, slow)


@dataclass(frozen=True, slots=True)
class _Out:
    """The columns being filled: numbers by name, NaN = unknown."""

    numbers: dict[str, Floats]
    sources: Integers

    @classmethod
    def of(cls, rows: int) -> _Out:
        names = [name for name, dtype in SCHEMA.items() if dtype != pl.String]
        return cls(
            {name: np.full(rows, np.nan) for name in names},
            np.full((rows, len(SIGNALS)), -1, dtype=np.int64),
        )

    def take(
        self, block: _Stretch, rows: _Rows, of_pool: Integers, verdicts: Verdicts, least: Floats
    ) -> None:
        """What a block showed, row by row."""
        here = block.rows
        at, target = rows.minute[here] - block.first, rows.target[here]
        pool = of_pool[target]
        pooled = pool >= 0
        there, ats, pools = here[pooled], at[pooled], pool[pooled]
        is_present = np.asarray(rows.lengths.is_known[there].any(axis=1))
        self.numbers["traffic_uneven"][here] = verdicts.uneven[at, target]
        self.numbers["traffic_uneven_over"][here] = verdicts.uneven_over[at, target]
        for name, values in (
            ("traffic_shifted", verdicts.shifted),
            ("traffic_shift_over", verdicts.shift_over),
        ):
            self.numbers[name][there] = np.where(is_present, values[ats, pools], np.nan)
        for s, signal in enumerate(SIGNALS):
            self.numbers[f"{signal}_peer_score"][here] = verdicts.peer_score[at, target, s]
            self.numbers[f"{signal}_peer_ratio"][here] = verdicts.peer_ratio[at, target, s]
            is_known = rows.lengths.is_known[there, s]
            score = np.where(is_known, verdicts.drift_score[ats, pools, s], np.nan)
            self.numbers[f"{signal}_drift_score"][there] = score
            ratio = np.where(is_known, verdicts.drift_ratio[ats, pools, s], np.nan)
            self.numbers[f"{signal}_drift_ratio"][there] = ratio
            self.numbers[f"{signal}_smallest_detectable_ratio"][there] = np.where(
                is_known, least[pools, s], np.nan
            )
            # the less certain of the scales that were used
            of_peers = np.where(
                np.isnan(verdicts.peer_score[at, target, s]), -1, verdicts.peer_source[target, s]
            )
            of_drift = np.full(len(here), -1, dtype=np.int64)
            of_drift[pooled] = np.where(np.isnan(score), -1, verdicts.drift_source[pools, s])
            self.sources[here, s] = np.maximum(of_peers, of_drift)

    def frame(self) -> pl.DataFrame:
        """The columns of :data:`SCHEMA`."""
        names = np.array([*SOURCES, None], dtype=object)
        series = {
            name: pl.Series(name, values).fill_nan(None).cast(SCHEMA[name])
            for name, values in self.numbers.items()
        }
        for s, signal in enumerate(SIGNALS):
            name = f"{signal}_calibration"
            series[name] = pl.Series(name, names[self.sources[:, s]].tolist(), dtype=pl.String)
        return pl.DataFrame([series[name] for name in SCHEMA])
