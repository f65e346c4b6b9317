"""Whose GPU it is, how many a target has, and what they did in a window."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from driftwatch.collect.gpus import TIME, gpu_frame
from driftwatch.signals.gpu_links import GPU_TARGET_SCHEMA
from driftwatch.signals.gpus import gpu_columns, reasons_of

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


READ = {
    "utilization_ratio": 0.9,
    "sm_clock_hertz": 1.98e9,
    "power_watts": 500.0,
    "framebuffer_used_bytes": 7e10,
    "clock_event_reasons": 0.0,
    "lost": False,
}


def reading(second: Any = 10.0, **values: Any) -> dict[str, Any]:
    row = {
        "origin": "DCGM",
        "exporter": "node-1:9400",
        "time": NOON + timedelta(seconds=second),
        "hostname": "node-1",
        "own_host": False,
        "gpu": "0",
        "uuid": "GPU-a",
        "namespace": "prod",
        "pod": "rag-0",
        "container": "vllm",
    }
    return row | READ | values


def target(instance: str = "10.0.0.1:8000", **values: Any) -> dict[str, Any]:
    host = instance.rpartition(":")[0]
    row: dict[str, Any] = {
        "instance": instance,
        "engine": "0",
        "cluster": None,
        "namespace": "prod",
        "pod": "rag-0",
        "host": host,
        "own_host": False,
        "gpu_uuids": [],
        "gpus_declared": None,
    }
    return row | values


def targets(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=dict(GPU_TARGET_SCHEMA), orient="row")


def seen(readings: list[dict[str, Any]], *rows: dict[str, Any]) -> list[dict[str, Any]]:
    """The columns of the first minute, a row per target."""
    known = targets(*(rows or (target(),)))
    minutes = known.select("instance", "engine", start=pl.lit(NOON, dtype=TIME))
    return gpu_columns(minutes, gpu_frame(readings), known).to_dicts()


def one(readings: list[dict[str, Any]], *rows: dict[str, Any]) -> dict[str, Any]:
    (row,) = seen(readings, *rows)
    return row


def counted(row: dict[str, Any]) -> tuple[float | None, str | None]:
    return row["gpu_count"], row["gpu_count_source"]


NVML: dict[str, Any] = {"origin": "NVML", "exporter": "nvml:node-1", "own_host": True, "pod": None}


def two_clusters(**more: Any) -> list[dict[str, Any]]:
    """A pod of the same name on a node of the same name in each of two clusters, 4 GPUs each."""
    return [
        reading(
            second,
            uuid=f"GPU-{cluster}{n}",
            gpu=str(n),
            exporter=f"10.{number}.0.1:9400",
            power_watts=watts,
            lost=cluster == "b" and n == 0,
            **{key: value.get(cluster) for key, value in more.items()},
        )
        for number, (cluster, watts) in enumerate((("a", 700.0), ("b", 100.0)))
        for n in range(4)
        for second in (10, 40)
    ]


A, B = "10.0.0.5:8000", "10.1.0.5:8000"


def test_the_same_pod_in_two_clusters_is_told_apart_by_the_cluster() -> None:
    rows = seen(
        two_clusters(cluster={"a": "a", "b": "b"}),
        target(A, cluster="a"),
        target(B, cluster="b"),
    )
    assert [counted(row) for row in rows] == [(4.0, "DCGM by pod")] * 2
    assert [row["gpu_power_watts"] for row in rows] == [700.0, 100.0]
    assert [row["gpus_lost"] for row in rows] == [0, 1]


@pytest.mark.parametrize(
    ("rows", "hostname"),
    [
        ([target(A), target(B)], {"a": "node-1", "b": "node-1"}),
        ([target(A, cluster="a"), target(B, cluster="b")], {"a": "na", "b": "nb"}),
        ([target(A, cluster="a")], {}),
    ],
)
def test_without_a_cluster_two_pods_of_one_name_are_no_number(
    rows: list[dict[str, Any]], hostname: dict[str, str]
) -> None:
    for row in seen(two_clusters(hostname=hostname), *rows):
        assert counted(row) == (None, None)
        assert row["gpu_power_watts"] is row["gpus_lost"] is None
        why = reasons_of(row["gpu_reasons"])["gpus_lost"]
        assert why.startswith("several pods have the target's name at one time (prod/rag-0 on ")
        assert "10.0.0.1:9400" in why
        assert "10.1.0.1:9400" in why


def test_by_namespace_and_pod() -> None:
    row = one([reading(), reading(40)])
    assert counted(row) == (1.0, "DCGM by pod")
    assert row["gpu_utilization_ratio"] == pytest.approx(0.9)
    assert row["gpu_sm_clock_hertz"] == pytest.approx(1.98e9)
    assert row["gpu_clock_event_reasons"] == "none"
    assert row["gpus_lost"] == 0
    assert row["gpu_reasons"] is None


def test_a_pod_without_namespace_joins_where_only_one_is_meant() -> None:
    assert counted(one([reading()], target(namespace=None)))[0] == 1.0
    two = [reading(), reading(namespace="test", uuid="GPU-b")]
    assert counted(one(two, target(namespace=None))) == (None, None)


@pytest.mark.parametrize(
    ("host", "hostname", "joins"),
    [
        ("gpu-01", "gpu-01.rack.example", True),
        ("GPU-01.rack.example", "gpu-01", True),
        ("gpu-01", "gpu-02", False),
        ("10.0.0.1", "10.0.0.7", False),
    ],
)
def test_by_hostname_and_declared_uuid(host: str, hostname: str, joins: bool) -> None:
    bare: dict[str, Any] = {"namespace": None, "pod": None, "gpu_uuids": ["GPU-a", "GPU-b"]}
    pool = [
        target("h1:8000", host=host, **bare),
        target("h2:8000", host="gpu-99", **bare),
    ]
    mine = reading(hostname=hostname, namespace=None, pod=None)
    row, other = seen([mine, mine | {"uuid": "GPU-c"}], *pool)
    assert counted(row) == ((1.0, "DCGM by hostname and UUID") if joins else (None, None))
    assert counted(other) == (None, None)


def test_gpus_in_use_on_the_own_host_are_those_of_its_only_server() -> None:
    mine = target("localhost:8000", pod=None, own_host=True)
    idle = reading(**NVML, uuid="GPU-b", framebuffer_used_bytes=4e6)
    assert counted(one([reading(**NVML), idle], mine)) == (1.0, "NVML by own host")
    # another machine's GPUs are not
    assert counted(one([reading(**NVML)], target(pod=None)))[0] is None
    other = target("localhost:8001", pod=None, own_host=True)
    rows = seen([reading(**NVML)], mine, other)
    assert all("not the only server of this machine" in row["gpu_reasons"] for row in rows)


def test_a_lost_gpu_is_whose_it_was() -> None:
    mine = target("localhost:8000", pod=None, own_host=True)
    gone = dict.fromkeys(READ) | {"lost": True}
    row = one([reading(-50, **NVML), reading(**(NVML | gone))], mine)
    assert row["gpus_lost"] == 1
    assert row["gpu_power_watts"] is None


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
    without_reason = {"gpu_reasons", "gpus_lost_names", "gpu_model"}
    assert set(reasons_of(row["gpu_reasons"])) >= columns - without_reason


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
