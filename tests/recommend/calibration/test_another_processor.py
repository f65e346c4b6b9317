"""The same answer on another processor: NumPy's and BLAS' wide instructions round otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fit_apart import forecasts

ROOT = Path(__file__).resolve().parents[3]


def optional_features() -> list[str]:
    """What NumPy chooses at run time on this processor, of what this build could."""
    found = np.show_config(mode="dicts")
    assert isinstance(found, dict)
    return list(found["SIMD Extensions"].get("found", []))


@pytest.mark.slow
def test_a_fit_ends_where_it_does_without_the_wide_instructions() -> None:
    """A simulation is a staircase: the last digit of a sum may end a descent a step elsewhere.
    What is forecast must not move by more than a hundredth, and the same variant must lead."""
    features = optional_features()
    if not features:
        pytest.skip("NumPy found no optional instructions here: there is nothing to turn off")
    apart = {
        **os.environ,
        "NPY_DISABLE_CPU_FEATURES": " ".join(features),
        "OPENBLAS_CORETYPE": "Nehalem",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)]),
    }
    told = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "fit_apart.py")],
        env=apart,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    without = dict(line.split("\t") for line in told.stdout.splitlines())
    here = forecasts()
    assert without.keys() == here.keys()
    assert float(without["best"]) == here["best"]
    for name, value in here.items():
        rel = 0.01 if " step-time model " in name else 0.03
        assert float(without[name]) == pytest.approx(value, rel=rel), name
