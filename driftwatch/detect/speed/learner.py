"""Which step-time model each target is compared with: a baseline's, or what its pool has learnt.

A pool's own is provisional, and enough to compare peers with. It is fitted as soon as the clean
minutes suffice, again when two, six, 24 and 48 hours of them are there, and then no more. The
minutes are thinned as they grow, so that a pool costs at most ``MOST · 60`` bytes (58 kB).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from driftwatch.arrays import Integers, Singles, Texts
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.output import Schema
from driftwatch.detect.speed.load import REQUESTS, WIDTH, Unknown
from driftwatch.detect.speed.load_model import MIN_MINUTES, LoadModel, missing, model_from, model_of

MOST = 960  # minutes (of one target each) that are kept
A_MINUTE = 4  # targets of a pool whose minute is taken
RUN = 10  # minutes that stay or go together: within them the speed hardly moves
STAGES = (120, 360, 1440, 2880)  # clean minutes after which the model is fitted anew

_ARRAYS = {"values": pl.Float32, "numbers": pl.Int64, "blocks": pl.Int64}
_SCALARS = {"minutes": pl.Int64, "scrapes": pl.Float64, "stride": pl.Int64, "fits": pl.Int64}
SCHEMA: Schema = {
    "pool": pl.String,
    **{name: pl.List(dtype) for name, dtype in _ARRAYS.items()},
    **_SCALARS,
    "step_time_model": pl.String,
}


def _no_numbers() -> Integers:
    return np.empty(0, dtype=np.int64)


def _no_values() -> Singles:
    return np.empty((0, WIDTH), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Learner:
    """What one pool has learnt."""

    # (kept minute of a target, 12), as in :class:`driftwatch.detect.speed.load.Load`
    values: Singles = field(default_factory=_no_values)
    # beside them, the number of the clean minute
    numbers: Integers = field(default_factory=_no_numbers)
    # beside them, which target and ten minutes
    blocks: Integers = field(default_factory=_no_numbers)
    minutes: int = 0  # clean minutes seen
    scrapes: float = 0.0  # in them, of all targets
    stride: int = 1  # every so many minutes one is kept
    fits: int = 0  # how often a model was fitted
    model: LoadModel | None = None  # the last one

    def with_minute(self, values: Singles, scrapes: float, blocks: Integers) -> Learner:
        """One more minute of the targets that were clean in it, by instance and engine.

        ``blocks``: which target and ten minutes each is of.
        """
        number, stride = self.minutes, self.stride
        rows, numbers, ids = self.values, self.numbers, self.blocks
        if number // RUN % stride == 0:
            some = slice(None, None, -(-len(values) // A_MINUTE))
            rows = np.concatenate((rows, values[some]))
            ids = np.concatenate((ids, blocks[some]))
            numbers = np.concatenate((numbers, np.full(len(rows) - len(numbers), number)))
            while len(rows) > MOST:
                stride *= 2
                stays = numbers // RUN % stride == 0
                rows, numbers, ids = rows[stays], numbers[stays], ids[stays]
        return replace(
            self,
            values=rows,
            numbers=numbers,
            blocks=ids,
            minutes=number + 1,
            scrapes=self.scrapes + scrapes,
            stride=stride,
        )

    @property
    def done(self) -> bool:
        """Whether its model is fitted no more."""
        return self.fits > len(STAGES)

    @property
    def ready(self) -> bool:
        """Whether there are enough minutes for a first model, or for the next one."""
        if self.model is None:
            return self.minutes >= MIN_MINUTES
        return not self.done and self.minutes >= STAGES[self.fits - 1]

    def fitted(self) -> Learner:
        """With a model of the minutes so far, where they can carry one."""
        result = model_of(self.values, self.scrapes, self.blocks, self.minutes)
        if not isinstance(result, LoadModel):
            return self
        model = replace(result, scrapes=int(self.scrapes), minutes=self.minutes)
        fits = 1 + sum(self.minutes >= stage for stage in STAGES)
        last = fits > len(STAGES)
        return replace(
            self,
            model=model,
            fits=fits,
            values=_no_values() if last else self.values,
            numbers=self.numbers[:0] if last else self.numbers,
            blocks=self.blocks[:0] if last else self.blocks,
        )

    def unknown(self, head: str, *, shared: bool = False) -> Unknown:
        """What a first model still needs; ``shared``: its minutes are of several targets."""
        spread = None
        if len(self.values):
            low, high = np.quantile(self.values[:, REQUESTS].astype(np.float64), (0.05, 0.95))
            spread = float(high / low) if low > 0 else None
        needs = missing(self.minutes, spread, shared=shared) or "fitted within 5 min"
        return Unknown(LEARNING, f"{head}: {needs}", max(MIN_MINUTES - self.minutes, 0.0))


def learners_frame(learners: Mapping[str, Learner]) -> pl.DataFrame:
    """One row per pool."""
    rows = []
    for pool, one in sorted(learners.items()):
        row = {"pool": pool, **{name: getattr(one, name) for name in _SCALARS}}
        row |= {name: getattr(one, name).ravel().tolist() for name in _ARRAYS}
        row["step_time_model"] = None if one.model is None else json.dumps(one.model.document())
        rows.append(row)
    return pl.DataFrame(rows, schema=SCHEMA)


def learners_from(frame: pl.DataFrame) -> dict[str, Learner]:
    """What :func:`learners_frame` gave; pools that an earlier release stored learn anew."""
    learners = {}
    for row in frame.iter_rows(named=True) if frame.columns == list(SCHEMA) else ():
        model = row["step_time_model"]
        learners[row["pool"]] = Learner(
            values=np.array(row["values"], dtype=np.float32).reshape(-1, WIDTH),
            numbers=np.array(row["numbers"], dtype=np.int64),
            blocks=np.array(row["blocks"], dtype=np.int64),
            **{name: row[name] for name in _SCALARS},
            model=None if model is None else model_from(json.loads(model)),
        )
    return learners


PROVISIONAL = "provisional"
LEARNING, NO_BASELINE = "learning", "no_baseline"
# why a pool that is learning has no verdict: its own model will be the reference, or a person's
_HEADS = {True: "not judged yet", False: "no baseline in use yet"}
_PROPOSED = Unknown(NO_BASELINE, "no baseline in use yet: driftwatch baseline propose has one")


@dataclass(frozen=True, slots=True)
class Reference:
    """Of one target."""

    model: LoadModel | None  # of a baseline, or provisional
    peers: LoadModel | None  # by which peers are compared: the same, else what the pool has learnt
    key: str | None  # which model it is
    name: str | None  # own baseline, pool's baseline or provisional; None without a model
    unknown: Unknown | None = None  # why there is no model; None where there is, or a pool learns


def references_of(
    targets: pl.DataFrame, baselines: Baselines, learners: Mapping[str, Learner], *, accepts: bool
) -> list[Reference]:
    """The reference of each target (instance, engine, pool).

    ``accepts``: whether what a pool has learnt is a reference without anybody's word.
    """
    learnt = {pool: _learnt(pool, one, accepts=accepts) for pool, one in learners.items()}
    nothing = Reference(None, None, None, None)
    references = []
    for instance, engine, pool in targets.select("instance", "engine", "pool").iter_rows():
        baseline = baselines.of_target(instance, engine, pool)
        own = learnt.get(pool, nothing)
        references.append(own if baseline is None else _of_baseline(baseline, own))
    return references


def _of_baseline(baseline: Baseline, learnt: Reference) -> Reference:
    if baseline.model is None:
        why = f"the baseline in use has no load model: {baseline.arming or 'reason unknown'}"
        return Reference(None, learnt.peers, learnt.key, None, Unknown(LEARNING, why))
    name = "own baseline" if baseline.scope == "target" else "pool's baseline"
    if baseline.accepted_by == PROVISIONAL:
        name = PROVISIONAL
    return Reference(baseline.model, baseline.model, baseline.id, name)


def _learnt(pool: str, one: Learner, *, accepts: bool) -> Reference:
    if one.model is None:
        return Reference(None, None, None, None)
    key = f"{PROVISIONAL}:{pool}/{one.fits}"
    if accepts:
        return Reference(one.model, one.model, key, PROVISIONAL)
    return Reference(None, one.model, key, None, _PROPOSED)


def unknowns_of(
    references: Sequence[Reference],
    pools: Sequence[str],
    learners: Mapping[str, Learner],
    *,
    accepts: bool,
) -> Texts:
    """Why targets have no model, an :class:`Unknown` each; None where there is one."""
    of_pools: dict[str, Unknown] = {}
    counts = Counter(pools)
    reasons: Texts = np.full(len(pools), None, dtype=object)
    for row, (one, pool) in enumerate(zip(references, pools, strict=True)):
        if one.model is None and one.unknown is None and pool not in of_pools:
            learner = learners.get(pool, Learner())
            of_pools[pool] = learner.unknown(_HEADS[accepts], shared=counts[pool] > 1)
        reasons[row] = None if one.model is not None else one.unknown or of_pools[pool]
    return reasons
