"""Everything that is wrong with a set of rule and tree files: the reader's problems and lints."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from driftwatch.errors import Problem
from driftwatch.rulebook.book import Reading, Rulebook, read_rulebook
from driftwatch.rulebook.comments import Part, is_explained, parts_of, with_comments
from driftwatch.rulebook.lint_conditions import rule_problems
from driftwatch.rulebook.lint_inhibition import inhibition_problems
from driftwatch.rulebook.lint_keys import key_problems
from driftwatch.rulebook.lint_pairs import pair_problems
from driftwatch.rulebook.lint_trees import tree_problems
from driftwatch.settings import Settings


@dataclass(frozen=True, slots=True)
class Checked:
    """What checking a set of files gave."""

    problems: tuple[Problem, ...]  # by file, line and column
    parts: tuple[Part, ...]  # the rules, nodes and leaves, and their lines
    files: tuple[str, ...]  # that were read, as problems name them
    rules: int  # how many they hold, readable or not
    # what the rules name and only a configuration has, where there was none
    unchecked: tuple[str, ...] = ()
    book: Rulebook = field(default_factory=lambda: Rulebook((), {}))  # what could be read


def check_rulebook(
    paths: Sequence[Path] = (),
    *,
    configured: Settings | None = None,
    today: date,
) -> Checked:
    """Read rule and tree files and lint them; arguments as of :func:`book.read_rulebook`.

    Args:
        today: UTC, for comments that snooze a lint.
    """
    with _no_collections():
        reading = read_rulebook(paths, configured=configured)
        parts = parts_of(reading)
        lints = with_comments(list(lint(reading)), reading, parts, today)
    order = {file.path: number for number, file in enumerate(reading.files)}
    problems = sorted(
        [*reading.problems, *lints],
        key=lambda p: (order.get(p.path, -1), p.line or 0, p.column or 0),
    )
    unchecked = () if configured is not None else _configured_names(reading)
    count = len(reading.rules)
    return Checked(tuple(problems), parts, tuple(order), count, unchecked, reading.book)


def _configured_names(reading: Reading) -> tuple[str, ...]:
    """Which kinds of names, that only a configuration has, the rules use."""
    rules = reading.book.rules
    used = {
        "receivers": any(rule.receivers for rule in rules),
        "time intervals": any(rule.mute_time_intervals for rule in rules),
        "pools": any(rule.overrides for rule in rules),
    }
    return tuple(kind for kind, is_used in used.items() if is_used)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Without garbage collections, which a quarter of the time goes to: nothing becomes garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def lint(reading: Reading) -> Iterator[Problem]:
    """Every lint of the rules and trees that could be read."""
    readable = [(one, one.rule) for one in reading.rules if one.rule is not None]
    places = {(rule.path, rule.line) for rule in reading.book.rules}
    sound = []
    for one, rule in readable:
        of_conditions = list(rule_problems(one, rule, is_explained(one)))
        yield from of_conditions
        yield from key_problems(one, rule)
        is_one = (rule.path, rule.line) in places  # not a second one with the same identity
        if is_one and all(problem.severity != "error" for problem in of_conditions):
            sound.append((one, rule))
    yield from inhibition_problems(readable)
    yield from pair_problems(sound)
    for tree in reading.trees:
        yield from tree_problems(tree)
