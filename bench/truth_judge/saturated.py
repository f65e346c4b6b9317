"""When a server could not take what it was sent: a truth of its own, read from the scheduler.

The load beside a recording (``load.py``) says for every minute how many
requests waited for room and which limit was full. A stretch in which they wait is *saturated*,
whatever was injected: there somebody may be told of a limit, and nobody that an engine is slower.
Where a target of time to first token is known and met all the while, waiting harms nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from truth_judge.load import LOAD_SECONDS

# what a rule of limits may say there; of anything else saturation is no excuse
LIMIT_RULES = frozenset({"BatchLimitBinding", "BatchDrift", "RetuneAdvised", "DeferredAdmission"})
LEAVES: Mapping[str, str] = {
    "sequences": "concurrency_cap_binding",
    "tokens": "token_budget_binding",
    "kv": "kv_pressure",
}
WINDOW_SECONDS = 600.0  # what a diagnosis looks at
_AROUND = 5  # minutes: a queue that is gone in between is the same queue
_SHARE = 0.5  # of that time in which requests wait
_SHORTEST_SECONDS = 180.0
_APART_SECONDS = 600.0  # the windows that rules judge: two stretches closer than that are one
_FULL: Mapping[str, float] = {"sequences": 0.98, "tokens": 0.85, "kv": 0.9}
_BINDS = 0.3  # of a stretch's minutes, or a half of those of the limit that binds most
_STUCK_MINUTES = 3  # a rule that says "no token" waits two
_TARGET_MINUTES = 10  # over which a share in target is taken, as a rule of it does

Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Saturation:
    """A stretch in which requests waited for room.

    Attributes:
        instance: the server.
        start_seconds: when it began.
        end_seconds: when it was over.
        limits: those that were full, the one that was full most often first: ``sequences``,
            ``tokens``, ``kv``; empty = the engine alone.
        wait_seconds: mean time for which a request waited (Little: those that wait over those that
            come); inf where none came.
        minutes: those in which requests waited, in unix seconds, each with the limits then full.
        harms: too few requests met the target of their first token, or no such target is known.
        serves_nobody: for minutes nobody's request finishes in time: clients give up before it.
    """

    instance: str
    start_seconds: float
    end_seconds: float
    limits: tuple[str, ...]
    harms: bool
    wait_seconds: float = inf
    minutes: tuple[tuple[float, frozenset[str]], ...] = ()
    serves_nobody: bool = False

    @property
    def leaves(self) -> tuple[str, ...]:
        """Where a diagnosis may end, the likeliest first."""
        return tuple(LEAVES[limit] for limit in self.limits)

    def overlap(self, start: float, end: float) -> float:
        """Seconds that it shares with a window."""
        return max(0.0, min(self.end_seconds, end) - max(self.start_seconds, start))


Minutes = Sequence[tuple[float, frozenset[str]]]


def fullest(minutes: Minutes, start: float, end: float) -> float:
    """The end of the 10 min of a window in which most minutes waited, the last of them."""
    inside = [at for at, _ in minutes if start <= at <= end]
    waited = [(sum(at - WINDOW_SECONDS < t <= at for t in inside), at) for at in inside]
    return max(waited, default=(0, end))[1]


def leaves_then(minutes: Minutes, at: float) -> frozenset[str]:
    """Leaves of the limits that were full in the 10 min before a moment.

    A long stretch's first minutes may know another limit than the rest of it.
    """
    full = [limits for t, limits in minutes if at - WINDOW_SECONDS < t <= at]
    return frozenset(LEAVES[name] for name in _binding(full))


def saturations(folder: Path, share: float | None) -> tuple[Saturation, ...]:
    """Of every server of a recording, in order of time."""
    found: list[Saturation] = []
    for file in sorted(folder.glob("*.load.parquet")):
        rows = pl.read_parquet(file).sort("time")
        if not rows.is_empty():
            found += stretches(rows, share)
    return tuple(sorted(found, key=lambda one: one.start_seconds))


def stretches(rows: pl.DataFrame, share: float | None) -> list[Saturation]:
    """Of one server."""
    at = rows["time"].dt.epoch("us").to_numpy() / 1e6
    waits = rows["waiting_ratio"].to_numpy()
    smooth = np.convolve(waits, np.ones(_AROUND) / _AROUND, mode="same") >= _SHARE
    missed = _missed(rows, share)
    lasting = dict(_lasts(at, smooth))
    found = []
    for harms, on in ((True, smooth & missed), (False, smooth & ~missed)):
        for first, last in _joined(at, on):
            if lasting[first] < _SHORTEST_SECONDS:
                continue
            inside = rows.filter(pl.Series((at >= first) & (at <= last)))
            minutes, waited = _limits(inside), _waited(inside)
            limits = _binding([of for _, of in minutes])
            nobody = _serves_nobody(inside)
            found.append(
                Saturation(rows["instance"][0], first, last, limits, harms, waited, minutes, nobody)
            )
    return found


def _serves_nobody(rows: pl.DataFrame) -> bool:
    served = rows["in_tpot_requests"].rolling_sum(_STUCK_MINUTES)
    waiting = rows["waiting_requests"].rolling_min(_STUCK_MINUTES)
    return bool(((served == 0) & (waiting > 0)).any())


def _waited(rows: pl.DataFrame) -> float:
    arrived = float(rows["arrived_requests"].sum())
    return LOAD_SECONDS * float(rows["waiting_requests"].sum()) / arrived if arrived else inf


def _joined(at: npt.NDArray[np.float64], on: Booleans) -> Iterable[tuple[float, float]]:
    """Runs of true minutes, near ones as one."""
    runs: list[tuple[float, float]] = []
    for time in at[on]:
        if runs and time - runs[-1][1] <= _APART_SECONDS:
            runs[-1] = (runs[-1][0], float(time))
        else:
            runs.append((float(time), float(time)))
    return runs


def _lasts(at: npt.NDArray[np.float64], on: Booleans) -> Iterable[tuple[float, float]]:
    """Each true minute, and how long the run of true minutes around it lasts."""
    runs = list(_joined(at, on))
    for time in at[on]:
        yield float(time), next(last - first for first, last in runs if first <= time <= last)


def _limits(rows: pl.DataFrame) -> tuple[tuple[float, frozenset[str]], ...]:
    """Minutes in which requests waited, each with what was full."""
    waiting = rows.filter(pl.col("waiting_ratio") > 0)
    full = waiting.select(
        at=pl.col("time").dt.epoch("us") / 1e6,
        sequences=pl.col("sequences_ratio") >= _FULL["sequences"],
        tokens=pl.col("step_tokens_ratio") >= _FULL["tokens"],
        kv=(pl.col("kv_cache_ratio").fill_null(0.0) >= _FULL["kv"]) | (pl.col("preemptions") > 0),
    )
    return tuple(
        (one["at"], frozenset(name for name in _FULL if one[name])) for one in full.to_dicts()
    )


def _binding(full: Sequence[frozenset[str]]) -> tuple[str, ...]:
    """Which were full while requests waited, most often first."""
    shares = {name: sum(name in of for of in full) / max(len(full), 1) for name in _FULL}
    least = max(_BINDS, max(shares.values()) / 2.0)
    binding = [name for name, held in shares.items() if held >= least]
    return tuple(sorted(binding, key=lambda name: -shares[name]))


def _missed(rows: pl.DataFrame, share: float | None) -> Booleans:
    """Minutes around which too few requests met the target of their first token."""
    if share is None:
        return np.ones(len(rows), dtype=np.bool_)
    span = _TARGET_MINUTES
    ended, met = (
        rows[name].cast(pl.Float64).rolling_sum(span, min_samples=1).to_numpy()
        for name in ("ended_requests", "in_ttft_requests")
    )
    # requests that wait are in no count yet: a queue of which nothing ends meets nothing
    return np.where(ended > 0, met < share * ended, rows["waiting_requests"].to_numpy() > 0)


def within(
    found: Sequence[Saturation], instances: Iterable[str], start: float, end: float
) -> list[Saturation]:
    """Those of some servers that reach into a window, the longest share of it first."""
    of = set(instances)
    there = [one for one in found if one.instance in of and one.overlap(start, end) > 0]
    return sorted(there, key=lambda one: -one.overlap(start, end))
