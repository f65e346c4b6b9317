"""Evidence of stored minutes, ten by ten: what `explain` says of each window by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from filled import filled
from pool_cases import one_pool
from service_cases import shipped_plan

from driftwatch.collect.schema import KEY
from driftwatch.detect.reference import no_reference
from driftwatch.model import Slo
from driftwatch.pipeline.explain import Window, explain
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.stored_evidence import TEN_MINUTES, by_clock, stored_evidence
from driftwatch.pipeline.stored_state import stored_targets


def plan() -> Plan:
    """With a latency target, so that what needs one has a value."""
    chat = one_pool(shipped_plan())
    pools = tuple(replace(pool, slo=Slo(0.5, 0.05, 0.95)) for pool in chat.pools)
    return replace(chat, pools=pools)


def test_each_row_is_that_windows(shared_data: Path) -> None:
    """A restarted server's window counts from its restart on, as `explain` counts."""
    with filled(shared_data / "vllm-0.32" / "run_cap", plan()) as store:
        (target,) = plan().assign(stored_targets(store)).values()
        reach = store.minutes_reach()
        assert reach is not None
        stored = store.past(*reach)
        windows, every = by_clock(stored, TEN_MINUTES), {target.key: target}
        rows = stored_evidence(stored, windows, every, plan(), no_reference())
        assert len(rows) >= 2
        assert rows["minutes"].sum() == len(store.minutes(*reach))
        for row in rows.filter(pl.col("end").dt.minute() % 10 == 0).iter_rows(named=True):
            window = Window(row["end"] - TEN_MINUTES, row["end"])
            found, whole = explain(store, target, window, plan(), no_reference())
            assert whole.end == row["end"]
            for name in found.evidence.keys() & row.keys() - {*KEY, "start"}:
                expected = row[name]
                if isinstance(expected, float):
                    expected = pytest.approx(expected, rel=1e-9)
                assert found.evidence[name] == expected, name
            assert whole.start >= row["end"] - timedelta(minutes=10)
