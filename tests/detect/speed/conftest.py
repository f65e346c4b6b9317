from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from recorded_minutes import minutes_of


@pytest.fixture(scope="session")
def run_slow(shared_data: Path) -> pl.DataFrame:
    return minutes_of(shared_data / "vllm-0.32/run_slow")


@pytest.fixture(scope="session")
def run_cap(shared_data: Path) -> pl.DataFrame:
    return minutes_of(shared_data / "vllm-0.32/run_cap")
