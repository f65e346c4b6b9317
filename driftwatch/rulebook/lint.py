"""Everything that is wrong with a set of rule and tree files: the reader's problems and lints."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from driftwatch.errors import Problem
from driftwatch.installation import shipped
from driftwatch.rulebook.book import Reading, Rulebook, read_rulebook, resolved
from driftwatch.rulebook.lint_conditions import condition_problems
from driftwatch.rulebook.lint_keys import key_problems, shadowed, without_effect
from driftwatch.rulebook.lint_places import variants_of
from driftwatch.rulebook.lint_trees import tree_problems
from driftwatch.settings import Settings
from driftwatch.settings.problems import without_secrets


@dataclass(frozen=True, slots=True)
class Checked:
    """What checking a set of files gave."""

    problems: tuple[Problem, ...]  # by file, line and column
    files: tuple[str, ...]  # that were read, as problems name them
    rules: int  # how many they hold, readable or not
    # what the rules name and only a configuration has, where there was none
    unchecked: tuple[str, ...] = ()
    book: Rulebook = field(default_factory=lambda: Rulebook((), {}))  # what could be read


def check_rulebook(paths: Sequence[Path] = (), *, configured: Settings | None = None) -> Checked:
    """Read rule and tree files and lint them; arguments as of :func:`book.read_rulebook`."""
    with _no_collections():
        reading = read_rulebook(paths, configured=configured)
        lints = list(lint(reading, configured))
    order = {file.path: number for number, file in enumerate(reading.files)}
    problems = sorted(
        [*reading.problems, *lints],
        key=lambda p: (order.get(p.path, -1), p.line or 0, p.column or 0),
    )
    names_receivers = any(rule.receivers for rule in reading.book.rules)
    unchecked = ("receivers",) if configured is None and names_receivers else ()
    count = len(reading.rules)
    return Checked(tuple(problems), tuple(order), count, unchecked, reading.book)


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


def _is_copy(path: Path, folder: Path) -> bool:
    """A file of the folder, or the same text elsewhere."""
    twin = folder / path.name
    return path == twin or (
        twin.is_file() and path.is_file() and twin.read_bytes() == path.read_bytes()
    )


def lint(reading: Reading, configured: Settings | None) -> Iterator[Problem]:
    """Every lint of the rules and trees, as far as they could be read."""
    # those of the installation are in its runbook, docs/oncall; a copy with changes needs its own
    own = resolved(shipped("rules"))
    is_shipped: dict[str, bool] = {}
    of_every_rule = configured is not None and configured.rules.runbook is not None
    for one in variants_of(reading):
        path = str(one.file.path)
        if path not in is_shipped:
            is_shipped[path] = _is_copy(resolved(Path(path)), own)
        has_runbook = of_every_rule or is_shipped[path]
        problems = chain(condition_problems(one), key_problems(one, has_runbook=has_runbook))
        yield from problems if one.is_rule else map(without_secrets, problems)
    yield from map(without_secrets, shadowed(reading.overrides))
    yield from map(without_secrets, without_effect(reading.overrides, reading.book.rules))
    for tree in reading.trees:
        yield from tree_problems(tree)
