"""The wheel holds everything that a machine without the checkout needs, and works from there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from the checkout by the locked build backend; no network is asked."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def _files(folder: Path, pattern: str) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob(pattern)
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_every_rule_and_tree_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    rules = _files(ROOT / "rules", "*.yaml")
    assert any(name.startswith("trees/") for name in rules)
    assert {f"driftwatch/_shipped/rules/{name}" for name in rules} <= set(wheel.namelist())


def test_every_migration_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    migrations = _files(ROOT / "migrations", "*.py")
    assert "env.py" in migrations
    assert any(name.startswith("versions/") for name in migrations)
    assert {f"driftwatch/_shipped/migrations/{name}" for name in migrations} <= set(
        wheel.namelist()
    )


def test_every_module_and_the_demo_are_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert {f"driftwatch/{name}" for name in _files(ROOT / "driftwatch", "*.py")} <= names
    assert "driftwatch/_demo/run_cap.jsonl.gz" in names
    assert "driftwatch/_demo/SOURCE.md" in names
    assert {"driftwatch/simulate/gpus.yaml", "driftwatch/simulate/models.yaml"} <= names


@pytest.fixture(scope="module")
def unpacked(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    wheel.extractall(folder)
    return folder


def _driftwatch(unpacked: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command from the unpacked wheel, away from the checkout."""
    code = (
        "import sys, driftwatch; "
        f"assert driftwatch.__file__.startswith({str(unpacked)!r}), driftwatch.__file__; "
        f"sys.argv = ['driftwatch', *{list(arguments)!r}]; "
        "from driftwatch.cli.main import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=unpacked,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_shipped_rules_are_found_and_pass_from_the_wheel(unpacked: Path) -> None:
    rules = unpacked / "driftwatch" / "_shipped" / "rules"
    ran = _driftwatch(unpacked, "check", str(rules))
    assert ran.returncode == 0, ran.stdout + ran.stderr
