"""Expected beside what driftwatch said: only what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from driftwatch.incidents.incident import Incident
from driftwatch.model import Diagnosis
from driftwatch.ruletests.cases import Expectation
from driftwatch.ruletests.coverage import Coverage
from driftwatch.ruletests.names import tree_of
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


@dataclass(frozen=True, slots=True)
class _Walk:
    """Where a walk ended: of a diagnosis, or of a page."""

    tree: str
    leaf: str
    answers: Mapping[str, str]  # node → answer, in order
    missing: tuple[str, ...]


@dataclass(slots=True)
class Confirmed:
    """The rules that one test's expectations confirmed, by id."""

    fired: set[str] = field(default_factory=set)
    false: set[str] = field(default_factory=set)


def compared(
    one: Expectation, line: int, timeline: Timeline, confirmed: Confirmed, coverage: Coverage
) -> Failure | None:
    """What differs, None where nothing does; what an expectation confirmed is added.

    Args:
        coverage: for walks.
    """
    subject, at = subject_of(one, timeline), timeline.time(one.at)
    firing = timeline.firing(subject, at)
    differences = [*alert_differences(one, firing)]
    if not differences:
        if one.alerts is not None or one.alerts_include:
            confirmed.fired |= {rule for rule in firing if _is_named(firing[rule], one)}
        if one.alerts is not None:
            confirmed.false |= timeline.false_rules(subject, at) - firing.keys()
    differences += _diagnosed(one, subject, at, timeline, coverage)
    if one.line_1 is not None:
        newest = next(timeline.pages(subject, at), None)
        differences += _differing("line_1", one.line_1, newest and newest.summary)
    seconds = (at - timeline.start).total_seconds()
    return Failure(line, subject.text, seconds, tuple(differences)) if differences else None


def subject_of(one: Expectation, timeline: Timeline) -> Subject:
    """Whom an expectation is about; the only target where it names none."""
    if one.pool is not None:
        return Subject(pool=one.pool)
    return Subject(target=one.target or next(iter(timeline.targets), ""))


def _is_named(incident: Incident, one: Expectation) -> bool:
    return bool({incident.alert, incident.rule} & {*(one.alerts or ()), *one.alerts_include})


def alert_differences(one: Expectation, firing: Mapping[str, Incident]) -> Iterator[Difference]:
    """Alerts that should fire and do not, and those that should not; ``firing`` by rule id."""
    names = {name for i in firing.values() for name in (i.alert, i.rule)}
    expected = (*(one.alerts or ()), *one.alerts_include)
    absent = tuple(name for name in expected if name not in names)
    more = (
        tuple(rule for rule, incident in firing.items() if not _is_named(incident, one))
        if one.alerts is not None
        else ()
    )
    if absent or more:
        yield Difference("alerts", absent, more)


def _diagnosed(
    one: Expectation, subject: Subject, at: datetime, timeline: Timeline, coverage: Coverage
) -> Iterator[Difference]:
    if one.leaf is None and not one.path and one.missing is None:
        return
    walk = _walk(one, subject, at, timeline)
    if walk is None:
        yield Difference("leaf", (one.leaf,) if one.leaf else ("a diagnosis",), ("no page",))
        return
    differences = [*_differing("leaf", one.leaf, walk.leaf)] if one.leaf is not None else []
    if one.missing is not None and set(one.missing) != set(walk.missing):
        expected = tuple(name for name in one.missing if name not in walk.missing)
        actual = tuple(name for name in walk.missing if name not in one.missing)
        differences.append(Difference("missing", expected, actual))
    elif one.missing is None and one.leaf not in (None, walk.leaf) and walk.missing:
        differences.append(Difference("missing", (), walk.missing))
    for node, answer in one.path.items():
        differences += _differing(f"path {node}", answer, walk.answers.get(node, "not on the path"))
    if not differences and one.leaf is not None:
        coverage.add_walk(timeline.book, walk.tree, walk.leaf, walk.answers)
    yield from differences


def _walk(one: Expectation, subject: Subject, at: datetime, timeline: Timeline) -> _Walk | None:
    """The walk over the row of the minute, or that of the newest page with one."""
    if not timeline.has_windows:
        name = tree_of(one, timeline.book)
        diagnosis = None if name is None else timeline.diagnosis(subject.text, at, name)
        return None if diagnosis is None else _of_diagnosis(diagnosis)
    for page in timeline.pages(subject, at):
        if page.diagnosis is not None:
            return _of_diagnosis(page.diagnosis)
    return None


def _of_diagnosis(diagnosis: Diagnosis) -> _Walk:
    answers = {step.node: step.answer for step in diagnosis.path}
    return _Walk(diagnosis.tree, diagnosis.leaf, answers, diagnosis.missing)


def _differing(field: str, expected: object, actual: object) -> Iterator[Difference]:
    if expected != actual:
        yield Difference(field, _texts(expected), _texts(actual))


def _texts(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    return (str(value),)
