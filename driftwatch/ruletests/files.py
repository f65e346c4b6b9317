"""Which test files are meant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driftwatch.errors import UsageError
from driftwatch.installation import shipped
from driftwatch.rulebook.book import kind_of, read_named
from driftwatch.yaml_positions import YamlFile, yaml_files

FOLDER = "tests"


def files_of(
    named: Sequence[Path], rules: Sequence[Path], config: Path | None = None
) -> tuple[YamlFile, ...]:
    """Every test file that is meant, each once, folders and globs in name order.

    Of a folder or glob those that hold tests, and those that cannot be read.

    Args:
        named: on the command line, folders of rules with ``tests/`` too; without any the tests
            beside the rules are meant, else those beside the configuration.
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
    """The tests of a folder of rules, where one is named; else the path itself."""
    inside = path / FOLDER
    return inside if path.name != FOLDER and inside.is_dir() else path


def beside(rules: Path) -> Path:
    """The folder with the tests of a rule file or folder."""
    return (rules if rules.is_dir() else rules.parent) / FOLDER
