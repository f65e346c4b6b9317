"""Learnt documents: one per kind and target or pool, with the time it was learnt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cached_property
from typing import ClassVar, TypeVar

import polars as pl
from pydantic import BaseModel, ConfigDict

from driftwatch.collect.schema import KEY
from driftwatch.detect.lengths import LENGTHS
from driftwatch.detect.speed.model import StepTimeModel
from driftwatch.model import TargetKey


class Document(BaseModel):
    """A learnt document; the store keeps it as JSON."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    kind: ClassVar[str]


class PoolSpeed(Document):
    """The step-time model of a pool's own minutes, used without a baseline."""

    kind = "speed"
    model: StepTimeModel | None = None
    missing: str | None = None  # what a model still needs, in words
    since: datetime  # end of the pool's first minute
    stage: int = 0  # hours of the pool's minutes that it was fitted on


class Loss(BaseModel):
    """The loss of a slower server, at a full hour."""

    model_config = ConfigDict(frozen=True)

    before: float  # ln r before the loss
    loss: float  # how much ln r fell, above 0
    own: float = 0.0  # ln r of the half hour before: the loss is measured against it
    compared_with: str = ""  # id of the model; against another one the loss is unknown
    is_over: bool = False  # regained, and kept while the baseline has no like work


class Day(BaseModel):
    """The hours of a UTC day of one server so far."""

    model_config = ConfigDict(frozen=True)

    day: date
    # of its hours, where known: median of ln r, and which model it was compared with
    speeds: tuple[tuple[float, str], ...] = ()
    # sum and count of prompt tokens, the same of generation tokens
    lengths: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    hours: int = 0  # that were scraped
    limited_minutes: int = 0  # in which a batch limit held requests back


class PoolHour(Document):
    """Losses and days of a pool's servers at the end of an hour, by text of the key."""

    kind = "hour"
    slower: dict[str, Loss] = {}
    slower_than_pool: dict[str, Loss] = {}
    days: dict[str, Day] = {}

    def without(self, keys: Collection[str]) -> PoolHour:
        """Without these targets."""
        own = {name: {k: v for k, v in of.items() if k not in keys} for name, of in self}
        return PoolHour(**own)


class TargetDays(Document):
    """The last days of a target, and what follows from them."""

    kind = "days"
    # day, median of ln r, which model it was compared with
    speeds: tuple[tuple[date, float, str], ...] = ()
    # the evidence columns that they decide
    speed_slope_14d_ratio: float | None = None
    speed_slope_14d_upper_ratio: float | None = None
    latency_creeps: bool | None = None
    prompt_tokens_day_ratio: float | None = None
    generation_tokens_day_ratio: float | None = None
    baseline_lengths_moved: bool | None = None
    moved_days: int = 0  # in a row that moved and were limited
    # of days without a baseline: day, and :data:`MEASURES`
    measures: tuple[tuple[date, tuple[float | None, ...]], ...] = ()


# Evidence columns that days decide, the same for all minutes; fields of TargetDays.
DAY_COLUMNS: Mapping[str, type[pl.DataType]] = {
    **{f"{name}_day_ratio": pl.Float64 for name in LENGTHS},
    "baseline_lengths_moved": pl.Boolean,
    **{f"speed_slope_14d_{part}ratio": pl.Float64 for part in ("", "upper_")},
    "latency_creeps": pl.Boolean,
}
# Of TargetDays.measures, in this order.
MEASURES = (
    "tokens_per_output",
    "spec_decode_acceptance_ratio",
    "prefix_cache_hit_ratio",
    "given_up_ratio",
)
KINDS: Mapping[str, type[Document]] = {one.kind: one for one in (PoolSpeed, PoolHour, TargetDays)}
D = TypeVar("D", bound=Document)
Place = tuple[str, str, TargetKey | None]
_NO_DAYS = TargetDays()


@dataclass(frozen=True, slots=True)
class Reference:
    """A learnt document with its owner."""

    pool: str
    key: TargetKey | None  # None = the pool's
    learnt_at: datetime
    document: Document

    @property
    def place(self) -> Place:
        """Kind and owner: a newer document of the same place replaces it."""
        return self.document.kind, self.pool, self.key


@dataclass(frozen=True)
class References:
    """The references in force: at most one per kind and pool or target."""

    every: Mapping[Place, Reference] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Reference]:
        return iter(self.every.values())

    def with_newer(self, more: Sequence[Reference]) -> References:
        """These, with newer documents in place of older ones of the same kind and owner."""
        return References({**self.every, **{one.place: one for one in more}}) if more else self

    def without(self, keys: Iterable[TargetKey]) -> References:
        """Without these targets' losses and hours; their days stay, for they may come back."""
        gone = {key.text for key in keys}
        if not gone:
            return self
        return References(
            {
                place: replace(one, document=one.document.without(gone))
                if isinstance(one.document, PoolHour)
                else one
                for place, one in self.every.items()
            }
        )

    def without_days_before(self, before: datetime) -> References:
        """Without the days of targets that had none since a time."""
        days = (one for one in self if isinstance(one.document, TargetDays))
        old = {one.place for one in days if one.learnt_at < before}
        return References({k: one for k, one in self.every.items() if k not in old})

    def find(self, kind: type[D], pool: str) -> tuple[D, datetime] | None:
        """A pool's document of a kind, and when it was learnt; None = none."""
        found = self.every.get((kind.kind, pool, None))
        if found is None or not isinstance(found.document, kind):
            return None
        return found.document, found.learnt_at

    def days(self, pool: str, key: TargetKey) -> TargetDays:
        """A target's days."""
        found = self.every.get((TargetDays.kind, pool, key))
        return found.document if found and isinstance(found.document, TargetDays) else _NO_DAYS

    @cached_property
    def day_columns(self) -> pl.DataFrame:
        """A row per target: instance, engine, pool, :data:`DAY_COLUMNS`."""
        rows = [
            (*one.key, one.pool, *(getattr(one.document, name) for name in DAY_COLUMNS))
            for one in self
            if one.key is not None and isinstance(one.document, TargetDays)
        ]
        keys = dict.fromkeys((*KEY, "pool"), pl.String)
        return pl.DataFrame(rows, keys | dict(DAY_COLUMNS), orient="row")

    @cached_property
    def measured_days(self) -> pl.DataFrame:
        """A row per target and day: instance, engine, day, :data:`MEASURES`.

        A target with documents under two pools (one was renamed) has those of the newer one.
        """
        newest = {
            one.key: one.document.measures
            for one in sorted(self, key=lambda one: one.learnt_at)
            if isinstance(one.document, TargetDays) and one.document.measures and one.key
        }
        rows = [(*key, day, *of) for key, days in newest.items() for day, of in days]
        names = dict.fromkeys(KEY, pl.String) | {"day": pl.Date}
        return pl.DataFrame(rows, names | dict.fromkeys(MEASURES, pl.Float64), orient="row")


def changes_of(before: References, after: References) -> tuple[list[Reference], list[Place]]:
    """New or changed references, and the places of those that are gone."""
    new = [one for place, one in after.every.items() if before.every.get(place) is not one]
    return new, [place for place in before.every if place not in after.every]
