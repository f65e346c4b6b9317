"""The walls between packages hold, and every package says what lives in it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "driftwatch"


def test_no_module_is_long() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in PACKAGE.rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert long == {}


def test_no_function_is_long() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": lines
        for path in PACKAGE.rglob("*.py")
        if not path.name.startswith("kernel_")  # loops that Numba compiles: a call would cost
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > 80
    }
    assert long == {}


def test_run_loads_neither_the_lab_nor_the_fleet() -> None:
    """What pages at night does not carry what is for before there is traffic, or for tests."""
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, driftwatch.cli.run, driftwatch.service.run, driftwatch.pipeline.tick\n"
            "print([m for m in sys.modules"
            " if m.startswith(('driftwatch.lab', 'driftwatch.fleet'))])",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.strip() == "[]", ran.stdout + ran.stderr


def test_nobody_but_tests_and_the_demo_imports_the_fleet() -> None:
    users = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            if any(name.startswith("driftwatch.fleet") for name in names):
                users.add(str(path.relative_to(PACKAGE)))
    assert {user for user in users if not user.startswith("fleet/")} <= {"cli/demo.py"}
