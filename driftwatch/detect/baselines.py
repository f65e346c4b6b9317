"""Baselines: windows that a person pinned as good, or accepted proposals.

A baseline belongs to one target or to a pool of identical configuration. It holds what was measured
in its window, the load model fitted there, and the fingerprint of what ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Literal

import polars as pl

from driftwatch.detect.reference import no_reference
from driftwatch.detect.speed.model import StepTimeModel
from driftwatch.model import Fingerprint


@dataclass(frozen=True, slots=True)
class Baseline:
    """One baseline."""

    id: str  # short and unique
    scope: Literal["target", "pool"]  # what it is about
    instance: str | None  # of a target's baseline, else None
    engine: str | None  # of a target's baseline, else None
    pool: str  # the pool it belongs to
    since: datetime  # start of the window
    until: datetime  # its end
    accepted_by: str  # who; "provisional" where driftwatch took its own proposal
    accepted_at: datetime  # when
    why: str  # why this stretch is good, in words
    fingerprint: Fingerprint = field(default_factory=Fingerprint)  # of what ran
    model: StepTimeModel | None = None  # the load model; None where the window cannot carry one
    arming: str | None = None  # what a model still needs; None where there is one
    # one row of :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`
    reference: pl.DataFrame = field(default_factory=no_reference)


@dataclass(frozen=True)
class Baselines:
    """The baselines in force: at most one per target and one per pool."""

    # in order of acceptance; of two with the same scope the later one holds
    every: Sequence[Baseline] = ()
    # (id, instance, engine): targets of another identity, for which the baseline is not in force
    not_for: frozenset[tuple[str, str, str]] = frozenset()

    @cached_property
    def _by_scope(self) -> Mapping[tuple[str, ...], Baseline]:
        """Instance and engine, or pool → baseline, for one look-up a target."""
        return {
            (one.pool,) if one.scope == "pool" else (one.instance or "", one.engine or ""): one
            for one in self.every
        }

    def naming(self, instance: str, engine: str, pool: str) -> tuple[Baseline, ...]:
        """The baselines that name the target or its pool, in force or not, its own first."""
        baselines = (self._by_scope.get((instance, engine)), self._by_scope.get((pool,)))
        return tuple(baseline for baseline in baselines if baseline is not None)

    def of_target(self, instance: str, engine: str, pool: str) -> Baseline | None:
        """The target's own baseline, else its pool's; None where neither is there and in force."""
        for baseline in self.naming(instance, engine, pool):
            if (baseline.id, instance, engine) not in self.not_for:
                return baseline
        return None
