"""Which GPU is whose: by pod, by declared UUID, by the own host."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_cases import NVML, READ, counted, one, reading, seen, target

from driftwatch.signals.gpus import reasons_of

# whose GPU


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
