"""GPUs through the whole pipeline: a recorded server, and readings of the GPUs it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from service_cases import FrameSource, shipped_plan

from driftwatch.baselines.windows import fingerprints_of
from driftwatch.collect.gpus import gpu_frame
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.collect.schema import Collected
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.pipeline.state import Outcome, State
from driftwatch.service.replay import Ticks, replay
from driftwatch.store.store import Store

POD = {"namespace": "prod", "pod": "rag-0"}


class GpuSource(FrameSource):
    """A recorded server in a pod, with readings of two GPUs every 30 s; one is lost at minute 6."""

    def __init__(self, frame: pl.DataFrame, targets: dict[TargetKey, Target]) -> None:
        super().__init__(frame, targets)
        first, last = frame["time"].min(), frame["time"].max()
        assert isinstance(first, datetime)
        assert isinstance(last, datetime)
        self.span = first, last + timedelta(seconds=1)
        seconds = int((last - first).total_seconds())
        self.gpus = gpu_frame([_read(first, s, g) for s in range(7, seconds, 30) for g in "ab"])

    def collect(self, since: datetime, until: datetime) -> Collected:
        inside = pl.col("time").is_between(since, until, closed="left")
        return replace(super().collect(since, until), gpus=self.gpus.filter(inside))


def _read(first: datetime, second: int, gpu: str) -> dict[str, Any]:
    lost = gpu == "b" and second >= 360
    read: dict[str, Any] = {
        "utilization_ratio": 0.96,
        "power_watts": 500.0 + second,
        "sm_clock_hertz": 1.98e9,
    }
    return {
        "origin": "DCGM",
        "exporter": "node-1:9400",
        "time": first + timedelta(seconds=second),
        "hostname": "node-1",
        "uuid": f"GPU-{gpu}",
        "gpu_model": "H100",
        **POD,
        "lost": lost,
        **(dict.fromkeys(read) if lost else read),
        "reasons": '{"power_watts":"XID 79"}' if lost else None,
    }


@pytest.fixture(scope="module")
def server(shared_data: Path) -> GpuSource:
    recorded = RecordingSource(shared_data / "vllm-0.32" / "run_main")
    collected = recorded.collect(*recorded.span())
    targets = {
        key: replace(target, labels={**target.labels, **POD})
        for key, target in collected.targets.items()
    }
    return GpuSource(collected.scrapes, targets)


def plan(gpus: float | None = None) -> Plan:
    return replace(shipped_plan(), pools=(Pool("rag", gpus_per_replica=gpus),))


def live(
    source: GpuSource, nows: Sequence[datetime], state: State, known: Plan
) -> tuple[State, list[Outcome]]:
    ticks = Ticks([source], known, Store.in_memory(), source.span[0])
    ticks.state = state
    return ticks.state, [ticks.tick(now) for now in nows]


def test_tokens_per_second_are_divided_by_the_gpus_that_were_found(server: GpuSource) -> None:
    first, last = server.span
    _, outcomes = live(server, [last], State(collected_until={server.name: first}), plan())
    rows = pl.concat(o.rows for o in outcomes if len(o.rows)).filter(pl.col("scrapes") > 1)
    assert set(rows["gpu_count"]) == {2.0}
    assert set(rows["gpu_count_source"]) == {"DCGM by pod"}
    stored = pl.concat(o.minutes for o in outcomes).filter(pl.col("scrapes") > 1)
    assert set(stored["gpu_model"]) == {"H100"}
    ran = fingerprints_of(stored, outcomes[-1].targets, plan())
    assert {one.identity["gpu"] for one in ran.values()} == {"H100"}
    assert_frame_equal(
        rows.select(x=pl.col("tokens_per_second_per_gpu") * 2),
        rows.select(x="generation_tokens_per_second"),
    )


def test_a_lost_gpu_pages_once_and_says_what_is_left(server: GpuSource) -> None:
    first, last = server.span
    pages = [
        t.incident.page
        for outcome in replay([server], (first, last), plan(2.0))
        for t in outcome.transitions
    ]
    (page,) = [p for p in pages if p is not None and p.alert == "GpuLost"]
    assert "1 of 2 GPUs lost. Take it out of rotation" in page.summary
    assert page.evidence["gpus_lost"].names == "node-1, GPU-b"
    at = page.times.evaluated_at
    assert timedelta(minutes=6) <= at - first <= timedelta(minutes=8)
    evidence = page.evidence
    assert evidence["gpus_lost"].value == 1
    assert evidence["gpu_count"].source == "declared, DCGM agrees"
    assert evidence["gpu_clock_event_reasons"].value is None
    assert evidence["gpu_clock_event_reasons"].reason
