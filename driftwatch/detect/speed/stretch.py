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

import numpy as np
import polars as pl

from driftwatch.arrays import Codes, Flags, Floats, Indices, Texts
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
from driftwatch.detect.speed.learner import PROVISIONAL, Learner, Reference, references_of
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
from driftwatch.detect.speed.output import Output

MINUTE = timedelta(minutes=1)
_FIRST_FIT_MINUTES, _NEXT_FIT_MINUTES = 5, 60


class Stretch:
    """One stretch.

    ``memory``: of the minutes before; ``targets``: instance, engine, pool of its rows; ``start``:
    end of its first minute; ``minutes``: how many; ``pins``: in force; ``accepts``: whether a
    pool's own model is a reference without anybody's word.
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
        self._memory, self.load = memory.at(targets, start, minutes)
        self.targets = self._memory.targets.keys
        self._start, self._minutes = start, minutes
        self._pins, self._accepts = baselines, accepts
        count = len(self.targets)
        self._pools: list[str] = [pool or "" for pool in self.targets["pool"]]
        self._groups = _groups(self._pools)
        # of each target, the same wherever and whenever it is seen
        self._numbers = np.array(
            [zlib.crc32("\n".join(key).encode()) for key in self.targets.select(KEY).iter_rows()],
            dtype=np.int64,
        )
        arrays = self._memory.targets
        self._own = Holding.of(arrays["slower"])
        self._peer = Holding.of(arrays["slower_than_peers"])
        self._learners: dict[str, Learner] = dict(memory.learners)
        # thresholds hold as long as nobody changes pool
        same = self.targets["pool"].equals(memory.targets.keys["pool"], null_equal=True)
        self._known = memory.limits if same else None
        self._keys: list[str | None] = self.targets["reference"].to_list()
        named = self.targets.select(KEY)
        self._slots: dict[str, Indices] = {}
        self._past: Null = memory.past
        for name in STATISTICS:
            self._past, self._slots[name] = self._past.with_keys(
                named.with_columns(statistic=pl.lit(name))
            )
        self._counted: list[tuple[Indices, Floats]] = []
        self.why: Codes = np.full((count, minutes), 1, dtype=np.int8)
        self._scrapes = np.zeros((count, minutes))
        self._usable = np.zeros((count, minutes), dtype=bool)
        self.output = Output.of(count, minutes)

    def place(self, load: Load, target: Indices, minute: Indices) -> None:
        """Put rows of load where they belong."""
        self.load[target, LOOKBACK + minute] = load.values
        self.why[target, minute] = load.why
        self._scrapes[target, minute] = load.scrapes
        self._usable[target, minute] = load.usable
        restarts = self.load[..., CHANGED] == RESTARTED
        warming = _within(restarts, WARM_MINUTES)
        self.load[warming, :CHANGED] = np.nan
        new = warming[:, LOOKBACK:] & (self.why == COMPLETE)
        self.why[new] = WARMING
        self._settled = ~_within(self.load[..., CHANGED] > 0, SETTLING_MINUTES)[:, LOOKBACK:]

    def run(self) -> Memory:
        """Fold the minutes; ``output`` has their columns."""
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
        return self._remembered()

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
        references = references_of(self.targets, self._pins, self._learners, accepts=self._accepts)
        keys = [one.key for one in references]
        if keys != self._keys:
            pairs = list(zip(self._keys, keys, strict=True))
            other = np.array([old is not None and old != new for old, new in pairs], dtype=bool)
            grown = [all(k and k.startswith(PROVISIONAL) for k in pair) for pair in pairs]
            self._flush()
            replaced = self.targets.select(KEY).filter(other)
            for name in (LEVEL, PEER_LEVEL):
                self._past = self._past.without(replaced.with_columns(statistic=pl.lit(name)))
            for name in STATISTICS:
                self._past, self._slots[name] = self._past.with_keys(
                    self.targets.select(KEY).with_columns(statistic=pl.lit(name))
                )
            self._own.reset(other & ~np.array(grown, dtype=bool))
            self._peer.reset(other & ~np.array(grown, dtype=bool))
            self._keys = keys
            self._known = None
        self._models = LoadModels.of([one.peers for one in references])
        self._armed = np.array([one.model is not None for one in references], dtype=bool)
        return references

    def _limits(self, references: Sequence[Reference]) -> tuple[Limits, Limits]:
        about = f"{self._past.day} {self._past.size}"
        if self._known is not None and self._known[0] == about:
            return self._known[1:]
        named = self.targets.select(KEY)
        own = limits_of(
            self._past, named, self._pools, [one.model for one in references], (LEVEL, CHANGE)
        )
        peer = limits_of(
            self._past,
            named,
            self._pools,
            [one.peers for one in references],
            (PEER_LEVEL, PEER_CHANGE),
        )
        self._known = about, own, peer
        return own, peer

    def _speeds(self, at: int) -> None:
        """Speeds and their windows from a minute on; they are indexed from there."""
        first = at
        values = self.load[:, first:]
        peers, above, below, beyond = self._models.ln_speed(values)
        here = self.why[:, first:]
        here[np.isin(here, BEYOND_MODEL)] = COMPLETE
        here[here == COMPLETE] = beyond[:, LOOKBACK:][here == COMPLETE]
        off = ~self._armed
        others = np.full_like(peers, np.nan)
        for rows in self._groups:
            others[rows] = of_others(peers[rows])
        self._first = first
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
        shape = (len(self.targets), stop - start)
        slower, fresh, than_peers, fresh_peers = (np.zeros(shape, dtype=bool) for _ in range(4))
        why = self.why[:, start:stop]
        clean = self._usable[:, start:stop] & self._settled[:, start:stop]
        # a model that is being learnt takes the work that it never saw: the next one has seen it
        sound = np.isin(why, BEYOND_MODEL) & (why != SATURATED) | (why == COMPLETE)
        missing = np.full(shape, None, dtype=object)
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
                missing[:, k] = self._missing(references)
        here = slice(start - self._first, stop - self._first)
        self._count(here, clean & (why == COMPLETE))
        self.output.write(
            slice(start, stop),
            here,
            references,
            missing,
            (self._own_past, self._peers),
            (own, peer),
            (slower, fresh, than_peers, fresh_peers),
            self._beyond[:, here],
            self._pool[:, here],
        )

    def _count(self, here: slice, clean: Flags) -> None:
        """What was usual in clean minutes."""
        for name, values in (
            (LEVEL, self._own_past.bound),
            (CHANGE, self._own_past.change),
            (PEER_LEVEL, self._peers.bound),
            (PEER_CHANGE, self._peers.change),
        ):
            of_part = values[:, here]
            target, minute = np.nonzero(clean & ~np.isnan(of_part))
            if len(target):
                self._counted.append((self._slots[name][target], of_part[target, minute]))

    def _study(self, minute: int, wanted: Flags) -> None:
        """Give clean minutes to the learners of their pools."""
        for rows in self._groups:
            inside = rows[wanted[rows]]
            if len(inside):
                pool = self._pools[rows[0]]
                learner = self._learners.get(pool, Learner())
                if not learner.done:
                    self._learners[pool] = learner.with_minute(
                        self.load[inside, LOOKBACK + minute],
                        float(self._scrapes[inside, minute].sum()),
                        self._numbers[inside] * 2**24 + self._seconds(minute) // BLOCK_SECONDS,
                    )

    def _missing(self, references: Sequence[Reference]) -> Texts:
        """Why there is no model, target by target."""
        arming: dict[str, str] = {}
        shared = {self._pools[rows[0]] for rows in self._groups if len(rows) > 1}
        reasons = []
        for one, pool in zip(references, self._pools, strict=True):
            if one.learning and pool not in arming:
                whose = " of its pool" if pool in shared else ""
                arming[pool] = self._learners.get(pool, Learner()).arming(whose)
            reasons.append(f"{one.missing}{arming[pool]}" if one.learning else one.missing)
        return np.array(reasons, dtype=object)

    @property
    def _untaught(self) -> bool:
        """Whether somebody without a pin is of a pool that has learnt nothing yet."""
        return any(
            key is None and pool not in self._learners
            for key, pool in zip(self._keys, self._pools, strict=True)
        )

    @property
    def _learning(self) -> Flags:
        """Who is of a pool in which somebody has no pin.

        The others count too: one that joins slow and is its own reference is never found.
        """
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
        keys = self.targets.with_columns(reference=pl.Series(self._keys, dtype=pl.String))
        arrays = self._memory.targets.with_arrays(
            load=np.ascontiguousarray(self.load[:, self._minutes :]),
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
