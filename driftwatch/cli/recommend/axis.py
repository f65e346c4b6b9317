"""The swept values of an advice along one knob."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driftwatch.recommend.advice import Advice, Candidate


@dataclass(frozen=True, slots=True)
class Point:
    """One value of the axis."""

    values: tuple[float | None, ...]  # one a knob of the axis; None = today's, which is unknown
    candidate: Candidate  # replayed with it
    now: bool  # it is today's
    advised: bool


@dataclass(frozen=True, slots=True)
class Axis:
    """Candidates over one knob (two where the advice moves two), by value."""

    knobs: tuple[str, ...]  # vLLM's names
    points: tuple[Point, ...]  # today's and those that differ from today in these knobs only
    others: tuple[Candidate, ...]  # what was swept besides


def axis_of(advice: Advice) -> Axis | None:
    """The axis; None where nothing was swept and today was not replayed."""
    today = advice.today
    swept = [c for c in advice.candidates if c.knobs]
    advised = advice.advised
    # a page's advice comes without its table
    if advised is not None and advised.knobs and not any(_is(c, advised) for c in swept):
        swept.append(advised)
    if today is None and not swept:
        return None
    knobs = _knobs(advice, swept)
    if today is None:
        points = []
    else:
        advised_today = advice.advised is not None and not advice.advised.knobs
        points = [Point(_values(advice.settings, knobs), today, True, advised_today)]
    others = []
    for candidate in swept:
        if knobs and set(candidate.knobs) <= set(knobs):
            values = _values({**advice.settings, **candidate.knobs}, knobs)
            points.append(Point(values, candidate, False, _is(candidate, advice.advised)))
        else:
            others.append(candidate)
    points.sort(key=lambda point: tuple(-1.0 if v is None else v for v in point.values))
    return Axis(knobs, tuple(points), tuple(others))


def by_knobs(candidates: Sequence[Candidate]) -> Mapping[tuple[str, ...], Sequence[Candidate]]:
    """Candidates by which knobs they move, in the order in which they come."""
    groups: dict[tuple[str, ...], list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(tuple(sorted(candidate.knobs)), []).append(candidate)
    return groups


def _knobs(advice: Advice, swept: Sequence[Candidate]) -> tuple[str, ...]:
    if advice.advised is not None and advice.advised.knobs:
        first = advice.recommendation.knob
        return tuple(sorted(advice.advised.knobs, key=lambda name: (name != first, name)))
    counted = Counter(next(iter(c.knobs)) for c in swept if len(c.knobs) == 1)
    if not counted:
        return ()
    most = max(counted.values())
    return (min(name for name, number in counted.items() if number == most),)


def _values(settings: Mapping[str, float], knobs: Sequence[str]) -> tuple[float | None, ...]:
    return tuple(settings.get(name) for name in knobs)


def _is(candidate: Candidate, advised: Candidate | None) -> bool:
    return advised is not None and dict(candidate.knobs) == dict(advised.knobs)
