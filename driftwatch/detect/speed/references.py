"""Which law each target is compared with, and what is missing where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from driftwatch.detect.pins import Pin, Pins
from driftwatch.detect.speed.law import Law
from driftwatch.detect.speed.learner import Learner


@dataclass(frozen=True, slots=True)
class Reference:
    """Of one target.

    Attributes:
        law: of a pin, or provisional; None where nothing is pinned.
        twins: the law that twins are compared by: the same, else what the pool has learnt.
        key: which law it is.
        name: own pin, pool pin or provisional; None without a law.
        missing: why there is no law; where a pool is still learning, what comes before that.
        learning: nothing but its pool's learner can say what is missing.
    """

    law: Law | None
    twins: Law | None
    key: str | None
    name: str | None
    missing: str | None
    learning: bool = False


def references_of(
    targets: pl.DataFrame, pins: Pins, learners: Mapping[str, Learner], *, accepts: bool
) -> list[Reference]:
    """The reference of each target.

    Args:
        targets: instance, engine, pool.
        pins: in force.
        learners: what pools have learnt.
        accepts: whether what a pool has learnt is a reference without anybody's word.
    """
    learnt = {pool: _learnt(pool, one, accepts=accepts) for pool, one in learners.items()}
    nothing = _learnt("", Learner(), accepts=accepts)
    found = []
    for instance, engine, pool in targets.select("instance", "engine", "pool").iter_rows():
        pin = pins.of_target(instance, engine, pool)
        own = learnt.get(pool, nothing)
        found.append(own if pin is None else _pinned(pin, own))
    return found


def _pinned(pin: Pin, learnt: Reference) -> Reference:
    if pin.law is None:
        missing = f"arming: {pin.arming or 'the pin has no load model'}"
        return Reference(None, learnt.twins, learnt.key, None, missing)
    name = "own pin" if pin.scope == "target" else "pool pin"
    if pin.accepted_by == "provisional":
        name = "provisional"
    return Reference(pin.law, pin.law, pin.id, name, None)


def _learnt(pool: str, one: Learner, *, accepts: bool) -> Reference:
    if one.law is None:
        prefix = "arming: " if accepts else "no pin; arming: "
        return Reference(None, None, None, None, prefix, learning=True)
    key = f"{PROVISIONAL}{pool}/{one.fits}"
    if accepts:
        return Reference(one.law, one.law, key, "provisional", None)
    missing = "no pin, and enough minutes for one: driftwatch baseline propose"
    return Reference(None, one.law, key, None, missing)


PROVISIONAL = "provisional:"
