"""Baselines: windows that a person accepted as good.

A baseline belongs to one target or to a pool of identical configuration. It holds what was measured
in its window, the load model fitted there, and the fingerprint of what ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from math import inf
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    Field,
    field_serializer,
    field_validator,
    model_validator,
)

from driftwatch.detect.reference import REFERENCE_SCHEMA
from driftwatch.detect.speed.model import StepTimeModel
from driftwatch.documents import Document
from driftwatch.model import Fingerprint, TargetKey

_Time = Annotated[AwareDatetime, AfterValidator(lambda at: at.astimezone(UTC))]
_Text = Annotated[str, Field(max_length=1000)]
# JSON has no infinity, which every histogram's last edge is.
_INF = "+Inf"


class Baseline(Document):
    """One baseline, as it is used, stored and printed."""

    id: str = Field(min_length=4, max_length=12)  # short and unique
    scope: Literal["target", "pool"]
    instance: str | None = None  # of a target's baseline, else None
    engine: str | None = None  # of a target's baseline, else None
    pool: str  # the pool it belongs to
    since: _Time  # start of the window
    until: _Time  # its end
    # a person; "provisional" where driftwatch took its own proposal
    accepted_by: str = Field(min_length=1, max_length=100)
    accepted_at: _Time  # when
    why: _Text = ""  # why this stretch is good, in words
    fingerprint: Fingerprint = Field(default_factory=Fingerprint)  # of what ran
    load_model: StepTimeModel | None = None  # None where the window cannot carry one
    arming: _Text | None = None  # what a load model still needs; None where there is one
    # known values of a row of :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`, without names
    reference: Mapping[str, Any] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        named = self.instance is not None and self.engine is not None
        if (self.scope == "target") != named or (self.instance is None) != (self.engine is None):
            raise ValueError("a target's names instance and engine, a pool's names neither")
        if self.since >= self.until:
            raise ValueError("its window ends before it begins")
        return self

    @property
    def subject(self) -> str:
        """``host:8000``, or the pool's name; it has one baseline in force."""
        one = self.instance
        return self.pool if one is None else TargetKey(one, self.engine or "0").text

    @property
    def why_no_speed(self) -> str | None:
        """Why no speed is judged against it; None where it has a model with windows."""
        if self.load_model is not None and self.load_model.like_work is not None:
            return None
        return self.arming or "accept it anew"

    @property
    def length(self) -> timedelta:
        """Length of the window."""
        return self.until - self.since

    @field_validator("reference")
    @classmethod
    def _read(cls, values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        for name in values or ():
            if name not in REFERENCE_SCHEMA:
                raise ValueError(f"unknown column {name} in the reference")
        return values and {name: _read(name, value) for name, value in values.items()}

    @field_serializer("reference", when_used="json")
    def _write(self, values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return values and {
            name: [_INF if one == inf else one for one in value]
            if isinstance(value, list)
            else value
            for name, value in values.items()
        }


def _read(name: str, value: Any) -> Any:
    """A value of the reference from JSON, or as it is."""
    if isinstance(value, list):
        return [float(one) for one in value]
    if name in ("since", "until"):
        return datetime.fromisoformat(str(value))
    return value


@dataclass(frozen=True)
class Baselines:
    """The baselines in force: at most one per target and one per pool."""

    # in order of acceptance; of two with the same scope the later one holds
    every: Sequence[Baseline] = ()
    # (id, instance, engine): targets of another identity, for which the baseline is not in force
    not_for: frozenset[tuple[str, str, str]] = frozenset()

    @cached_property
    def _by_scope(self) -> Mapping[tuple[str, ...], Baseline]:
        """Instance and engine, or pool → baseline."""
        return {
            (one.pool,) if one.scope == "pool" else (one.instance or "", one.engine or ""): one
            for one in self.every
        }

    def naming(self, instance: str, engine: str, pool: str) -> tuple[Baseline, ...]:
        """The baselines that name the target or its pool, in force or not, its own first."""
        baselines = (self._by_scope.get((instance, engine)), self._by_scope.get((pool,)))
        return tuple(baseline for baseline in baselines if baseline is not None)

    def of_target(self, instance: str, engine: str, pool: str) -> Baseline | None:
        """The target's own baseline, else its pool's; None where neither is in force."""
        for baseline in self.naming(instance, engine, pool):
            if (baseline.id, instance, engine) not in self.not_for:
                return baseline
        return None
