"""Tests run one after the other, in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from driftwatch.errors import DriftwatchError
from driftwatch.rulebook.book import Rulebook
from driftwatch.ruletests.comparison import Confirmed, Failure, compared
from driftwatch.ruletests.coverage import Coverage
from driftwatch.ruletests.history_run import recording_played
from driftwatch.ruletests.reader import PlacedTest
from driftwatch.ruletests.series_run import played
from driftwatch.ruletests.timeline import Timeline

Stopwatch = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one test."""

    one: PlacedTest
    failures: tuple[Failure, ...]
    seconds: float  # how long it took
    error: str | None = None  # why it could not run
    error_line: int | None = None  # of the expectation that is to blame; None = of the test

    @property
    def passed(self) -> bool:
        """It ran, and everything is as expected."""
        return not self.failures and self.error is None


class Runner:
    """Runs tests; what several of them play is played once.

    Args:
        stopwatch: seconds, monotonic.
    """

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch
        self._played: dict[object, Timeline] = {}
        self._coverages: dict[int, tuple[Rulebook, Coverage]] = {}

    def run(self, one: PlacedTest) -> Result:
        """One test."""
        begun = self._stopwatch()
        _, coverage = self._coverages.setdefault(id(one.book), (one.book, Coverage()))
        try:
            timeline = self._timeline(one)
        except DriftwatchError as error:
            return Result(one, (), self._stopwatch() - begun, error.message)
        if (misplaced := _misplaced(one, timeline)) is not None:
            return Result(one, (), self._stopwatch() - begun, *misplaced)
        confirmed = Confirmed()
        failures = tuple(
            failure
            for expectation, line in zip(one.test.expect, one.lines, strict=True)
            if (failure := compared(expectation, line, timeline, confirmed, coverage)) is not None
        )
        coverage.add_test(confirmed.fired, confirmed.false)
        return Result(one, failures, self._stopwatch() - begun)

    @property
    def coverages(self) -> tuple[tuple[Rulebook, Coverage], ...]:
        """Each rule set that was tested, with what the tests confirmed of it."""
        return tuple(self._coverages.values())

    def _timeline(self, one: PlacedTest) -> Timeline:
        test, book = one.test, one.book
        if one.evidence is not None:
            return played(one.evidence, book, (expected.at for expected in test.expect))
        question = (one.folder, test.recording, test.config, test.baseline, id(book))
        if question not in self._played:
            self._played[question] = recording_played(test, one.folder, book)
        return self._played[question]


def _misplaced(one: PlacedTest, timeline: Timeline) -> tuple[str, int] | None:
    """The first expectation that lies outside of a recording, with its line; None if none does."""
    for expectation, line in zip(one.test.expect, one.lines, strict=True):
        last = timeline.minutes - 1
        if expectation.at is not None and expectation.at > 60 * last:
            return f"the recording ends at {last}m", line
        names = timeline.targets if expectation.pool is None else timeline.pools
        name = expectation.target if expectation.pool is None else expectation.pool
        others = ", ".join(sorted(names)[:4])
        if name is None and len(names) > 1:
            return f"which target? The recording has {others}", line
        if name is not None and name not in names:
            return f"there is no {name} in the recording; it has {others}", line
    return None
