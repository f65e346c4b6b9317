"""The scripts that people and CI call parse, stop at the first error, and can be executed."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    path
    for path in [*(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run"]
    if path.is_file() and path.suffix not in (".py", ".toml")
)
BASH = [
    path for path in SCRIPTS if path.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash")
]


def test_there_are_scripts() -> None:
    names = {path.name for path in BASH}
    assert {"check", "test", "lock", "run"} <= names


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_it_can_be_executed(path: Path) -> None:
    assert os.access(path, os.X_OK)
    assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/env ")


@pytest.mark.parametrize("path", BASH, ids=lambda path: path.name)
def test_it_parses_and_stops_at_the_first_error(path: Path) -> None:
    ran = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "\nset -euo pipefail\n" in path.read_text(encoding="utf-8")


def test_make_test_hands_its_arguments_on() -> None:
    ran = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "test", "PYTEST_ARGS=tests/house -k nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert " tests/house -k nothing" in ran.stdout


def test_no_two_test_modules_have_one_name() -> None:
    """Pytest imports them by their names alone: the second of one name cannot be collected."""
    names = Counter(
        path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"
    )
    assert [name for name, count in names.items() if count > 1] == []
