"""A rulebook: every rule and tree of a set of files, or every problem of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from driftwatch.diagnose.tree import Tree
from driftwatch.errors import ConfigError, Problem
from driftwatch.installation import shipped
from driftwatch.rulebook.overrides import ReadOverride, overridden
from driftwatch.rulebook.rules import ReadRule, Rule, read_rules, with_ids
from driftwatch.rulebook.trees import ReadTree, continued_by, read_tree
from driftwatch.settings import Settings
from driftwatch.settings.problems import receiver_names, without_secrets
from driftwatch.yaml_models import near, near_or_all, node_at
from driftwatch.yaml_positions import (
    Entries,
    Node,
    YamlFile,
    plain,
    read_yaml,
    yaml_files,
)


@dataclass(frozen=True, slots=True)
class Rulebook:
    """The rules, and the trees that explain where they are true."""

    rules: tuple[Rule, ...]  # in file order, disabled ones too; ids are unique
    trees: Mapping[str, Tree]  # name → tree; every tree a rule names is here

    @property
    def every_tree(self) -> dict[str, Tree]:
        """These, and the shipped ones of other names, which ``explain`` walks."""
        return {**shipped_trees(), **self.trees}


@dataclass(frozen=True, slots=True)
class Reading:
    """A set of files as read."""

    book: Rulebook  # the rules and trees that could be read
    problems: tuple[Problem, ...]  # everything that is wrong, in file order
    files: tuple[YamlFile, ...]
    rules: tuple[ReadRule, ...]  # readable or not
    trees: tuple[ReadTree, ...]  # readable or not
    overrides: tuple[ReadOverride, ...] = ()  # those that could be read


def load_rulebook(paths: Sequence[Path] = (), *, configured: Settings | None = None) -> Rulebook:
    """Read rule and tree files.

    Args:
        paths: files, folders (their ``*.yaml``) or globs, each with ``trees/*.yaml`` beside the
            rules; empty = the configuration's, else the shipped ones. A tree that a rule names and
            no file has is taken from the shipped ones.
        configured: has overrides, and the receivers that rules may name; None = any. An override
            of an alert that ``paths`` do not have changes nothing.

    Raises:
        ConfigError: with every problem of every file; warnings alone raise nothing.
    """
    reading = read_rulebook(paths, configured=configured)
    if any(problem.severity == "error" for problem in reading.problems):
        raise ConfigError(reading.problems)
    return reading.book


def read_rulebook(paths: Sequence[Path] = (), *, configured: Settings | None = None) -> Reading:
    """The same, never raising."""
    problems: list[Problem] = []
    files: list[YamlFile] = []
    rules_read: list[ReadRule] = []
    trees: dict[str, Tree] = {}
    places: dict[str, str] = {}
    of_trees: list[tuple[YamlFile, Entries]] = []
    own = () if configured is None else configured.rules.files
    for file in _rule_files(paths or own or (shipped("rules"),), problems):
        files.append(file)
        root = file.root
        if not isinstance(root, Entries):
            if not file.problems:
                message = "neither rules (groups: …) nor a tree (tree: …)"
                file.problems.append(Problem(file.path, None, None, "empty", message))
        elif (kind := kind_of(root)) == "tree":
            of_trees.append((file, root))
        elif kind == "rules":
            rules_read += read_rules(file, root)
        else:
            message, help_text = _NO_RULES[kind]
            file.add(root.place, "value", message, help_text.format(file=file.path))
    trees_read = _read_trees(of_trees, trees, places)
    rules = with_ids(rules_read, None if configured is None else configured.rules.runbook)
    alerts = {str(alert.value) for one in rules_read for alert in one.names("alert")}
    rules, overrides, config = overridden(rules, configured, None if paths else alerts)
    declared = {str(plain(node_at(root, ("tree",)))) for _, root in of_trees}
    _check_names(rules_read, trees, declared, _receivers(configured))
    for file in files:
        problems += sorted(file.problems, key=lambda p: (p.line or 0, p.column or 0))
    problems += map(without_secrets, () if config is None else config.problems)
    book = Rulebook(rules, trees)
    read = tuple(rules_read), tuple(trees_read), overrides
    return Reading(book, tuple(problems), tuple(files), *read)


_TESTS, _KEYS = frozenset(("tests", "bases")), frozenset(Settings.model_fields) - {"rules"}
_RULES = frozenset(("rules", "tree"))
FileKind = Literal["rules", "tree", "tests", "configuration", "other"]
# kind of a file without rules → what it is, and the command that reads it
_NO_RULES: Mapping[FileKind, tuple[str, str]] = {
    "tests": ("these are tests of rules", "driftwatch rules test {file}"),
    "configuration": ("this is a configuration", "driftwatch check -c {file}"),
    "other": ("this is a manifest of Kubernetes", "name the files of rules alone"),
}


def kind_of(root: Node | None) -> FileKind:
    """What a YAML file is for, by its keys; rules where they do not say."""
    keys = frozenset(root.entries) if isinstance(root, Entries) else frozenset()
    if keys & {"tree", "nodes"}:
        return "tree"
    if "groups" in keys:
        return "rules"
    if keys & _TESTS:
        return "tests"
    if keys & _KEYS:
        return "configuration"
    return "other" if keys >= {"apiVersion", "kind"} else "rules"


def _check_names(
    rules: Sequence[ReadRule],
    trees: dict[str, Tree],
    declared: Collection[str],
    receivers: Collection[str] | None,
) -> None:
    """Note trees, alerts and receivers that rules name and that do not exist; add the shipped trees
    that they name to ``trees``.

    ``declared``: names of the trees of the files, readable or not; ``receivers``: None = unknown.
    """
    named = {str(name.value) for one in rules for name in one.names("tree")}
    trees |= {n: tree for n, tree in shipped_trees().items() if n in named and n not in trees}
    alerts = {str(alert.value) for one in rules for alert in one.names("alert")}
    known: dict[str, tuple[str, Collection[str], str]] = {
        "tree": ("tree", {*trees, *shipped_trees(), *declared}, " in these files"),
        "inhibited_by": ("alert", alerts, " in these files"),
    }
    if receivers is not None:
        known["receivers"] = ("receiver", receivers, " in the configuration")
    for one in rules:
        for key, (noun, names, where) in known.items():
            for name in (n for n in one.names(key) if n.value not in names):
                help_text = near_or_all(str(name.value), names, f"{noun}s")
                if noun == "tree" and near(str(name.value), names) is None:
                    folder = Path(one.file.path).parent / "trees"
                    help_text = f"a tree is a file in {folder} with tree: {name.value}"
                message = f"there is no {noun} {name.value}{where}"
                one.file.add(name.place, f"unknown-{noun}", message, help_text)


def _receivers(settings: Settings | None) -> Collection[str] | None:
    """The receivers that rules may name; None where the configuration does not tell them."""
    if settings is None:
        return None
    names = {one.name for one in settings.receivers}
    if settings.file is not None and isinstance(root := settings.file.root, Entries):
        if "receivers" not in root.entries and root.entries.keys() - Settings.model_fields:
            return None  # an unknown key may be a misspelt ``receivers``
        names |= receiver_names(root)
    return names


def _read_trees(
    files: Sequence[tuple[YamlFile, Entries]],
    trees: dict[str, Tree],
    places: dict[str, str],
    *,
    alone: bool = False,
) -> list[ReadTree]:
    """Every tree of the files: first those that stand alone, then those that continue one."""
    trees_read = []
    for file, root in sorted(files, key=lambda one: continued_by(one[1]) is not None):
        named = continued_by(root)
        more = {} if named is None or named in trees or alone else shipped_trees()
        trees_read.append(read_tree(file, root, {**more, **trees}))
        tree = trees_read[-1].tree
        if tree is not None and tree.name in trees:
            message = f"a second tree {tree.name}, first in {places[tree.name]}"
            file.add(root.entries["tree"][1].place, "duplicate", message)
        elif tree is not None:
            trees[tree.name], places[tree.name] = tree, file.path
    return trees_read


@cache
def shipped_trees() -> Mapping[str, Tree]:
    """The shipped trees by name."""
    files = []
    for path in sorted((shipped("rules") / "trees").glob("*.yaml")):
        file = read_yaml(path)
        if isinstance(file.root, Entries):
            files.append((file, file.root))
    trees: dict[str, Tree] = {}
    _read_trees(files, trees, {}, alone=True)
    return trees


def _rule_files(paths: Sequence[Path], problems: list[Problem]) -> list[YamlFile]:
    """The files that the paths name, each once; those of a folder or glob by name.

    A folder or glob stands for its files with rules or a tree, and for those that cannot be read;
    one without any is a problem.
    """
    files: dict[Path, YamlFile] = {}
    for path in paths:
        inside = yaml_files(path)
        trees = (path.parent if path.is_file() else path) / "trees"
        if trees.is_dir():
            inside += yaml_files(trees)
        meant = {one: files.get(one) or read_named(one) for one in inside}
        meant = {p: f for p, f in meant.items() if p == path or kind_of(f.root) in _RULES}
        if not meant:
            message = "no rule file is here (*.yaml)"
            problems.append(Problem(display_path(path), None, None, "no-files", message))
        files |= meant
    return list(files.values())


def read_named(path: Path) -> YamlFile:
    """A file as problems name it."""
    file = read_yaml(path)
    file.path = display_path(path)
    file.problems = [replace(p, path=file.path) for p in file.problems]
    return file


def display_path(path: Path) -> str:
    """The path, relative to the working directory where it lies below it."""
    try:
        return str(resolved(path).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def is_shipped(name: str) -> bool:
    """Whether a file is one of the installation's."""
    return resolved(Path(name)).is_relative_to(resolved(shipped("rules")))


def resolved(path: Path) -> Path:
    """The path without links; with them where they lead in a circle."""
    try:
        return path.resolve()
    except RuntimeError:
        return path.absolute()
