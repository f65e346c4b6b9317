"""Tests run one after the other, and their results for people and machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from driftwatch.errors import DriftwatchError
from driftwatch.rulebook.book import Rulebook
from driftwatch.ruletests.comparison import (
    Coverage,
    Difference,
    Failure,
    Kind,
    Table,
    compared,
    tables_of,
)
from driftwatch.ruletests.reader import PlacedTest, outside
from driftwatch.ruletests.timeline import Timeline, played, recording_played

WIDTH = 80
MOST_NAMES = 12  # that the answer lists of one kind; the rest is counted


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one test."""

    one: PlacedTest
    failures: tuple[Failure, ...]
    seconds: float  # how long it took
    error: str | None = None  # why it could not run
    error_line: int | None = None  # of the expectation that is wrong; None = of the test

    @property
    def passed(self) -> bool:
        """Whether it ran, and everything is as expected."""
        return not self.failures and self.error is None

    def lines(self) -> Iterator[str]:
        """Why it failed: each expectation that does not hold, and what of it."""
        one = self.one
        if self.error is not None:
            yield f'ERROR {one.path}:{self.error_line or one.line} "{one.test.name}": {self.error}'
        for failure in self.failures:
            where = f"{failure.subject} at {failure.at_seconds / 60:g}m"
            yield f'FAIL {one.path}:{failure.line} "{one.test.name}" {where}'
            yield from _side_by_side(failure.differences)

    def document(self) -> dict[str, Any]:
        """The test with what differs, for JSON."""
        one = self.one
        place = {"path": one.path, "line": one.line, "name": one.test.name}
        result = {"passed": self.passed, "seconds": round(self.seconds, 3), "error": self.error}
        return {**place, **result, "failures": [asdict(failure) for failure in self.failures]}


class Runner:
    """Runs tests; a recording that several of them play is played once.

    ``stopwatch``: seconds, monotonic.
    """

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        self._stopwatch = stopwatch
        self._played: dict[object, Timeline] = {}
        self._coverages: dict[int, tuple[Rulebook, bool, Coverage]] = {}

    def run(self, one: PlacedTest) -> Result:
        """One test."""
        begun = self._stopwatch()
        tested = (one.book, one.is_shipped, Coverage())
        *_, coverage = self._coverages.setdefault(id(one.book), tested)
        try:
            timeline = self._timeline(one)
        except DriftwatchError as error:
            return Result(one, (), self._stopwatch() - begun, error.message)
        if (misplaced := _misplaced(one, timeline)) is not None:
            return Result(one, (), self._stopwatch() - begun, *misplaced)
        confirmed = Coverage()
        found = (
            compared(expectation, line, timeline, confirmed)
            for expectation, line in zip(one.test.expect, one.lines, strict=True)
        )
        failures = tuple(failure for failure in found if failure is not None)
        coverage.add(confirmed)
        return Result(one, failures, self._stopwatch() - begun)

    @property
    def tables(self) -> list[Table]:
        """What the tests confirmed of the rule sets that they test."""
        return [*tables_of(self._coverages.values())]

    def _timeline(self, one: PlacedTest) -> Timeline:
        test, book = one.test, one.book
        if one.evidence is not None:
            return played(one.evidence, book, (expected.at for expected in test.expect))
        question = (one.folder, test.recording, test.config, test.baseline, id(book))
        if question not in self._played:
            self._played[question] = recording_played(test, one.folder, book)
        return self._played[question]


def _misplaced(one: PlacedTest, timeline: Timeline) -> tuple[str, int] | None:
    """Why the first expectation outside of a recording is wrong, and its line; None = none is."""
    for expected, line in zip(one.test.expect, one.lines, strict=True):
        has = timeline.minutes, timeline.targets, timeline.pools
        for *_, message, help_text in outside(expected, *has, "recording"):
            return "; ".join(filter(None, (message, help_text))), line
    return None


def json_document(results: Sequence[Result], tables: Sequence[Table] | None) -> dict[str, Any]:
    """Every test with what differs; ``tables``: None = without coverage."""
    passed = sum(result.passed for result in results)
    return {
        "schema_version": 1,
        "passed": passed,
        "failed": len(results) - passed,
        "tests": [result.document() for result in results],
        "coverage": None if tables is None else [table.document() for table in tables],
    }


def verdict(results: Sequence[Result]) -> str:
    """``1 failed, 37 passed (35 shipped)``."""
    failed = [one for one in results if not one.passed]
    texts = [_count("failed", failed)] if failed else []
    return ", ".join([*texts, _count("passed", [one for one in results if one.passed])])


def _count(word: str, results: Sequence[Result]) -> str:
    shipped = sum(result.one.is_shipped for result in results)
    return f"{len(results)} {word}" + (f" ({shipped} shipped)" if shipped else "")


_LACKING: Mapping[Kind, str] = {
    "rules that fire": "that {} rules fire",
    "rules that do not fire": "that {} rules stay silent where their condition is false (expect "
    "`alerts: []` there, in a test in which they fire)",
    "leaves": "{} leaves",
    "edges": "{} edges",
}


def coverage_lines(tables: Sequence[Table]) -> Iterator[str]:
    """What no test confirms, a sentence a kind; that there is nothing of that."""
    for table in tables:
        if table.missing:
            whose = " shipped" if table.shipped else ""
            names = "; ".join(table.missing[:MOST_NAMES])
            more = len(table.missing) - MOST_NAMES
            rest = f"; and {more} more (--json has all)" if more > 0 else ""
            count = f"{len(table.missing)} of {table.total}"
            what = _LACKING[table.kind].format(f"{count}{whose}")
            yield f"not tested: {what}: {names}{rest}"
    if not any(table.missing for table in tables):
        yield "every rule, leaf and edge has a test"


def coverage_rows(tables: Sequence[Table]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table: how much is tested of yours and of the shipped."""
    owners = dict.fromkeys("shipped" if table.shipped else "yours" for table in tables)
    rows: dict[str, list[str]] = {}
    for table in tables:
        count = f"{table.tested} of {table.total}" if table.total else "none"
        rows.setdefault(table.kind, [table.kind]).append(count)
    return ["tested", *owners], [*rows.values()]


def _side_by_side(differences: Sequence[Difference]) -> Iterator[str]:
    """``- expected  + actual`` beside each other where they fit, else below."""
    width = max(len(one.field) for one in differences)
    pairs = [
        (one.field if number == 0 else "", *pair)
        for one in differences
        for number, pair in enumerate(zip_longest(one.expected, one.actual))
    ]
    column = max((len(expected) + 4 for _, expected, _ in pairs if expected is not None), default=0)
    widest = max((len(actual) + 2 for _, _, actual in pairs if actual is not None), default=0)
    fits = 2 + width + 1 + column + widest <= WIDTH
    for field, expected, actual in pairs:
        head = f"  {field:{width}} "
        minus = "" if expected is None else f"- {expected}"
        plus = "" if actual is None else f"+ {actual}"
        if fits:
            yield f"{head}{minus:{column}}{plus}".rstrip()
            continue
        for number, text in enumerate(filter(None, (minus, plus))):
            yield f"{head if number == 0 else ' ' * len(head)}{text}"
