"""Which step-time model each target is compared with: a pin's, or what its pool has learnt.

A pool's own is provisional, and enough to compare peers with. It is fitted as soon as the clean
minutes suffice, again when two, six, 24 and 48 hours of them are there, and then no more. The
minutes are thinned as they grow, so that a pool costs at most ``MOST · 60`` bytes (58 kB).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from driftwatch.arrays import Integers, Singles
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.speed.load import REQUESTS, WIDTH
from driftwatch.detect.speed.load_model import MIN_MINUTES, LoadModel, missing, model_from, model_of

MOST = 960  # minutes (of one target each) that are kept
A_MINUTE = 4  # targets of a pool whose minute is taken
RUN = 10  # minutes that stay or go together: within them the speed hardly moves
STAGES = (120, 360, 1440, 2880)  # clean minutes after which the model is fitted anew

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "pool": pl.String,
    "values": pl.List(pl.Float32),
    "taken": pl.List(pl.Int64),
    "blocks": pl.List(pl.Int64),
    "minutes": pl.Int64,
    "scrapes": pl.Float64,
    "stride": pl.Int64,
    "fits": pl.Int64,
    "law": pl.String,
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
        """One more minute.

        ``values``: of the targets that were clean in it, by instance and engine; one at least;
        ``scrapes``: of these; ``blocks``: which target and ten minutes each is of.
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

    def arming(self, whose: str = "") -> str:
        """What a first model still needs; ``whose`` minutes, where several targets give."""
        spread = None
        if len(self.values):
            low, high = np.quantile(self.values[:, REQUESTS].astype(np.float64), (0.05, 0.95))
            spread = float(high / low) if low > 0 else None
        return missing(self.minutes, spread, whose) or "fitted within 5 min"


def learners_frame(learners: dict[str, Learner]) -> pl.DataFrame:
    """One row per pool."""
    return pl.DataFrame(
        [
            (
                pool,
                one.values.ravel().tolist(),
                one.numbers.tolist(),
                one.blocks.tolist(),
                one.minutes,
                one.scrapes,
                one.stride,
                one.fits,
                None if one.model is None else json.dumps(one.model.document()),
            )
            for pool, one in sorted(learners.items())
        ],
        schema=SCHEMA,
        orient="row",
    )


def learners_from(frame: pl.DataFrame) -> dict[str, Learner]:
    """What :func:`learners_frame` gave."""
    return {
        row["pool"]: Learner(
            np.array(row["values"], dtype=np.float32).reshape(len(row["taken"]), WIDTH),
            np.array(row["taken"], dtype=np.int64),
            np.array(row["blocks"], dtype=np.int64),
            row["minutes"],
            row["scrapes"],
            row["stride"],
            row["fits"],
            None if row["law"] is None else model_from(json.loads(row["law"])),
        )
        for row in frame.iter_rows(named=True)
    }


@dataclass(frozen=True, slots=True)
class Reference:
    """Of one target."""

    model: LoadModel | None  # of a pin, or provisional; None where nothing is pinned
    peers: (
        LoadModel | None
    )  # the model that peers are compared by: the same, else what the pool has learnt
    key: str | None  # which model it is
    name: str | None  # own pin, pool pin or provisional; None without a model
    # why there is no model; where a pool is still learning, what comes before that
    missing: str | None
    learning: bool = False  # nothing but its pool's learner can say what is missing


def references_of(
    targets: pl.DataFrame, baselines: Baselines, learners: Mapping[str, Learner], *, accepts: bool
) -> list[Reference]:
    """The reference of each target.

    ``targets``: instance, engine, pool; ``pins``: in force; ``learners``: what pools have learnt;
    ``accepts``: whether what a pool has learnt is a reference without anybody's word.
    """
    learnt = {pool: _learnt(pool, one, accepts=accepts) for pool, one in learners.items()}
    nothing = _learnt("", Learner(), accepts=accepts)
    references = []
    for instance, engine, pool in targets.select("instance", "engine", "pool").iter_rows():
        baseline = baselines.of_target(instance, engine, pool)
        own = learnt.get(pool, nothing)
        references.append(own if baseline is None else _pinned(baseline, own))
    return references


def _pinned(baseline: Baseline, learnt: Reference) -> Reference:
    if baseline.model is None:
        missing = f"arming: {baseline.arming or 'the baseline has no load model'}"
        return Reference(None, learnt.peers, learnt.key, None, missing)
    name = "own pin" if baseline.scope == "target" else "pool pin"
    if baseline.accepted_by == "provisional":
        name = "provisional"
    return Reference(baseline.model, baseline.model, baseline.id, name, None)


def _learnt(pool: str, one: Learner, *, accepts: bool) -> Reference:
    if one.model is None:
        prefix = "arming: " if accepts else "no pin; arming: "
        return Reference(None, None, None, None, prefix, learning=True)
    key = f"{PROVISIONAL}{pool}/{one.fits}"
    if accepts:
        return Reference(one.model, one.model, key, "provisional", None)
    missing = "no pin, and enough minutes for one: driftwatch baseline propose"
    return Reference(None, one.model, key, None, missing)


PROVISIONAL = "provisional:"
