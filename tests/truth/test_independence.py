"""The judge shares no code with what it judges."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
JUDGED = (
    "signals",
    "detect",
    "diagnose",
    "recommend",
    "rulebook",
    "notify",
    "service",
    "condition",
)


def _files() -> list[Path]:
    return [BENCH / "truth.py", *sorted((BENCH / "truth_judge").glob("*.py"))]


def test_nothing_that_decides_is_loaded_through_others() -> None:
    modules = ["truth", *(f"truth_judge.{p.stem}" for p in _files()[1:] if p.stem != "__init__")]
    lines = [
        "import sys",
        f"sys.path.insert(0, {str(BENCH)!r})",
        *(f"import {module}" for module in modules),
        f"judged = {JUDGED!r}",
        "print([m for m in sys.modules if m.startswith('driftwatch.')"
        " and m.split('.')[1] in judged])",
    ]
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "[]"
