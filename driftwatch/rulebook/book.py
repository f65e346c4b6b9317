"""A rulebook: every rule and tree of a set of files, or every problem of them."""

from __future__ import annotations

import glob
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from driftwatch.diagnose.tree import Tree
from driftwatch.errors import ConfigError, Problem
from driftwatch.installation import shipped
from driftwatch.rulebook.rules import ReadRule, Rule, read_rules, with_ids
from driftwatch.rulebook.trees import continued_by, read_tree
from driftwatch.yaml_models import near
from driftwatch.yaml_positions import Entries, Scalar, YamlFile, read_yaml


@dataclass(frozen=True, slots=True)
class Rulebook:
    """What is watched for and how it is explained."""

    rules: tuple[Rule, ...]  # in file order, disabled ones too; ids are unique
    trees: Mapping[str, Tree]  # name → tree; every tree a rule names is here


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading a set of files gave."""

    book: Rulebook  # the rules and trees that could be read
    problems: tuple[Problem, ...]  # everything that is wrong, in file order
    files: int  # how many files were read
    rules: int  # how many rules they hold, readable or not


def load_rulebook(
    paths: Sequence[Path] = (), *, receivers: Collection[str] | None = None
) -> Rulebook:
    """Read rule and tree files; without paths the shipped ones.

    Args:
        paths: files, folders (their ``*.yaml``, and ``trees/*.yaml`` below) or globs. A tree
            that a rule names and no file has is taken from the shipped ones.
        receivers: the names that rules may use; None = any.

    Raises:
        ConfigError: with every problem of every file.
    """
    reading = read_rulebook(paths, receivers=receivers)
    if reading.problems:
        raise ConfigError(reading.problems)
    return reading.book


def read_rulebook(
    paths: Sequence[Path] = (), *, receivers: Collection[str] | None = None
) -> Reading:
    """The same, never raising."""
    problems: list[Problem] = []
    files: list[YamlFile] = []
    rules_read: list[ReadRule] = []
    trees: dict[str, Tree] = {}
    places: dict[str, str] = {}
    of_trees: list[tuple[YamlFile, Entries]] = []
    for path in _files(paths or (shipped("rules"),), problems):
        file = read_yaml(path)
        file.path = _display(path)
        file.problems = [replace(p, path=file.path) for p in file.problems]
        files.append(file)
        root = file.root
        if not isinstance(root, Entries):
            if not file.problems:
                message = "neither rules (groups: …) nor a tree (tree: …)"
                file.problems.append(Problem(file.path, None, None, "empty", message))
        elif "tree" in root.entries or "nodes" in root.entries:
            of_trees.append((file, root))
        else:
            rules_read += read_rules(file, root)
    _read_trees(of_trees, trees, places)
    rules = with_ids(rules_read)
    _check_names(rules_read, trees, receivers)
    for file in files:
        problems += sorted(file.problems, key=lambda p: (p.line or 0, p.column or 0))
    return Reading(Rulebook(rules, trees), tuple(problems), len(files), len(rules_read))


def _check_names(
    rules: Sequence[ReadRule], trees: dict[str, Tree], receivers: Collection[str] | None
) -> None:
    """Trees, alerts and receivers that rules name exist; shipped trees are added where named."""
    alerts = {str(alert.value) for one in rules for alert in one.names("alert")}
    for one in rules:
        for name in one.names("tree"):
            if name.value not in trees and name.value in shipped_trees():
                trees[str(name.value)] = shipped_trees()[str(name.value)]
            _check_name(one, name, "tree", {*trees, *shipped_trees()}, "")
        for name in one.names("inhibited_by"):
            _check_name(one, name, "alert", alerts, " in these files")
        for name in one.names("receivers") if receivers is not None else ():
            _check_name(one, name, "receiver", receivers or (), " in the configuration")


def _check_name(
    rule: ReadRule, name: Scalar, noun: str, names: Collection[str], where: str
) -> None:
    text = str(name.value)
    if text not in names:
        message = f"there is no {noun} {text}{where}"
        rule.file.add(name.place, f"unknown-{noun}", message, near(text, names))


def _read_trees(
    files: Sequence[tuple[YamlFile, Entries]],
    trees: dict[str, Tree],
    places: dict[str, str],
    *,
    alone: bool = False,
) -> None:
    """Every tree of the files: first those that stand alone, then those that continue one."""
    for file, root in sorted(files, key=lambda one: continued_by(one[1]) is not None):
        named = continued_by(root)
        more = {} if named is None or named in trees or alone else shipped_trees()
        tree = read_tree(file, root, {**more, **trees})
        if tree is not None and tree.name in trees:
            message = f"a second tree {tree.name}, first in {places[tree.name]}"
            file.add(root.entries["tree"][1].place, "duplicate", message)
        elif tree is not None:
            trees[tree.name], places[tree.name] = tree, file.path


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


def _files(paths: Sequence[Path], problems: list[Problem]) -> list[Path]:
    """Every file that is meant, each once, folders and globs in name order."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [
                *sorted([*path.glob("*.yaml"), *path.glob("*.yml")]),
                *sorted([*path.glob("trees/*.yaml"), *path.glob("trees/*.yml")]),
            ]
        elif path.exists() or not glob.has_magic(str(path)):
            inside = [path]
        else:
            inside = [Path(name) for name in sorted(glob.glob(str(path)))]  # noqa: PTH207
        if not inside:
            message = "no rule file is here (*.yaml)"
            problems.append(Problem(_display(path), None, None, "no-files", message))
        files += inside
    return list(dict.fromkeys(files))


def _display(path: Path) -> str:
    """As short as it stays true: relative to here where it lies below."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
