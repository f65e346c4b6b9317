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
from driftwatch.numbers import plural
from driftwatch.rulebook.book import Reading, Rulebook, read_rulebook, resolved
from driftwatch.rulebook.lint_conditions import condition_problems
from driftwatch.rulebook.lint_keys import key_problems, shadowed, without_effect
from driftwatch.rulebook.lint_places import problem, variants_of
from driftwatch.rulebook.lint_trees import tree_problems
from driftwatch.settings import Settings
from driftwatch.settings.problems import without_secrets
from driftwatch.yaml_gaps import FOLLOW_UPS
from driftwatch.yaml_models import place_of
from driftwatch.yaml_positions import Entries


@dataclass(frozen=True, slots=True)
class Checked:
    """What checking a set of files gave."""

    problems: tuple[Problem, ...] = ()  # by file, line and column
    files: tuple[str, ...] = ()  # that were read, as problems name them
    rules: int = 0  # how many they hold, readable or not
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
    if any(file.is_partial for file in reading.files):
        problems = [one for one in problems if one.code not in FOLLOW_UPS]
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
    if configured is not None and configured.receivers:
        yield from _unrouted(reading, configured)
    yield from map(without_secrets, shadowed(reading.overrides))
    yield from map(without_secrets, without_effect(reading.overrides, reading.book.rules))
    for tree in reading.trees:
        yield from tree_problems(tree)


def _unrouted(reading: Reading, configured: Settings) -> Iterator[Problem]:
    """Severities that no receiver takes, and rules whose own receivers do not take theirs."""
    takes = {one.name: one.severities for one in configured.receivers}
    taken = {severity for severities in takes.values() for severity in severities}
    root = None if configured.file is None else configured.file.root
    variants = [one for rule in reading.book.rules for one in rule.variants if one.enabled]
    for severity in ("page", "ticket"):
        alerts = dict.fromkeys(one.alert for one in variants if one.severity == severity)
        if alerts and severity not in taken and configured.file and isinstance(root, Entries):
            first, *more = alerts
            those = f"{first} and {plural(len(more), 'alert')} more" if more else first
            message = f"no receiver takes {severity}s: nobody hears of {those}"
            help_text = f"severities: [{severity}, …] of a receiver"
            place = place_of(root, ("receivers",), to_key=True)
            one = problem(configured.file, place, "unrouted", message, help_text)
            yield without_secrets(one)
    for read in reading.rules:
        rule = read.rule
        named = () if rule is None else [one for one in rule.receivers if one in takes]
        if rule and rule.enabled and named and not any(rule.severity in takes[n] for n in named):
            takers = "none of them takes" if len(named) > 1 else f"{named[0]} does not take"
            message = f"{takers} {rule.severity}s: they go where they would without this line"
            help_text = f"add {rule.severity} to the severities of {named[0]}"
            place = place_of(read.entries, ("receivers",))
            yield problem(read.file, place, "unrouted", message, help_text)
