"""Along which knob an advice is shown: the advised one, else the one that was swept most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driftwatch.recommend.advice import Advice, Candidate


@dataclass(frozen=True, slots=True)
class Point:
    """One value of the axis.

    Attributes:
        values: one a knob of the axis; None = today's, which is not known.
        candidate: replayed with it.
        now: it is today's.
        advised: it is what is advised.
    """

    values: tuple[float | None, ...]
    candidate: Candidate
    now: bool
    advised: bool


@dataclass(frozen=True, slots=True)
class Axis:
    """Candidates over one knob (two where the advice moves two), by value.

    Attributes:
        knobs: vLLM's names.
        points: today's and those that differ from today in these knobs only.
        others: what was swept besides.
    """

    knobs: tuple[str, ...]
    points: tuple[Point, ...]
    others: tuple[Candidate, ...]


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
    found: dict[tuple[str, ...], list[Candidate]] = {}
    for candidate in candidates:
        found.setdefault(tuple(sorted(candidate.knobs)), []).append(candidate)
    return found


def gain(now: Candidate | None, then: Candidate) -> tuple[float, float] | None:
    """Capacity over today's minus 1, of the worst and of the best variant; None = unknown."""
    if now is None:
        return None
    pairs = (
        (now.capacity_low_requests_per_second, then.capacity_low_requests_per_second),
        (now.capacity_high_requests_per_second, then.capacity_high_requests_per_second),
    )
    known = [after / before - 1 for before, after in pairs if before and after is not None]
    return (min(known), max(known)) if known else None


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
