"""GPU readings joined to targets: whose GPU it is, how many there are, what they did."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from driftwatch.collect.gpus import GPU_FIELDS, TIME, empty_gpus, gpu_frame
from driftwatch.signals.gpus import GPU_TARGET_SCHEMA, gpu_columns, gpu_counts
from driftwatch.signals.gpus.words import CLOCK_WITHOUT_UTILIZATION, NO_READING, reasons_of

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
READ = {
    "utilization_ratio": 0.9,
    "tensor_active_ratio": 0.4,
    "dram_active_ratio": 0.5,
    "sm_clock_hertz": 1.98e9,
    "power_watts": 500.0,
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
    host, _, port = instance.rpartition(":")
    row: dict[str, Any] = {
        "instance": instance,
        "engine": "0",
        "cluster": None,
        "namespace": "prod",
        "pod": "rag-0",
        "host": host,
        "port": int(port),
        "own_host": False,
        "gpu_uuids": [],
        "gpus_declared": None,
    }
    return row | values


def targets(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=dict(GPU_TARGET_SCHEMA), orient="row")


def windows(known: pl.DataFrame, *minutes: int, length: float = 60.0) -> pl.DataFrame:
    spans = pl.DataFrame(
        [
            (NOON + timedelta(minutes=m), NOON + timedelta(minutes=m, seconds=length))
            for m in minutes or (0,)
        ],
        schema={"start": TIME, "end": TIME},
        orient="row",
    )
    return known.select("instance", "engine").join(spans, how="cross", maintain_order="left_right")


def seen(
    readings: list[dict[str, Any]], *rows: dict[str, Any], length: float = 60.0
) -> list[dict[str, Any]]:
    """The columns of the first minute, a row per target."""
    known = targets(*(rows or (target(),)))
    found = gpu_columns(windows(known, length=length), gpu_frame(readings), known)
    return found.to_dicts()


def one(
    readings: list[dict[str, Any]], *rows: dict[str, Any], length: float = 60.0
) -> dict[str, Any]:
    (row,) = seen(readings, *rows, length=length)
    return row


def counted(row: dict[str, Any]) -> tuple[float | None, str | None]:
    return row["gpu_count"], row["gpu_count_source"]


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
    "rows",
    [
        [target(A), target(B)],
        [target(A, cluster="a"), target(B, cluster="b")],
        [target(A, cluster="a")],
    ],
)
@pytest.mark.parametrize("hostname", [{"a": "node-1", "b": "node-1"}, {"a": "na", "b": "nb"}, {}])
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


def test_a_reading_without_cluster_joins_no_servers_of_two() -> None:
    rows = seen([reading()], target(A, cluster="a"), target(B, cluster="b"))
    assert [counted(row) for row in rows] == [(None, None)] * 2
    assert counted(one([reading()], target(A, cluster="a"))) == (1.0, "DCGM by pod")
    assert counted(one([reading(cluster="a")], target(A))) == (1.0, "DCGM by pod")
    assert counted(one([reading(cluster="b")], target(A, cluster="a"))) == (None, None)


def test_declared_counts_where_two_pods_cannot_be_told_apart() -> None:
    row = one(two_clusters(), target(A, gpus_declared=4.0))
    assert counted(row) == (4.0, "declared")
    assert row["gpu_power_watts"] is None


def test_two_exporters_of_one_node_are_no_two_pods() -> None:
    more = {"exporter": "10.0.0.9:9400", "hostname": None}
    rows = [reading(uuid=uuid, **e) for uuid in ("GPU-a", "GPU-b") for e in ({}, more)]
    assert counted(one(rows)) == (2.0, "DCGM by pod")


AGENT = {"exporter": "node-1:9500", "namespace": None, "pod": None, "container": None}


def test_what_only_the_agent_knows_of_a_pods_gpu_is_the_pods() -> None:
    dcgm = [reading(10, lost=None, clock_event_reasons=None, pod=pod) for pod in ("rag-0", "b")]
    agent = [
        reading(20, lost=True, clock_event_reasons=4.0, utilization_ratio=None, **AGENT),
        reading(20, lost=True, uuid="GPU-other", gpu="1", **AGENT),
    ]
    row = one([*dcgm, *agent])
    assert counted(row) == (0.5, "DCGM by pod; shared by 2 pods")
    assert row["gpus_lost"] == 1
    assert row["gpu_clock_event_reasons"] == "sw_power_cap"
    assert row["gpu_utilization_ratio"] == pytest.approx(0.9)


def test_a_lost_gpu_that_only_the_agent_still_shows_is_whose_it_was() -> None:
    rows = [reading(-600), reading(10, lost=True, **AGENT)]
    assert one(rows)["gpus_lost"] == 1
    assert one([reading(-600), reading(10, **AGENT)])["gpus_lost"] is None
    # it was given to another pod, or to none, before
    taken = [reading(-300, pod="other"), reading(-300, pod=None, namespace=None)]
    for later in taken:
        assert one([rows[0], later, rows[1]])["gpus_lost"] is None


def test_a_lost_gpu_is_lost_whichever_exporter_is_the_fuller_one() -> None:
    rows = [reading(), reading(exporter="x:9400", lost=True, power_watts=None)]
    assert one(rows)["gpus_lost"] == 1


def test_a_declared_gpu_is_the_servers_whatever_pods_share_it() -> None:
    mine = target(namespace=None, pod=None, gpu_uuids=["GPU-a"], host="node-1")
    row = one([reading(pod="a"), reading(pod="b")], mine)
    assert counted(row) == (1.0, "DCGM by hostname and UUID")


def test_one_pass_over_a_hosts_gpus_before_the_window_counts_whole() -> None:
    rows = [
        reading(-30 - 2 * n, uuid=f"GPU-{n}", gpu=str(n), power_watts=100.0 * n) for n in (0, 1)
    ]
    assert one(rows)["gpu_power_watts"] == 50.0
    # one of the pass before does not
    rows = [reading(-30), reading(-60, power_watts=100.0)]
    assert one(rows)["gpu_power_watts"] == 500.0


def test_the_time_with_the_most_gpus_tells_how_many() -> None:
    rows = [reading(10), reading(10, uuid="GPU-b", gpu="1"), reading(40)]
    assert one(rows)["gpu_count"] == 2.0


def test_a_lost_gpu_of_the_own_host_is_whose_it_was_an_hour_ago() -> None:
    own = {"origin": "NVML", "own_host": True, "pod": None, "namespace": None, "uuid": None}
    rows = [
        reading(-3600, ports=[8000], **own),
        reading(10, lost=True, ports=None, **own),
    ]
    row = one(rows, target("localhost:8000", pod=None, namespace=None, own_host=True))
    assert row["gpus_lost"] == 1


def test_by_namespace_and_pod() -> None:
    row = one([reading(), reading(40)])
    assert counted(row) == (1.0, "DCGM by pod")
    assert row["gpu_utilization_ratio"] == pytest.approx(0.9)
    assert row["gpu_sm_clock_hertz"] == pytest.approx(1.98e9)
    assert row["gpu_clock_event_reasons"] == "none"
    assert row["gpus_lost"] == 0
    assert row["gpu_reasons"] is None


def test_another_namespace_is_another_pod() -> None:
    row = one([reading(namespace="test")])
    assert counted(row) == (None, None)
    assert reasons_of(row["gpu_reasons"])["gpu_count"] == (
        "gpus_per_replica not declared; no GPU reading joins the target: none names pod "
        "prod/rag-0, gpu_uuids not declared"
    )
    assert reasons_of(row["gpu_reasons"])["gpu_power_watts"].startswith("no GPU reading joins")


def test_a_pod_without_namespace_joins_where_only_one_is_meant() -> None:
    assert counted(one([reading()], target(namespace=None)))[0] == 1.0
    two = [reading(), reading(namespace="test", uuid="GPU-b")]
    assert counted(one(two, target(namespace=None))) == (None, None)


@pytest.mark.parametrize(
    ("host", "hostname", "joins"),
    [
        ("gpu-01", "gpu-01.rack.example", True),
        ("GPU-01.rack.example", "gpu-01", True),
        ("gpu-01.rack.example", "gpu-01.other.example", False),
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


def test_the_exporters_address_is_a_hostname_too() -> None:
    bare: dict[str, Any] = {"namespace": None, "pod": None, "gpu_uuids": ["GPU-a"]}
    mine = reading(exporter="10.0.0.1:9400", pod=None)
    pool = [target(**bare), target("10.0.0.2:8000", **bare)]
    assert [counted(row)[0] for row in seen([mine], *pool)] == [1.0, None]


def test_a_uuid_declared_for_one_server_needs_no_host() -> None:
    row = one([reading(pod=None)], target(pod=None, gpu_uuids=["GPU-a"]))
    assert counted(row)[0] == 1.0


def test_two_servers_of_a_host_share_its_declared_gpus() -> None:
    bare: dict[str, Any] = {"pod": None, "host": "node-1", "gpu_uuids": ["GPU-a", "GPU-b"]}
    pool = [target("node-1:8000", **bare), target("node-1:8001", **bare)]
    rows = seen([reading(pod=None), reading(pod=None, uuid="GPU-b")], *pool)
    assert {counted(r) for r in rows} == {(1.0, "DCGM by hostname and UUID; shared by 2 servers")}


NVML: dict[str, Any] = {"origin": "NVML", "exporter": "nvml:node-1", "own_host": True, "pod": None}


def test_by_the_port_of_its_process_on_the_own_host() -> None:
    mine = target("localhost:8000", pod=None, own_host=True)
    row = one([reading(**NVML, ports=[8000]), reading(**NVML, uuid="GPU-b", ports=[9000])], mine)
    assert counted(row) == (1.0, "NVML by process")
    # the same port on another machine is another server
    assert counted(one([reading(**NVML, ports=[8000])], target(pod=None)))[0] is None
    row = one([reading(**NVML, ports=None)], mine)
    assert "no GPU process is known to listen on port 8000" in row["gpu_reasons"]


def test_a_lost_gpu_is_whose_it_was() -> None:
    mine = target("localhost:8000", pod=None, own_host=True)
    before = reading(-50, **NVML, ports=[8000])
    gone = dict.fromkeys(READ) | {"lost": True, "ports": None}
    row = one([before, reading(**(NVML | gone))], mine)
    assert row["gpus_lost"] == 1
    assert row["gpu_power_watts"] is None


def test_the_most_trusted_way_alone_counts() -> None:
    mine = target(gpu_uuids=["GPU-z"], host="node-1")
    row = one([reading(), reading(uuid="GPU-z", pod=None)], mine)
    assert counted(row) == (1.0, "DCGM by pod")


# how many


@pytest.mark.parametrize(
    ("declared", "source"), [(2.0, "declared, DCGM agrees"), (4.0, "declared 4, DCGM shows 2")]
)
def test_declared_wins_and_says_what_dcgm_shows(declared: float, source: str) -> None:
    readings = [reading(), reading(uuid="GPU-b")]
    assert counted(one(readings, target(gpus_declared=declared))) == (declared, source)


def test_declared_without_readings() -> None:
    row = one([], target(gpus_declared=2.0))
    assert counted(row) == (2.0, "declared")
    assert set(reasons_of(row["gpu_reasons"]).values()) == {NO_READING}
    known = targets(target())
    for gpus in (None, empty_gpus()):
        assert gpu_columns(windows(known), gpus, known)["gpu_count"].to_list() == [None]
    assert gpu_columns(windows(known), None, None)["gpu_count"].to_list() == [None]


def test_engines_of_a_server_share_its_gpus() -> None:
    readings = [reading(uuid=f"GPU-{n}") for n in range(8)]
    rows = seen(readings, *(target(engine=str(n)) for n in range(4)))
    assert [counted(r) for r in rows] == [(2.0, "DCGM by pod; divided among 4 engines")] * 4
    assert [r["gpus_found"] for r in rows] == [8.0] * 4


def test_a_time_sliced_gpu_counts_by_its_shares() -> None:
    readings = [
        reading(second, pod=pod, power_watts=300.0)
        for second in (10, 40)
        for pod in ("rag-0", "rag-1", "other", "one-more")
    ]
    rows = seen(readings, target(), target("10.0.0.2:8000", pod="rag-1"))
    assert [counted(r) for r in rows] == [(0.25, "DCGM by pod; shared by 4 pods")] * 2
    assert [r["gpu_power_watts"] for r in rows] == [300.0] * 2  # the device's, not a quarter


def test_containers_of_a_pod_do_not_multiply() -> None:
    assert counted(one([reading(), reading(container="sidecar")])) == (1.0, "DCGM by pod")


def test_mig_instances_count_each_and_are_busy_by_their_engine() -> None:
    mig = [
        reading(
            mig_profile="3g.40gb",
            mig_instance=str(n),
            utilization_ratio=0.0,
            engine_active_ratio=0.3 + 0.2 * n,
        )
        for n in (1, 2)
    ]
    row = one(mig)
    assert counted(row) == (2.0, "DCGM by pod; MIG 3g.40gb")
    assert row["gpu_utilization_ratio"] == pytest.approx(0.6)


def test_a_gpu_that_two_origins_tell_counts_once() -> None:
    narrow = {"tensor_active_ratio": None, "dram_active_ratio": None, "power_watts": 480.0}
    nvml = NVML | narrow | {"pod": "rag-0", "clock_event_reasons": 4.0}
    full = reading(clock_event_reasons=None)
    row = one([full, reading(12, **nvml), reading(42, **nvml)])
    assert counted(row) == (1.0, "DCGM by pod")
    assert row["gpu_power_watts"] == 500.0  # the fuller one's alone, not a mean of both
    assert row["gpu_clock_event_reasons"] == "sw_power_cap"  # what it lacks, the other tells


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


def test_a_mean_over_readings_then_over_gpus() -> None:
    readings = [
        reading(5, power_watts=100.0),
        reading(20, power_watts=200.0),
        reading(35, power_watts=300.0),
        reading(5, uuid="GPU-b", power_watts=600.0),
    ]
    assert one(readings)["gpu_power_watts"] == pytest.approx(400.0)


def test_readings_of_the_window_only() -> None:
    edges = [reading(0, power_watts=1.0), reading(60, power_watts=99.0)]
    assert one([reading(-1, power_watts=50.0), *edges])["gpu_power_watts"] == 1.0


@pytest.mark.parametrize(("age", "value"), [(75, 500.0), (119, 500.0), (121, None)])
def test_gpus_read_rarely_hold_for_two_minutes(age: int, value: float | None) -> None:
    row = one([reading(-age - 30, power_watts=7.0), reading(-age)])
    assert row["gpu_power_watts"] == value
    said = reasons_of(row["gpu_reasons"])["gpu_power_watts"]
    assert said == (
        f"read {age} s before the window"
        if value
        else "no reading of its GPUs in this window or in the 2 min before it"
    )


def test_a_gpu_without_a_reading_is_said() -> None:
    why = json.dumps({"tensor_active_ratio": "a profiler pauses it"})
    lacking = {"tensor_active_ratio": None, "reasons": why}
    row = one([reading(), reading(uuid="GPU-b", **lacking)])
    assert row["gpu_tensor_active_ratio"] == pytest.approx(0.4)
    assert reasons_of(row["gpu_reasons"]) == {
        "gpu_tensor_active_ratio": "of 1 of 2 GPUs: a profiler pauses it"
    }
    row = one([reading(**lacking)])
    assert row["gpu_tensor_active_ratio"] is None
    assert reasons_of(row["gpu_reasons"]) == {"gpu_tensor_active_ratio": "a profiler pauses it"}


def test_under_mig_the_engines_reason_is_said() -> None:
    why = json.dumps({"utilization_ratio": "0 under MIG", "engine_active_ratio": "not exported"})
    row = one([reading(mig_instance="1", mig_profile="1g.10gb", reasons=why)])
    assert row["gpu_utilization_ratio"] is None
    assert reasons_of(row["gpu_reasons"]) == {
        "gpu_utilization_ratio": "not exported",
        "gpu_sm_clock_hertz": CLOCK_WITHOUT_UTILIZATION,
    }


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


def test_lost_is_what_the_newest_reading_says() -> None:
    assert one([reading(5, lost=True), reading(35, lost=False)])["gpus_lost"] == 0
    two = [reading(uuid="GPU-b", lost=True), reading(uuid="GPU-c", lost=True), reading()]
    assert one(two)["gpus_lost"] == 2
    assert one([reading(lost=None)])["gpus_lost"] is None


def test_a_lost_gpu_is_named_as_far_as_it_is_told() -> None:
    told = [
        reading(uuid="GPU-b", gpu="1", hostname="node-1", lost=True),
        reading(uuid="GPU-c", gpu="2", hostname="node-1", lost=True, mig_instance="3"),
        reading(uuid="GPU-a", gpu="0", hostname="node-1"),
    ]
    row = one(told)
    assert row["gpus_lost_names"] == "1 on node-1, GPU-b; 2 on node-1, GPU-c, MIG 3"
    assert row["gpus_of_server"] == 3
    bare = reading(uuid=None, gpu="5", hostname=None, lost=True)
    assert one([bare])["gpus_lost_names"] == "5"
    assert one([reading()])["gpus_lost_names"] is None


def test_unknown_is_never_zero() -> None:
    row = one([reading(**dict.fromkeys(READ))])
    assert counted(row) == (1.0, "DCGM by pod")
    columns = {c for c in row if c.startswith(("gpu_", "gpus_lost")) and "count" not in c}
    assert {row[c] for c in columns - {"gpu_reasons"}} == {None}
    assert set(reasons_of(row["gpu_reasons"])) >= columns - {"gpu_reasons", "gpus_lost_names"}


# the whole


def test_windows_keep_their_order_and_do_not_depend_on_the_rows_order() -> None:
    known = targets(target(), target("10.0.0.2:8000", pod="rag-1"), target("x:1", pod=None))
    readings = gpu_frame(
        [
            reading(60.0 * m + s, pod=p, uuid=f"GPU-{p}{g}", power_watts=100.0 * m + s + g)
            for m in range(5)
            for s in (7, 37)
            for p in ("rag-0", "rag-1")
            for g in range(3)
        ]
    )
    asked = windows(known, 3, 0, 4, 1).sample(fraction=1.0, shuffle=True, seed=3)
    found = gpu_columns(asked, readings, known)
    shuffled = readings.sample(fraction=1.0, shuffle=True, seed=5)
    assert_frame_equal(found, gpu_columns(asked, shuffled, known))
    for row, window in zip(found.to_dicts(), asked.to_dicts(), strict=True):
        minute = (window["start"] - NOON).total_seconds() / 60
        expected = None if window["instance"] == "x:1" else 100 * minute + 22 + 1
        assert row["gpu_power_watts"] == (None if expected is None else pytest.approx(expected))


def test_no_window_and_an_exporter_without_a_name() -> None:
    known = targets(target())
    nameless = gpu_frame([reading(exporter=None, uuid=None, pod=p) for p in ("rag-0", "rag-1")])
    assert gpu_columns(windows(known).clear(), nameless, known).is_empty()
    assert gpu_columns(windows(known), nameless, known)["gpu_count"].to_list() == [0.5]


def test_a_long_window_is_the_mean_of_its_minutes() -> None:
    readings = [reading(60.0 * m + 30, power_watts=100.0 * m) for m in range(10)]
    row = one(readings, length=600.0)
    assert row["gpu_power_watts"] == pytest.approx(450.0)


def test_what_doctor_is_told() -> None:
    known = targets(
        target(gpus_declared=2.0),
        target("b:1", pod="rag-1", gpus_declared=1.0),
        target("c:1", pod="rag-2"),
    )
    gpus = gpu_frame([reading(), reading(pod="rag-1", uuid="GPU-b")])
    found = gpu_counts(gpus, known, NOON + timedelta(minutes=1)).to_dicts()
    assert [row["contradicted"] for row in found] == [True, False, None]
    assert [row["gpus_found"] for row in found] == [1.0, 1.0, None]
    assert found[0]["gpu_count_source"] == "declared 2, DCGM shows 1"


def test_every_reading_that_is_shown_is_a_field_of_the_table() -> None:
    from driftwatch.signals.gpus.readings import READ as SHOWN

    assert set(SHOWN.values()) <= {field.column for field in GPU_FIELDS} | {"lost"}


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


def test_two_gpus_one_of_them_idle_gives_the_busy_ones_clock() -> None:
    row = one([reading(), reading(uuid="GPU-b", **IDLE)])
    assert row["gpu_sm_clock_hertz"] == pytest.approx(1.98e9)
    why = reasons_of(row["gpu_reasons"])["gpu_sm_clock_hertz"]
    assert why.startswith("of 1 of 2 GPUs")
