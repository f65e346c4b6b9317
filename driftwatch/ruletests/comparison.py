"""Expectations against what driftwatch did: what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from driftwatch.incidents.incident import Incident
from driftwatch.ruletests.cases import Expectation
from driftwatch.ruletests.reader import tree_of
from driftwatch.ruletests.timeline import Subject, Timeline


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as expected; a text or a list of them on each side."""

    field: str
    expected: tuple[str, ...]
    actual: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """An expectation that does not hold."""

    line: int  # of the file
    subject: str
    at_seconds: float
    differences: tuple[Difference, ...]


def compared(one: Expectation, line: int, timeline: Timeline) -> Failure | None:
    """What differs; None = nothing."""
    target = None if one.pool is not None else one.target or next(iter(timeline.targets), "")
    subject, at = Subject(target, one.pool), timeline.time(one.at)
    differences = [*_alerts(one, timeline.firing(subject, at), timeline.pending(subject, at))]
    if one.leaf is not None or one.path or one.missing is not None:
        differences += _walked(one, subject, at, timeline)
    if one.line_1 is not None:
        newest = next(timeline.pages(subject, at), None)
        line_1 = None if newest is None else newest.summary
        differences += _differing("line_1", one.line_1, line_1)
    seconds = (at - timeline.start).total_seconds()
    return Failure(line, subject.text, seconds, tuple(differences)) if differences else None


def _is_named(incident: Incident, one: Expectation) -> bool:
    return bool({incident.alert, incident.rule} & {*(one.alerts or ()), *one.alerts_include})


def _alerts(
    one: Expectation, firing: Mapping[str, Incident], pending: Mapping[str, float]
) -> Iterator[Difference]:
    """Alerts that should fire and do not, and those that should not.

    ``firing``: by rule id; ``pending``: alert → minute of the test in which it became true.
    """
    names = {name for i in firing.values() for name in (i.alert, i.rule)}
    absent = tuple(n for n in (*(one.alerts or ()), *one.alerts_include) if n not in names)
    others = firing if one.alerts is not None else {}
    more = tuple(rule for rule, incident in others.items() if not _is_named(incident, one))
    waiting = tuple(f"{n} pending since {pending[n]:g}m" for n in absent if n in pending)
    if absent or more:
        yield Difference("alerts", absent, (*more, *waiting))


def _walked(
    one: Expectation, subject: Subject, at: datetime, timeline: Timeline
) -> Iterator[Difference]:
    """Differences of the walk: of the minute, or of the newest page that has one."""
    if timeline.has_windows:
        pages = timeline.pages(subject, at)
        walk = next((page.diagnosis for page in pages if page.diagnosis is not None), None)
    else:
        tree = tree_of(one, timeline.book)
        walk = None if tree is None else timeline.diagnosis(subject.text, at, tree)
    if walk is None:
        yield Difference("leaf", (one.leaf,) if one.leaf else ("a diagnosis",), ("no page",))
        return
    answers = {step.node: step.answer for step in walk.path}
    if one.leaf is not None:
        yield from _differing("leaf", one.leaf, walk.leaf)
    if one.missing is not None and set(one.missing) != set(walk.missing):
        expected = tuple(name for name in one.missing if name not in walk.missing)
        actual = tuple(name for name in walk.missing if name not in one.missing)
        yield Difference("missing", expected, actual)
    elif one.missing is None and one.leaf not in (None, walk.leaf) and walk.missing:
        yield Difference("missing", (), walk.missing)
    for node, answer in one.path.items():
        yield from _differing(f"path {node}", answer, answers.get(node, "not on the path"))


def _differing(field: str, expected: str, actual: str | None) -> Iterator[Difference]:
    if expected != actual:
        yield Difference(field, (expected,), () if actual is None else (actual,))
