"""Results as a person reads them: only what differs, the counts last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from driftwatch.ruletests.comparison import Difference, Failure
from driftwatch.ruletests.coverage import Table
from driftwatch.ruletests.runner import Result

WIDTH = 80


def failure_lines(result: Result) -> Iterator[str]:
    """Each expectation that does not hold, and what of it."""
    one = result.one
    if result.error is not None:
        line = one.line if result.error_line is None else result.error_line
        yield f'ERROR {one.path}:{line} "{one.test.name}": {result.error}'
    for failure in result.failures:
        yield f'FAIL {one.path}:{failure.line} "{one.test.name}" {_where(failure)}'
        yield from _difference_lines(failure.differences)


def passed_line(result: Result) -> str:
    """A test as ``--verbose`` lists it."""
    one = result.one
    return f'ok   {one.path}:{one.line} "{one.test.name}" {result.seconds:.1f} s'


def verdict(results: Sequence[Result]) -> str:
    """``1 failed, 37 passed``."""
    failed = sum(not result.passed for result in results)
    passed = f"{len(results) - failed} passed"
    return f"{failed} failed, {passed}" if failed else passed


def _where(failure: Failure) -> str:
    minutes = failure.at_seconds / 60
    return f"{failure.subject} at {minutes:g}m"


def _difference_lines(differences: Sequence[Difference]) -> Iterator[str]:
    """``- expected  + actual`` side by side where they fit, else below each other."""
    width = max(len(one.field) for one in differences)
    pairs = [
        (one.field if number == 0 else "", *pair)
        for one in differences
        for number, pair in enumerate(zip_longest(one.expected, one.actual))
    ]
    column = max((len(expected) + 4 for _, expected, _ in pairs if expected is not None), default=0)
    widest = max((len(actual) + 2 for _, _, actual in pairs if actual is not None), default=0)
    beside = 2 + width + 1 + column + widest <= WIDTH
    for field, expected, actual in pairs:
        head = f"  {field:{width}} "
        if beside:
            minus = "" if expected is None else f"- {expected}"
            plus = "" if actual is None else f"+ {actual}"
            yield f"{head}{minus:{column}}{plus}".rstrip()
            continue
        if expected is not None:
            yield f"{head}- {expected}"
        if actual is not None:
            yield f"{head if expected is None else ' ' * len(head)}+ {actual}"


def coverage_lines(tables: Sequence[Table]) -> Iterator[str]:
    """How much of the rule set the tests confirm, and what they leave out."""
    yield f"{'coverage':23} tested"
    for table in tables:
        reached = table.total - len(table.missing)
        yield f" {table.kind:22} {reached} of {table.total}, {_percent(table.percent)}"
        for name in table.missing:
            yield f"  no test: {name}"


def _percent(percent: float) -> str:
    """Never 100 where something is missing."""
    return f"{int(percent)} %"
