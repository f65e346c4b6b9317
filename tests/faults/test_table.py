"""The table of faults names tests that there are, and every test of this folder."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "sre" / "faults.md"
COLUMNS = 5
PROMISES = {f"P{number}" for number in range(1, 7)}
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def _rows() -> list[list[str]]:
    """The cells of each fault, in the order of the page."""
    rows = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| fault |"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


ROWS = _rows()


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_says_all_and_names_tests_that_there_are(row: list[str]) -> None:
    assert len(row) == COLUMNS
    assert all(row)
    assert set(row[2].split()) <= PROMISES
    names = NAMED.findall(row[4])
    assert names
    for file, name in names:
        assert name in _tests(TESTS / file), f"{file} has no {name}"


def test_no_fault_stands_twice() -> None:
    assert len({row[0] for row in ROWS}) == len(ROWS)


def test_every_test_of_this_folder_stands_in_the_table() -> None:
    named = {name for row in ROWS for name in NAMED.findall(row[4])}
    here = Path(__file__).parent
    missing = [
        f"{path.relative_to(TESTS)}::{test}"
        for path in sorted(here.glob("test_*.py"))
        if path != Path(__file__)
        for test in sorted(_tests(path))
        if (path.relative_to(TESTS).as_posix(), test) not in named
    ]
    assert missing == []


def _tests(path: Path) -> set[str]:
    """Names of a module's test functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
