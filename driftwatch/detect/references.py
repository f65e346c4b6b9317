"""What was learnt, as documents: one per target or pool and kind, with the time it was learnt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from driftwatch.detect.speed.model import StepTimeModel
from driftwatch.model import TargetKey

Kind = Literal["speed", "hour", "trend", "lengths", "last_days"]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class PoolSpeed(_Document):
    """``speed`` of a pool: the step-time model of its own minutes, used without a baseline."""

    model: StepTimeModel | None = None
    missing: str | None = None  # what a model still needs, in words
    since: datetime  # end of the pool's first minute
    stage: int = 0  # hours of the pool's minutes that it was fitted on


class Loss(_Document):
    """A server that is slower, at a full hour."""

    before: float  # ln r before the loss
    loss: float  # how much ln r fell, above 0
    own: float = 0.0  # ln r of its last half hour before: the loss is measured against it
    compared_with: str = ""  # id of the model; against another one the loss is unknown


class Day(_Document):
    """The hours of a UTC day of one server so far."""

    day: date
    speeds: tuple[float, ...] = ()  # medians of ln r of its hours, where known
    compared_with: str = ""  # which model the last of them was compared with
    # sum and count of prompt tokens, the same of generation tokens
    lengths: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    hours: int = 0  # that were scraped
    limited_minutes: int = 0  # in which a batch limit held requests back


class PoolHour(_Document):
    """``hour`` of a pool: what detectors keep at the end of an hour."""

    slower: dict[str, Loss] = {}  # by text of the key
    slower_than_pool: dict[str, Loss] = {}
    days: dict[str, Day] = {}


class Trend(_Document):
    """``trend`` of a target: its days, and the slope of their medians of ln r."""

    days: tuple[tuple[date, float, str], ...] = ()  # day, median, which model it was compared with
    slope: float | None = None  # of ln r, over 14 days
    lower: float | None = None  # of its 95 % interval
    upper: float | None = None
    creeps: bool | None = None


class DayLengths(_Document):
    """``lengths`` of a target: the last whole day against the baseline."""

    prompt_tokens_ratio: float | None = None  # of means
    generation_tokens_ratio: float | None = None
    moved: bool | None = None
    days: int = 0  # in a row that moved and were limited


class LastDays(_Document):
    """``last_days`` of a target without a baseline: a day and :data:`MEASURES` of
    :mod:`driftwatch.detect.last_days` in each row.
    """

    days: tuple[tuple[date, float | None, float | None, float | None, float | None], ...] = ()


_DOCUMENTS: Mapping[str, type[_Document]] = {
    "speed": PoolSpeed,
    "hour": PoolHour,
    "trend": Trend,
    "lengths": DayLengths,
    "last_days": LastDays,
}
_NO_TREND, _NO_DAY, _NO_DAYS = Trend(), DayLengths(), LastDays()
Document = PoolSpeed | PoolHour | Trend | DayLengths | LastDays


@dataclass(frozen=True, slots=True)
class Reference:
    """One document."""

    kind: Kind
    pool: str
    key: TargetKey | None  # whose; None = the pool's
    learnt_at: datetime
    document: Document

    @property
    def place(self) -> tuple[str, str, TargetKey | None]:
        """Kind and owner: a newer document of the same place replaces it."""
        return self.kind, self.pool, self.key


@dataclass(frozen=True)
class References:
    """The references in force: at most one per kind and pool or target."""

    every: Mapping[tuple[str, str, TargetKey | None], Reference] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Reference]:
        return iter(self.every.values())

    def with_more(self, more: Sequence[Reference]) -> References:
        """These, with newer documents in place of older ones of the same kind and owner."""
        return References({**self.every, **{one.place: one for one in more}}) if more else self

    def without(self, keys: Iterable[TargetKey], *, keep_days: bool = False) -> References:
        """Without these targets; ``keep_days``: they may come back, and keep their own days."""
        gone = set(keys)
        if not gone:
            return self
        texts = {key.text for key in gone}
        kept = {}
        for place, one in self.every.items():
            document = one.document
            if one.key in gone and not (keep_days and one.kind == "last_days"):
                continue
            if isinstance(document, PoolHour):
                parts = {
                    name: {k: v for k, v in getattr(document, name).items() if k not in texts}
                    for name in ("slower", "slower_than_pool", "days")
                }
                one = Reference(one.kind, one.pool, one.key, one.learnt_at, PoolHour(**parts))
            kept[place] = one
        return References(kept)

    def without_days_before(self, before: datetime) -> References:
        """Without own days to which none was added since a time."""
        old = {k for k, v in self.every.items() if v.kind == "last_days" and v.learnt_at < before}
        return References({k: v for k, v in self.every.items() if k not in old}) if old else self

    def speed(self, pool: str) -> tuple[PoolSpeed, datetime] | None:
        """What a pool has learnt of its speed, and when."""
        found = self.every.get(("speed", pool, None))
        if found is None or not isinstance(found.document, PoolSpeed):
            return None
        return found.document, found.learnt_at

    def hour(self, pool: str) -> tuple[PoolHour, datetime] | None:
        """What a pool's last hour left, and when it ended."""
        found = self.every.get(("hour", pool, None))
        if found is None or not isinstance(found.document, PoolHour):
            return None
        return found.document, found.learnt_at

    def trend(self, pool: str, key: TargetKey) -> Trend:
        """A target's trend."""
        found = self.every.get(("trend", pool, key))
        return found.document if found and isinstance(found.document, Trend) else _NO_TREND

    def lengths(self, pool: str, key: TargetKey) -> DayLengths:
        """A target's last whole day."""
        found = self.every.get(("lengths", pool, key))
        return found.document if found and isinstance(found.document, DayLengths) else _NO_DAY

    def last_days(self, pool: str, key: TargetKey) -> LastDays:
        """A target's own days."""
        found = self.every.get(("last_days", pool, key))
        return found.document if found and isinstance(found.document, LastDays) else _NO_DAYS


def document_from(kind: str, text: str) -> Document:
    """A stored document.

    Raises ValueError: it is no document of this kind.
    """
    document = _DOCUMENTS[kind].model_validate_json(text)
    assert isinstance(document, Document)  # noqa: S101
    return document


def changes_of(
    before: References, after: References
) -> tuple[list[Reference], list[tuple[str, str, TargetKey | None]]]:
    """New or changed references, and the places of those that are gone."""
    new = [one for place, one in after.every.items() if before.every.get(place) is not one]
    return new, [place for place in before.every if place not in after.every]
