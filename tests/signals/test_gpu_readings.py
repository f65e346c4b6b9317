"""How many GPUs a target has, and what they did in a window."""

from __future__ import annotations

import json

import pytest
from gpu_cases import READ, counted, one, reading, seen, target

from driftwatch.signals.gpus import reasons_of

# how many


@pytest.mark.parametrize(
    ("declared", "source"), [(2.0, "declared, DCGM agrees"), (4.0, "declared 4, DCGM shows 2")]
)
def test_declared_wins_and_says_what_dcgm_shows(declared: float, source: str) -> None:
    readings = [reading(), reading(uuid="GPU-b")]
    assert counted(one(readings, target(gpus_declared=declared))) == (declared, source)


def test_engines_of_a_server_share_its_gpus() -> None:
    readings = [reading(uuid=f"GPU-{n}") for n in range(8)]
    rows = seen(readings, *(target(engine=str(n)) for n in range(4)))
    assert [counted(r) for r in rows] == [(2.0, "DCGM by pod; divided among 4 engines")] * 4
    assert [r["gpus_found"] for r in rows] == [8.0] * 4


def test_a_gpu_that_several_pods_have_is_a_whole_one_of_each() -> None:
    pods = ("rag-0", "rag-1", "other", "one-more")
    readings = [reading(second, pod=pod, power_watts=300.0) for second in (10, 40) for pod in pods]
    rows = seen(readings, target(), target("10.0.0.2:8000", pod="rag-1"))
    assert [counted(r) for r in rows] == [(1.0, "DCGM by pod")] * 2
    assert [r["gpu_power_watts"] for r in rows] == [300.0] * 2


def test_a_pod_reborn_on_other_gpus_has_never_both() -> None:
    old = [reading(s, uuid=u) for s in (5, 20) for u in ("GPU-a", "GPU-b")]
    new = [
        reading(s, uuid=u, exporter="node-2:9400", hostname="node-2")
        for s in (48, 58)
        for u in ("GPU-c", "GPU-d")
    ]
    assert counted(one([*old, *new]))[0] == 2.0
    assert counted(one([reading(5), reading(50, uuid="GPU-b")]))[0] == 1.0


# what they did


def test_a_gpu_without_a_reading_is_said() -> None:
    why = json.dumps({"power_watts": "a profiler pauses it"})
    lacking = {"power_watts": None, "reasons": why}
    row = one([reading(), reading(uuid="GPU-b", **lacking)])
    assert row["gpu_power_watts"] == 500.0
    assert reasons_of(row["gpu_reasons"]) == {}
    row = one([reading(**lacking)])
    assert row["gpu_power_watts"] is None
    assert reasons_of(row["gpu_reasons"]) == {"gpu_power_watts": "a profiler pauses it"}


def test_clock_events_of_all_readings_and_gpus() -> None:
    readings = [
        reading(5, clock_event_reasons=float(0x1)),
        reading(20, clock_event_reasons=float(0x40)),
        reading(5, uuid="GPU-b", clock_event_reasons=float(0x4)),
        reading(20, uuid="GPU-b", clock_event_reasons=None),
    ]
    assert one(readings)["gpu_clock_event_reasons"] == "sw_power_cap, hw_thermal_slowdown"
    idle = reading(clock_event_reasons=1.0)
    assert one([idle])["gpu_clock_event_reasons"] == "none"


def test_unknown_is_never_zero() -> None:
    row = one([reading(**dict.fromkeys(READ))])
    assert counted(row) == (1.0, "DCGM by pod")
    columns = {c for c in row if c.startswith(("gpu_", "gpus_lost")) and "count" not in c}
    assert {row[c] for c in columns - {"gpu_reasons"}} == {None}
    assert set(reasons_of(row["gpu_reasons"])) >= columns - {"gpu_reasons", "gpus_lost_names"}


# the whole


IDLE = {"utilization_ratio": 0.1, "sm_clock_hertz": 3.45e8}


def test_the_clock_of_an_idle_gpu_is_no_throttling() -> None:
    """It clocks down by itself: idle readings, whoever says so, are no evidence."""
    between_steps = reading(35, sm_clock_hertz=2.1e8, utilization_ratio=0.8)
    busy = one([reading(5), reading(20, **IDLE), between_steps])
    assert busy["gpu_sm_clock_hertz"] == pytest.approx(1.98e9)
    assert busy["gpu_utilization_ratio"] is not None
    for values in (IDLE, {"clock_event_reasons": 1.0, "sm_clock_hertz": 3.45e8}):
        idle = one([reading(5, **values), reading(20, **values)])
        assert idle["gpu_sm_clock_hertz"] is None
        assert "the GPU was idle" in reasons_of(idle["gpu_reasons"])["gpu_sm_clock_hertz"]


def test_a_clock_without_utilization_may_be_an_idle_one() -> None:
    row = one([reading(utilization_ratio=None, engine_active_ratio=None)])
    assert row["gpu_sm_clock_hertz"] is None
    assert "no GPU utilization" in reasons_of(row["gpu_reasons"])["gpu_sm_clock_hertz"]
    engine = one([reading(utilization_ratio=None, engine_active_ratio=0.9)])
    assert engine["gpu_sm_clock_hertz"] == pytest.approx(1.98e9)
