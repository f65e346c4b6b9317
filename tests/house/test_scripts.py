"""What scripts and the Makefile promise."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def budgets_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bounds: str, *arguments: str
) -> tuple[int, str]:
    """The exit code of scripts/budgets.py where a room has 10 lines, and the bounds after it."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    budgets = importlib.import_module("budgets")
    (tmp_path / "budgets.toml").write_text(f"# why\n\n{bounds}")
    monkeypatch.setattr(budgets, "BUDGETS", tmp_path / "budgets.toml")
    monkeypatch.setattr(budgets, "SECONDS", tmp_path / "none")
    monkeypatch.setattr(budgets, "sizes", lambda: {"lines": {"room": 10}})
    monkeypatch.setattr(sys, "argv", ["budgets.py", *arguments])
    return budgets.main(), (tmp_path / "budgets.toml").read_text()


@pytest.mark.parametrize(("bound", "code", "tightened"), [(9, 1, 9), (10, 0, 10), (11, 0, 10)])
def test_what_is_over_its_budget_fails_and_a_budget_only_goes_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bound: int, code: int, tightened: int
) -> None:
    bounds = f"[lines]\nroom = {bound}\n\n[seconds]\nmake_test = 5\n"
    assert budgets_with(monkeypatch, tmp_path, bounds)[0] == code
    after = budgets_with(monkeypatch, tmp_path, bounds, "--tighten")[1]
    assert after == f"# why\n\n[lines]\nroom = {tightened}\n\n[seconds]\nmake_test = 5\n"
    assert budgets_with(monkeypatch, tmp_path, "[lines]\n")[0] == 1  # a room without one


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
