"""A stretch of minutes without a gap, all targets side by side, folded minute by minute.

Speeds and their windows are computed for the whole stretch at once and again where a model changes.
Models and thresholds change at fixed times of the clock only (a first model every 5 min, a better
one every hour, what is usual every midnight), so that nothing depends on how minutes came in.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from driftwatch.arrays import Codes, Flags, Floats, Indices, Integers
from driftwatch.collect.schema import KEY
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.null import Null, day_number
from driftwatch.detect.speed.change import (
    LEVEL_MINUTES,
    LOOKBACK,
    Holding,
    Limits,
    Past,
    last_quantiles,
    of_others,
    past_of,
)
from driftwatch.detect.speed.fit import bunched
from driftwatch.detect.speed.learner import (
    PROVISIONAL,
    Learner,
    Reference,
    references_of,
    unknowns_of,
)
from driftwatch.detect.speed.limits import (
    CHANGE,
    LEVEL,
    PEER_CHANGE,
    PEER_LEVEL,
    STATISTICS,
    limits_of,
)
from driftwatch.detect.speed.load import (
    BEYOND_MODEL,
    CHANGED,
    COMPLETE,
    RESTARTED,
    SATURATED,
    SETTLING_MINUTES,
    WARM_MINUTES,
    WARMING,
    Load,
)
from driftwatch.detect.speed.load_model import BLOCK_SECONDS, LoadModels
from driftwatch.detect.speed.memory import Memory
from driftwatch.detect.speed.output import frame, peer_columns, reference_names, speed_columns

MINUTE = timedelta(minutes=1)
_FIRST_FIT_MINUTES, _NEXT_FIT_MINUTES = 5, 60


class Stretch:
    """One stretch of ``minutes`` from the one that ends at ``start`` on.

    ``accepts``: whether a pool's own model is a reference without anybody's word.
    """

    def __init__(
        self,
        memory: Memory,
        targets: pl.DataFrame,
        start: datetime,
        minutes: int,
        baselines: Baselines,
        *,
        accepts: bool,
    ) -> None:
        self._memory, self._load = memory.at(targets, start, minutes)
        self._targets = self._memory.targets.keys
        self._named = self._targets.select(KEY)
        self._start, self._minutes = start, minutes
        self._baselines, self._accepts = baselines, accepts
        self._pools: list[str] = [pool or "" for pool in self._targets["pool"]]
        self._groups = _groups(self._pools)
        # of each target, the same wherever and whenever it is seen
        self._numbers = np.array(
            [zlib.crc32("\n".join(key).encode()) for key in self._named.iter_rows()],
            dtype=np.int64,
        )
        arrays = self._memory.targets
        self._own = Holding.of(arrays["slower"])
        self._peer = Holding.of(arrays["slower_than_peers"])
        self._learners: dict[str, Learner] = dict(memory.learners)
        # thresholds hold as long as nobody changes pool
        same = self._targets["pool"].equals(memory.targets.keys["pool"], null_equal=True)
        self._known = memory.limits if same else None
        self._keys: list[str | None] = self._targets["reference"].to_list()
        self._past: Null = memory.past
        self._slots: dict[str, Indices] = {}
        self._with_slots()
        self._counted: list[tuple[Indices, Floats]] = []
        shape = (len(self._targets), minutes)
        self._why: Codes = np.full(shape, 1, dtype=np.int8)
        self._scrapes, self._usable = np.zeros(shape), np.zeros(shape, dtype=bool)
        self._parts: list[dict[str, Any]] = []

    def fold(self, load: Load, keys: pl.DataFrame, minute: Integers) -> tuple[pl.DataFrame, Memory]:
        """The columns of rows, and the memory after the last minute.

        ``load`` of the rows; ``keys`` and ``minute``: which target and minute each is of.
        """
        target = self._memory.targets.places(keys)
        self._place(load, target, minute)
        at = 0
        while at < self._minutes:
            references = self._references()
            self._speeds(at)
            limits = None
            changed = False
            while at < self._minutes and not changed:
                if self._begin_day(at) or limits is None:
                    limits = self._limits(references)
                until = self._next_stop(at)
                self._part(at, until, references, *limits)
                changed = self._learn(until - 1)
                at = until
        return frame(self._parts, self._why, target, minute), self._remembered()

    def _place(self, load: Load, target: Indices, minute: Integers) -> None:
        self._load[target, LOOKBACK + minute] = load.values
        self._why[target, minute] = load.why
        self._scrapes[target, minute] = load.scrapes
        self._usable[target, minute] = load.usable
        warming = _within(self._load[..., CHANGED] == RESTARTED, WARM_MINUTES)
        self._load[warming, :CHANGED] = np.nan
        self._why[warming[:, LOOKBACK:] & (self._why == COMPLETE)] = WARMING
        changed = _within(self._load[..., CHANGED] > 0, SETTLING_MINUTES)
        self._settled = ~changed[:, LOOKBACK:]

    def _with_slots(self) -> None:
        for name in STATISTICS:
            keys = self._named.with_columns(statistic=pl.lit(name))
            self._past, self._slots[name] = self._past.with_keys(keys)

    def _next_stop(self, minute: int) -> int:
        """The minute before which nothing but the speed can change."""
        end = self._end(minute)
        learning = any(one.model is None for one in self._learners.values())
        every = _FIRST_FIT_MINUTES if learning or self._untaught else _NEXT_FIT_MINUTES
        remaining = -(end.hour * 60 + end.minute) % every
        return min(minute + remaining + 1, self._minutes)

    def _seconds(self, minute: int) -> int:
        return int(self._end(minute).timestamp())

    def _end(self, minute: int) -> datetime:
        return self._start + minute * MINUTE

    def _references(self) -> list[Reference]:
        references = references_of(
            self._targets, self._baselines, self._learners, accepts=self._accepts
        )
        keys = [one.key for one in references]
        if keys != self._keys:
            pairs = list(zip(self._keys, keys, strict=True))
            other = np.array([old is not None and old != new for old, new in pairs], dtype=bool)
            grown = np.array([all(k and k.startswith(PROVISIONAL) for k in p) for p in pairs])
            self._flush()
            replaced = self._named.filter(other)
            for name in (LEVEL, PEER_LEVEL):
                self._past = self._past.without(replaced.with_columns(statistic=pl.lit(name)))
            self._with_slots()
            self._own.reset(other & ~grown)
            self._peer.reset(other & ~grown)
            self._keys = keys
            self._known = None
        self._models = LoadModels.of([one.peers for one in references])
        self._armed = np.array([one.model is not None for one in references], dtype=bool)
        return references

    def _limits(self, references: Sequence[Reference]) -> tuple[Limits, Limits]:
        about = f"{self._past.day} {self._past.size}"
        if self._known is None or self._known[0] != about:
            models = ([one.model for one in references], [one.peers for one in references])
            own, peer = (
                limits_of(self._past, self._named, self._pools, of, statistics)
                for of, statistics in zip(
                    models, ((LEVEL, CHANGE), (PEER_LEVEL, PEER_CHANGE)), strict=True
                )
            )
            self._known = about, own, peer
        return self._known[1:]

    def _speeds(self, at: int) -> None:
        """Speeds and their windows from a minute on; they are indexed from there."""
        values = self._load[:, at:]
        peers, above, below, beyond = self._models.ln_speed(values)
        here = self._why[:, at:]
        here[np.isin(here, BEYOND_MODEL)] = COMPLETE
        here[here == COMPLETE] = beyond[:, LOOKBACK:][here == COMPLETE]
        off = ~self._armed
        others = np.full_like(peers, np.nan)
        for rows in self._groups:
            others[rows] = of_others(peers[rows])
        self._first = at
        outside = above - below
        together = bunched(values, self._models.coefficients[:, 3:], peers)
        themselves = past_of(peers, outside, together, LOOKBACK, self._models.together)
        self._own_past: Past = themselves.without(off)
        # what all of a pool are wrong by out there cancels; what one alone is does not
        apart, alone = outside.copy(), together.copy()
        for rows in self._groups:
            for slack in (apart, alone):
                others_slack = of_others(np.where(np.isnan(peers[rows]), np.nan, slack[rows]))
                slack[rows] -= others_slack
        self._peers: Past = past_of(peers - others, apart, alone, LOOKBACK)
        # where the others have risen nobody has become slower
        with np.errstate(invalid="ignore"):
            self._fell = themselves.change <= 0.5 * self._peers.change
        (self._beyond,) = last_quantiles(above, LEVEL_MINUTES, (0.5,), LOOKBACK)
        (self._pool,) = last_quantiles(others, LEVEL_MINUTES, (0.5,), LOOKBACK)
        self._pool[off] = np.nan

    def _part(
        self, start: int, stop: int, references: Sequence[Reference], own: Limits, peer: Limits
    ) -> None:
        """Minutes in which models and thresholds stay."""
        shape = (len(self._targets), stop - start)
        slower, fresh, than_peers, fresh_peers = (np.zeros(shape, dtype=bool) for _ in range(4))
        why = self._why[:, start:stop]
        clean = self._usable[:, start:stop] & self._settled[:, start:stop]
        # a model that is being learnt takes the work that it never saw: the next one has seen it
        sound = np.isin(why, BEYOND_MODEL) & (why != SATURATED) | (why == COMPLETE)
        unknown = np.full(shape, None, dtype=object)
        study = self._untaught or any(not one.done for one in self._learners.values())
        learning = self._learning
        for k in range(stop - start):
            minute = start + k
            now = minute - self._first
            self._own.step(self._own_past, now, own, others=self._peers.now[:, now])
            self._peer.step(self._peers, now, peer, self._fell[:, now])
            slower[:, k], fresh[:, k] = self._own.slower, self._own.fresh
            than_peers[:, k], fresh_peers[:, k] = self._peer.slower, self._peer.fresh
            clean[:, k] &= ~self._own.slower & ~self._peer.slower
            if study and learning.any():
                self._study(minute, clean[:, k] & sound[:, k] & learning)
            if not self._armed.all():
                unknown[:, k] = unknowns_of(
                    references, self._pools, self._learners, accepts=self._accepts
                )
        here = slice(start - self._first, stop - self._first)
        past, peers = self._own_past.at(here), self._peers.at(here)
        self._count(past, peers, clean & (why == COMPLETE))
        columns = speed_columns(past, own, slower, fresh, self._beyond[:, here], unknown)
        columns |= peer_columns(peers, than_peers, fresh_peers, self._pool[:, here])
        columns["speed_reference"] = reference_names(references, columns.pop("outside"))
        self._parts.append(columns)

    def _count(self, past: Past, peers: Past, clean: Flags) -> None:
        """What was usual in clean minutes."""
        usual = (past.bound, past.change, peers.bound, peers.change)
        for name, values in zip((LEVEL, CHANGE, PEER_LEVEL, PEER_CHANGE), usual, strict=True):
            target, minute = np.nonzero(clean & ~np.isnan(values))
            if len(target):
                self._counted.append((self._slots[name][target], values[target, minute]))

    def _study(self, minute: int, wanted: Flags) -> None:
        """Give clean minutes to the learners of their pools."""
        for rows in self._groups:
            inside = rows[wanted[rows]]
            if len(inside):
                pool = self._pools[rows[0]]
                learner = self._learners.get(pool, Learner())
                if not learner.done:
                    self._learners[pool] = learner.with_minute(
                        self._load[inside, LOOKBACK + minute],
                        float(self._scrapes[inside, minute].sum()),
                        self._numbers[inside] * 2**24 + self._seconds(minute) // BLOCK_SECONDS,
                    )

    @property
    def _untaught(self) -> bool:
        """Whether somebody without a baseline is of a pool that has learnt nothing yet."""
        return any(
            key is None and pool not in self._learners
            for key, pool in zip(self._keys, self._pools, strict=True)
        )

    @property
    def _learning(self) -> Flags:
        """Who is of a pool in which somebody has no baseline: one that joins slow would hide."""
        without = {
            pool
            for key, pool in zip(self._keys, self._pools, strict=True)
            if key is None or key.startswith(PROVISIONAL)
        }
        return np.array([pool in without for pool in self._pools], dtype=bool)

    def _learn(self, minute: int) -> bool:
        """Fit what is due after a minute; whether any model changed."""
        end = self._end(minute)
        of_day = end.hour * 60 + end.minute
        if of_day % _FIRST_FIT_MINUTES:
            return False
        changed = False
        for pool, learner in self._learners.items():
            if learner.model is not None and of_day % _NEXT_FIT_MINUTES:
                continue
            if learner.ready:
                fitted = learner.fitted()
                changed |= fitted is not learner
                self._learners[pool] = fitted
        return changed

    def _begin_day(self, minute: int) -> bool:
        day = day_number((self._end(minute) - MINUTE).date())
        if day == self._past.day:
            return False
        self._flush()
        self._past = self._past.begun(day)
        return True

    def _flush(self) -> None:
        if self._counted:
            slots, values = zip(*self._counted, strict=True)
            self._past = self._past.add(np.concatenate(slots), np.concatenate(values))
            self._counted = []

    def _remembered(self) -> Memory:
        self._flush()
        keys = self._targets.with_columns(reference=pl.Series(self._keys, dtype=pl.String))
        arrays = self._memory.targets.with_arrays(
            load=np.ascontiguousarray(self._load[:, self._minutes :]),
            slower=self._own.rows(),
            slower_than_peers=self._peer.rows(),
        )
        return replace(
            self._memory,
            until=self._end(self._minutes - 1),
            targets=replace(arrays, keys=keys),
            past=self._past,
            learners=self._learners,
            limits=self._known,
        )


def _groups(pools: Sequence[str]) -> list[Indices]:
    """Rows by pool, pools in order of their names."""
    names, inverse = np.unique(np.array(pools, dtype=object).astype(str), return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    cuts = np.searchsorted(inverse[order], np.arange(1, len(names)))
    return [rows for rows in np.split(order, cuts) if len(rows)]


def _within(flags: Flags, minutes: int) -> Flags:
    """Whether a flag is set in a minute or in one of those before it."""
    within = flags.copy()
    for back in range(1, minutes):
        within[:, back:] |= flags[:, :-back]
    return within
