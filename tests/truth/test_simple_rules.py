"""The two rules of an afternoon page as anybody would expect of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
from truth_judge.simple_rules import FOLK, RAW, said_by

START = datetime(2026, 11, 16, tzinfo=UTC)
S0 = START.timestamp()


def written(folder: Path, slower_from: int, waits_from: int) -> Path:
    minutes = np.arange(240)
    itl = np.where((minutes >= slower_from) & (minutes < slower_from + 30), 0.06, 0.05)
    pl.DataFrame(
        {
            "instance": ["a:8000"] * 240,
            "time": [START + timedelta(minutes=int(m)) for m in minutes],
            "ok": [True] * 240,
            "itl_seconds_sum": np.cumsum(itl * 1000.0),
            "itl_seconds_count": np.cumsum(np.full(240, 1000.0)),
            "waiting_requests": np.where(
                (minutes >= waits_from) & (minutes < waits_from + 9), 3.0, 0.0
            ),
        }
    ).write_parquet(folder / "0000-000.scrapes.parquet")
    return folder


def test_each_speaks_once_of_what_it_looks_at(tmp_path: Path) -> None:
    said = said_by(written(tmp_path, 150, 200), (S0, S0 + 7200))
    (slow,), (waits,) = said[RAW], said[FOLK]
    assert (slow.rule, waits.rule) == ("SlowerAtEqualLoad", "BatchLimitBinding")
    assert 156 <= (slow.at_seconds - S0) / 60 <= 160
    assert 203 <= (waits.at_seconds - S0) / 60 <= 206


def test_without_a_baseline_nothing_is_slower(tmp_path: Path) -> None:
    assert said_by(written(tmp_path, 150, 200), None)[RAW] == []
