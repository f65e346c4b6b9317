"""Which test files are meant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driftwatch.errors import UsageError
from driftwatch.installation import shipped
from driftwatch.yaml_positions import yaml_files

FOLDER = "tests"


def files_of(named: Sequence[Path], rules: Sequence[Path]) -> tuple[Path, ...]:
    """Files, the files of folders, and globs, each once in name order.

    Args:
        named: on the command line, folders of rules with ``tests/`` too; without any the tests
            beside the rules are meant.
        rules: rule files and folders of the configuration; empty = the shipped ones.

    Raises:
        UsageError: nothing is there.
    """
    tests = map(beside, rules or (shipped("rules"),))
    paths = tuple(dict.fromkeys(map(_tests_of, named) if named else tests))
    files: list[Path] = []
    for path in paths:
        inside = yaml_files(path)
        if not inside or (path in paths and not inside[0].exists()):
            help_text = "tests of rules stand in tests/ beside them, or name their files"
            raise UsageError(f"{path}: no test file (*.yaml) is here", help_text=help_text)
        files += inside
    return tuple(dict.fromkeys(files))


def _tests_of(path: Path) -> Path:
    """The tests of a folder of rules, where one is named; else the path itself."""
    inside = path / FOLDER
    return inside if path.name != FOLDER and inside.is_dir() else path


def beside(rules: Path) -> Path:
    """The folder with the tests of a rule file or folder."""
    return (rules if rules.is_dir() else rules.parent) / FOLDER
