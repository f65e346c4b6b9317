"""Evidence of stored minutes, ten by ten: what `explain` says of each window by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from pool_cases import one_pool
from service_cases import shipped_plan

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.detect.reference import no_reference
from driftwatch.model import Slo, Target, TargetKey
from driftwatch.pipeline.past_evidence import past_evidence
from driftwatch.pipeline.past_windows import past_row
from driftwatch.pipeline.plan import Plan
from driftwatch.service.history import keep_history
from driftwatch.store import Store

TEN = timedelta(minutes=10)
# what a window is called by, and where it begins within its ten minutes
_PLACE = ("start", "end", "minutes")


def plan() -> Plan:
    """With a latency target, so that what needs one has a value."""
    chat = one_pool(shipped_plan())
    pools = tuple(replace(pool, slo=Slo(0.5, 0.05, 0.95)) for pool in chat.pools)
    return replace(chat, pools=pools)


def test_each_row_is_that_windows(shared_data: Path, tmp_path: Path) -> None:
    """A restarted server's window counts from its restart on, as `explain` counts."""
    source = RecordingSource(shared_data / "vllm-0.32" / "run_cap")
    first, last = source.span()
    with Store.open(tmp_path / "db") as store:
        found = keep_history(store, [source], (first, last), plan())
        targets = plan().assign({key: Target(key, t.labels) for key, t in found.items()})
        rows = past_evidence(store, targets, first, last, plan(), no_reference())
        assert len(rows) >= 2
        assert rows["minutes"].sum() == len(store.minutes(first, last))
        compared = 0
        for row in rows.iter_slices(1):
            compared += _is_that_of_explain(store, targets, row)
    assert compared == len(rows)


def _is_that_of_explain(store: Store, targets: dict[TargetKey, Target], row: pl.DataFrame) -> int:
    key, end = TargetKey(row["instance"][0], row["engine"][0]), row["end"][0]
    assert isinstance(end, datetime)
    of_window = store.past(end - TEN, end, [key])
    expected = past_row(of_window, targets[key], plan(), no_reference())
    for name in (n for n in expected.columns if n not in _PLACE):
        one, other = row[name][0], expected[name][0]
        if isinstance(other, float) and isinstance(one, float):
            assert one == pytest.approx(other, rel=1e-9), name
        elif not isinstance(other, pl.Series):
            # the last two minutes of a window that is not over are not those of its clock
            assert one == other or ("_2m" in name and of_window["end"][-1] != end), name
    return 1
