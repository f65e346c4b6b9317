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


@pytest.mark.parametrize(
    ("folder", "pattern", "shipped", "some"),
    [
        ("rules", "*.yaml", "_shipped/rules/", "trees/batch-size-drift.yaml"),
        ("migrations", "*.py", "_shipped/migrations/", "env.py"),
        ("driftwatch", "*.py", "", "cli/main.py"),
        ("driftwatch/_demo", "*", "_demo/", "run_cap.jsonl.gz"),
        ("driftwatch/simulate", "*.yaml", "simulate/", "gpus.yaml"),
    ],
)
def test_every_file_that_runs_is_in_the_wheel(
    wheel: zipfile.ZipFile, folder: str, pattern: str, shipped: str, some: str
) -> None:
    paths = [path for path in (ROOT / folder).rglob(pattern) if "__pycache__" not in path.parts]
    names = {str(path.relative_to(ROOT / folder)) for path in paths if path.is_file()}
    assert some in names
    assert {f"driftwatch/{shipped}{name}" for name in names} <= set(wheel.namelist())


def test_the_shipped_rules_are_found_and_pass_from_the_wheel(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    """Away from the checkout."""
    wheel.extractall(tmp_path)
    code = (
        "import sys, driftwatch; from driftwatch.cli.main import main; "
        f"assert driftwatch.__file__.startswith({str(tmp_path)!r}), driftwatch.__file__; "
        "sys.argv = ['driftwatch', 'check', 'driftwatch/_shipped/rules']; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
