"""Test files → tests that can be run, or every problem at its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from glob import has_magic
from pathlib import Path
from typing import Any

from driftwatch.errors import Problem, UsageError
from driftwatch.installation import shipped
from driftwatch.rulebook.book import (
    Rulebook,
    is_shipped,
    kind_of,
    read_named,
    read_rulebook,
    resolved,
)
from driftwatch.ruletests.cases import RuleTest, RuleTestFile
from driftwatch.ruletests.notation import MOST_MINUTES
from driftwatch.ruletests.problems import note_wrong_names
from driftwatch.ruletests.series import Evidence, Places, evidence_of
from driftwatch.settings import Settings
from driftwatch.yaml_models import note_duplicates
from driftwatch.yaml_partly import read_right
from driftwatch.yaml_positions import Entries, YamlFile, plain, read_yaml, yaml_files

FOLDER = "tests"


def files_of(
    named: Sequence[Path], rules: Sequence[Path], config: Path | None = None
) -> tuple[YamlFile, ...]:
    """The test files that the paths name, each once; those of a folder or glob by name.

    A folder or glob stands for its files with tests, and for those that cannot be read.

    Args:
        named: on the command line; a folder of rules stands for its ``tests/``. Empty = the tests
            beside the rules, else those beside the configuration.
        rules: rule files and folders of the configuration; empty = the shipped ones.
        config: the configuration's file.

    Raises:
        UsageError: nothing is there.
    """
    tests = [beside(one) for one in rules or (shipped("rules"),)]
    if rules and config is not None and not any(one.is_dir() for one in tests):
        tests.append(config.parent / FOLDER)
    paths = dict.fromkeys(map(_tests_of, named) if named else tests)
    files: dict[Path, YamlFile] = {}
    for path in paths:
        inside = [one for one in yaml_files(path) if one.exists()]
        read = {one: files.get(one) or read_named(one) for one in inside}
        files |= {p: f for p, f in read.items() if p == path or _is_test(f)}
    if not files:
        where = ", ".join(map(str, paths))
        help_text = "tests of rules stand in tests/ beside them, or name their files"
        raise UsageError(f"{where}: no test file (*.yaml) is here", help_text=help_text)
    return tuple(files.values())


def _is_test(file: YamlFile) -> bool:
    return kind_of(file.root) == "tests" or (file.root is None and bool(file.problems))


def _tests_of(path: Path) -> Path:
    """The folder with the tests of a folder of rules; any other path as it is."""
    inside = path / FOLDER
    return inside if path.name != FOLDER and inside.is_dir() else path


def beside(rules: Path) -> Path:
    """The folder with the tests of a rule file or folder."""
    return (rules if rules.is_dir() else rules.parent) / FOLDER


@dataclass(frozen=True, slots=True, eq=False)
class PlacedTest:
    """A test that can be run, and where it stands."""

    test: RuleTest
    path: str  # of its file, as the user named it
    folder: Path  # that its file lies in
    line: int  # of its name
    lines: tuple[int, ...]  # of its expectations
    book: Rulebook  # the rules it tests
    evidence: Evidence | None  # of a test with series

    @property
    def is_shipped(self) -> bool:
        """It is one of the installation's, which tests the shipped rules alone."""
        return is_shipped(self.path)


@dataclass(frozen=True, slots=True)
class Reading:
    """Test files as read."""

    tests: tuple[PlacedTest, ...]
    problems: tuple[Problem, ...]  # of the test files and of the rules that they test
    files: int


def read_tests(
    files: Sequence[YamlFile], rules: Sequence[Path] = (), *, configured: Settings | None = None
) -> Reading:
    """Every test of the files; nothing is raised.

    Args:
        rules: what a file tests that names no ``rule_files`` and lies in no folder ``tests``
            below a folder of rules; empty = the shipped ones.
        configured: whose overrides hold.
    """
    tests: list[PlacedTest] = []
    problems: list[Problem] = []

    @cache
    def book_of(of_rules: tuple[Path, ...], alone: bool) -> Rulebook | None:
        """The rules, ``alone``: without overrides; None where they have problems (added)."""
        overrides = None if alone else configured
        reading = read_rulebook(of_rules or (shipped("rules"),), configured=overrides)
        wrong = [p for p in reading.problems if p.severity == "error"]
        problems.extend(wrong)
        return None if wrong else reading.book

    for file in files:
        tests += _tests(file, Path(file.path), rules, book_of)
        problems += sorted(file.problems, key=lambda p: (p.line or 0, p.column or 0))
    return Reading(tuple(tests), tuple(dict.fromkeys(problems)), len(files))


def _tests(
    file: YamlFile,
    path: Path,
    rules: Sequence[Path],
    book_of: Callable[[tuple[Path, ...], bool], Rulebook | None],
) -> Iterator[PlacedTest]:
    root = file.root
    if not isinstance(root, Entries):
        if not file.problems:
            message = "no test is here (tests: …)"
            file.problems.append(Problem(file.path, None, None, "empty", message))
        return
    before = len(file.problems)
    values: Any = plain(root)
    whole = read_right(file, root, RuleTestFile, values, stand_ins={"name": "?"})
    is_whole = len(file.problems) == before
    note_duplicates(file, root, "tests")
    if whole is None:
        return
    # the shipped tests say what the shipped rules do
    if is_shipped(file.path):
        book = book_of((shipped("rules"),), True)
    else:
        paths = _rule_paths(file, root, whole, path.parent, rules)
        book = None if paths is None else book_of(paths, False)
    if book is None:
        return
    placed = []
    for index, test in enumerate(whole.tests):
        places = Places(file, root, ("tests", index))
        evidence = evidence_of(whole, test, Places(file, root), places)
        if evidence is not None and not is_whole:  # a series that is wrong may be the longest
            evidence = replace(evidence, minutes=MOST_MINUTES)
        note_wrong_names(test, book, evidence, places, path.parent)
        line = places.at("name").line
        lines = tuple(places.at("expect", number).line for number in range(len(test.expect)))
        placed.append(PlacedTest(test, file.path, path.parent, line, lines, book, evidence))
    if len(file.problems) == before:
        yield from placed


def _rule_paths(
    file: YamlFile, root: Entries, whole: RuleTestFile, folder: Path, rules: Sequence[Path]
) -> tuple[Path, ...] | None:
    """The rules that a file tests; None where it names some that there are not."""
    if not whole.rule_files:
        above = resolved(folder).parent
        configured = {resolved(one if one.is_dir() else one.parent) for one in rules}
        if resolved(folder).name != FOLDER or above in configured or not _has_rules(above):
            return tuple(rules)
        return (above,)
    paths = tuple(resolved(folder / name) for name in whole.rule_files)
    before, places = len(file.problems), Places(file, root)
    for number, path in enumerate(paths):
        if not path.exists() and not has_magic(str(path)):
            message = f"there is no {whole.rule_files[number]} beside this file"
            places.add(("rule_files", number), "no-files", message)
    return paths if len(file.problems) == before else None


def _has_rules(folder: Path) -> bool:
    return any(kind_of(read_yaml(file).root) == "rules" for file in yaml_files(folder))
