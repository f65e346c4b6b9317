"""Test files → tests that can be run, or every problem at its place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from glob import has_magic
from pathlib import Path
from typing import Any

from driftwatch.diagnose.tree import UNDETERMINED, Tree
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
from driftwatch.rulebook.rules import Rule
from driftwatch.ruletests.cases import Expectation, RuleTest, RuleTestFile
from driftwatch.ruletests.series import MOST_MINUTES, Evidence, Places, evidence_of
from driftwatch.ruletests.timeline import recording_path, window_of
from driftwatch.settings import Settings
from driftwatch.yaml_models import Location, near, near_or_all, note_duplicates
from driftwatch.yaml_partly import read_right
from driftwatch.yaml_positions import Entries, YamlFile, plain, read_yaml, yaml_files


def note_wrong_names(
    test: RuleTest, book: Rulebook, evidence: Evidence | None, places: Places, folder: Path
) -> None:
    """Note every name that does not exist, and every time outside of the series."""
    if evidence is None:
        _note_files(test, folder, places)
    for number, one in enumerate(test.expect):
        here = replace(places, begin=(*places.begin, "expect", number))
        if evidence is not None:
            pools = set(evidence.pools.values())
            for found in outside(one, evidence.minutes, evidence.columns, pools, "test"):
                here.add(*found)
        _note_alerts(one, book, here)
        _note_tree(test, one, book, here)


def tree_of(one: Expectation, book: Rulebook) -> str | None:
    """The tree that it names; else that of its alerts; else the only one that rules name."""
    if one.tree is not None:
        return one.tree
    named = frozenset().union(*(rules_named(name, book.rules) for name in one.every_alert))
    of_alerts = {r.tree for r in book.rules if r.id in named and r.tree is not None}
    trees = of_alerts or {rule.tree for rule in book.rules if rule.tree is not None}
    return trees.pop() if len(trees) == 1 else None


def rules_named(name: str, rules: Iterable[Rule]) -> frozenset[str]:
    """Ids of the rules of an alert: ``LengthDrift``, or ``LengthDrift{signal="prompt_tokens"}``."""
    return frozenset(rule.id for rule in rules if rule.is_named(name))


def _note_files(test: RuleTest, folder: Path, places: Places) -> None:
    if not recording_path(test.recording or "", folder).exists():
        message = f"there is no recording {test.recording} beside this file"
        places.add(("recording",), "no-files", message)
    if test.config is not None and not (folder / test.config).exists():
        places.add(("config",), "no-files", f"there is no {test.config} beside this file")
    if test.baseline is not None and window_of(test.baseline) is None:
        places.add(("baseline",), "value", f"{test.baseline} is no FROM..TO", "write 10m..95m")


def outside(
    one: Expectation, minutes: int, targets: Collection[str], pools: Collection[str], what: str
) -> Iterator[tuple[Location, str, str, str | None]]:
    """Time and names of an expectation that a test does not have: key, code, message, help.

    ``what``: the test or its recording.
    """
    if one.at is not None and one.at >= 60 * minutes:
        help_text = "one more value of a series is one more minute" if what == "test" else None
        yield ("at",), "time", f"the {what} ends at {minutes - 1}m", help_text
    for key, name, names in (("pool", one.pool, pools), ("target", one.target, targets)):
        if name is not None and name not in names:
            hint = near(name, names) or f"it has {', '.join(sorted(names)[:4])}"
            yield (key,), f"unknown-{key}", f"there is no {key} {name} in this {what}", hint
    if one.pool is None and one.target is None and len(targets) > 1:
        help_text = f"target: one of {', '.join(sorted(targets)[:4])}; or pool:"
        yield (), "missing-key", f"which target? The {what} has several", help_text


def _note_alerts(one: Expectation, book: Rulebook, here: Places) -> None:
    enabled = {rule.id: rule.alert for rule in book.rules if rule.enabled}
    for key in ("alerts", "alerts_include"):
        for number, name in enumerate(getattr(one, key) or ()):
            location: Location = (key, number)
            named = rules_named(name, book.rules)
            if not named:
                message = f"there is no alert {name} in the rules"
                help_text = near_or_all(name, {*enabled, *enabled.values()}, "alerts")
                here.add(location, "unknown-alert", message, help_text)
            elif not named & enabled.keys():
                here.add(location, "disabled", f"{name} is off (enabled: false): it never fires")


def _note_tree(test: RuleTest, one: Expectation, book: Rulebook, here: Places) -> None:
    if one.tree is not None and test.series is None:
        message = "a page walks the tree of its rule"
        here.add(("tree",), "value", message, "leave out tree:, or test it with series:")
        return
    if one.tree is not None and one.tree not in book.trees:
        message = f"there is no tree {one.tree} in the rules"
        here.add(("tree",), "unknown-tree", message, near_or_all(one.tree, book.trees, "trees"))
        return
    if one.pool is not None and test.series is not None and (one.leaf or one.path):
        here.add(("pool",), "value", "only a target has a path, a pool has none", "target: …")
    name = tree_of(one, book)
    if name is None and test.series is not None and (one.leaf or one.path or one.missing):
        if book.trees:
            message = "which tree? The rules name several"
            here.add((), "missing-key", message, f"tree: one of {', '.join(sorted(book.trees))}")
        else:
            here.add((), "unknown-tree", "no rule here has a tree", "tree: is a key of a rule")
        return
    trees = [book.trees[name]] if name is not None else list(book.trees.values())
    _note_leaf_and_path(one, trees, here)


def _note_leaf_and_path(one: Expectation, trees: Collection[Tree], here: Places) -> None:
    leaves = {UNDETERMINED, *(leaf for tree in trees for leaf in tree.leaves)}
    where = f" in tree {next(iter(trees)).name}" if len(trees) == 1 else ""
    if one.leaf is not None and one.leaf not in leaves:
        message = f"there is no leaf {one.leaf}{where}"
        here.add(("leaf",), "unknown-leaf", message, near_or_all(one.leaf, leaves, "leaves"))
    nodes = {node for tree in trees for node in tree.nodes}
    for node in one.path:
        if node not in nodes:
            message = f"there is no node {node}{where}"
            here.add(
                ("path", node, "[key]"), "unknown-node", message, near_or_all(node, nodes, "nodes")
            )


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
    # of a folder of rules the folder with its tests
    inner = {one: one / FOLDER for one in named if one.name != FOLDER}
    own = [inner[one] if one in inner and inner[one].is_dir() else one for one in named]
    paths = dict.fromkeys(own or tests)
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
        own = resolved(folder).name == FOLDER and above not in configured
        kinds = (kind_of(read_yaml(one).root) for one in yaml_files(above) if own)
        return (above,) if "rules" in kinds else tuple(rules)
    paths = tuple(resolved(folder / name) for name in whole.rule_files)
    before, places = len(file.problems), Places(file, root)
    for number, path in enumerate(paths):
        if not path.exists() and not has_magic(str(path)):
            message = f"there is no {whole.rule_files[number]} beside this file"
            places.add(("rule_files", number), "no-files", message)
    return paths if len(file.problems) == before else None
