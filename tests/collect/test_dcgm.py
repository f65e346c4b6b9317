"""Series of DCGM → rows of the GPU table: whose GPU it is, units, and a reason for each gap."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from driftwatch.collect.dcgm import DIVIDED, SAMPLE_SCHEMA, Gpu, GpuSamples, gpu_of, own_pods
from driftwatch.collect.gpus import GPU_FIELDS

T0 = datetime(2026, 1, 2, tzinfo=UTC)
BASE = {"gpu": "0", "UUID": "GPU-a", "modelName": "m", "Hostname": "node-1"}
WORK = {"container": "vllm", "namespace": "prod", "pod": "vllm-0"}
OWN = {"container": "exporter", "namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x"}
EXPORTED = {f"exported_{name}": value for name, value in WORK.items()}
RELABELLED = {"kubernetes_namespace": "gpu", "kubernetes_pod_name": "exporter-x"}


def named(labels: Mapping[str, str], *own: str) -> Gpu:
    found = gpu_of({**BASE, **labels}, "node-1:9400", frozenset(own))
    assert isinstance(found, Gpu)
    return found


def test_every_label() -> None:
    labels = {"device": "nvidia3", "DCGM_FI_DRIVER_VERSION": "535.129.03", "cluster": "c", **WORK}
    assert named(labels) == Gpu(
        exporter="node-1:9400",
        hostname="node-1",
        gpu="0",
        uuid="GPU-a",
        gpu_model="m",
        namespace="prod",
        pod="vllm-0",
        cluster="c",
    )
    assert named({"UUID": "", "uuid": "GPU-b"}).uuid == "GPU-b"  # of old exporters
    assert "no UUID label" in str(gpu_of({"UUID": ""}, "e:9400"))
    assert gpu_of({**BASE, "GPU_I_ID": "0"}, "e:9400") == DIVIDED


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (WORK, ("prod", "vllm-0")),
        ({"pod_name": "vllm-0", "pod_namespace": "prod"}, ("prod", "vllm-0")),
        ({"pod": "", "namespace": "", "container": ""}, (None, None)),
        ({}, (None, None)),
        # honorLabels false
        ({**OWN, **EXPORTED}, ("prod", "vllm-0")),
        (OWN, (None, None)),
        # an empty exported label is none: the pod is still the exporter's
        ({**OWN, "exported_pod": ""}, (None, None)),
        # Prometheus' own example of relabelling
        ({"kubernetes_namespace": "ml", "kubernetes_pod_name": "rag-0"}, ("ml", "rag-0")),
        ({"kubernetes_namespace": "ml", "kubernetes_pod": "rag-0"}, ("ml", "rag-0")),
        (RELABELLED | {"namespace": "ml", "pod": "rag-0"}, ("ml", "rag-0")),
        (RELABELLED | {"exported_namespace": "ml", "exported_pod": "a"}, ("ml", "a")),
        (RELABELLED, (None, None)),
    ],
)
def test_whose_workload(labels: dict[str, str], found: tuple[str | None, ...]) -> None:
    own = OWN["pod"], "exporter-x"
    assert (named(labels, *own).namespace, named(labels, *own).pod) == found


@pytest.mark.parametrize(
    ("series", "up", "own"),
    [
        ([{**OWN, **EXPORTED}, OWN], [{"job": "dcgm"}], {OWN["pod"]}),  # beside exported ones
        ([RELABELLED], [RELABELLED], {"exporter-x"}),
        ([WORK, {"pod": "gpu-metrics-1"}], [{"pod": "gpu-metrics-1"}], {"gpu-metrics-1"}),
        # a target without a pod adds none: what is there is the workload's, whatever its name
        ([{"pod": "dcgm-exporter-load-test"}], [{"instance": "e:9400"}], set()),
        # where up cannot be asked
        ([RELABELLED | {"pod": "rag-0"}], [], {"exporter-x"}),
        ([WORK], [], set()),
    ],
)
def test_pods_of_the_exporter_itself(
    series: list[dict[str, str]], up: list[dict[str, str]], own: set[str]
) -> None:
    assert own_pods(series, up) == own


def table(*samples: tuple[str, float], unread: str | None = None) -> pl.DataFrame:
    held = GpuSamples()
    number = held.number(named({}))
    rows = [(number, name, round(T0.timestamp() * 1e6), value) for name, value in samples]
    held.add(pl.DataFrame(rows, dict(SAMPLE_SCHEMA), orient="row"))
    return held.table(unread)


def row_of(*samples: tuple[str, float]) -> tuple[dict[str, Any], dict[str, str]]:
    (row,) = table(*samples).to_dicts()
    return row, json.loads(row["reasons"] or "{}")


NO_VALUE = "DCGM's mark for no value"


@pytest.mark.parametrize(
    ("name", "value", "column", "expected"),
    [
        ("DEV_GPU_UTIL", 99, "utilization_ratio", 0.99),
        ("PROF_GR_ENGINE_ACTIVE", 0.97, "engine_active_ratio", 0.97),
        ("PROF_GR_ENGINE_ACTIVE", 1.01, "engine_active_ratio", 1.0),
        ("DEV_SM_CLOCK", 1980, "sm_clock_hertz", 1.98e9),
        ("DEV_POWER_USAGE", 512.25, "power_watts", 512.25),
        ("DEV_FB_USED", 2, "framebuffer_used_bytes", 2.0 * 1024**2),
        ("DEV_XID_ERRORS", 31, "xid_code", 31.0),
        ("DEV_CLOCKS_EVENT_REASONS", 4, "clock_event_reasons", 4.0),
        ("DEV_CLOCK_THROTTLE_REASONS", 8, "clock_event_reasons", 8.0),
        ("DEV_GPU_UTIL", 9223372036854775794.0, "utilization_ratio", NO_VALUE),
        ("DEV_POWER_USAGE", 140737488355330.0, "power_watts", NO_VALUE),
        ("DEV_SM_CLOCK", 0x7FFFFFF0, "sm_clock_hertz", NO_VALUE),
        ("DEV_FB_USED", math.nan, "framebuffer_used_bytes", "NaN"),
        ("DEV_SM_CLOCK", math.inf, "sm_clock_hertz", "infinite"),
        ("DEV_POWER_USAGE", -1, "power_watts", "-1: negative"),
        ("DEV_GPU_UTIL", 102, "utilization_ratio", "102: above 100 %"),
        ("PROF_GR_ENGINE_ACTIVE", 1.0100004, "engine_active_ratio", "1.0100004: above 100 %"),
    ],
)
def test_each_field_in_its_unit_or_with_a_reason(
    name: str, value: float, column: str, expected: float | str
) -> None:
    row, reasons = row_of((f"DCGM_FI_{name}", value))
    if isinstance(expected, str):
        reason = reasons.pop(column).removeprefix("not supported: ")
        assert (row[column], reason) == (None, f"DCGM_FI_{name} is {expected}")
    else:
        assert row[column] == pytest.approx(expected, rel=1e-12)
    others = [f.column for f in GPU_FIELDS if f.column != column]
    assert sorted(reasons) == sorted(others)
    assert all(row[other] is None for other in others)


@pytest.mark.parametrize(
    ("samples", "lost"),
    [
        ([("DCGM_FI_DEV_XID_ERRORS", 79)], True),
        ([("DCGM_FI_DEV_XID_ERRORS", 0)], False),
        ([("DCGM_FI_DEV_XID_ERRORS", 31)], False),
        # dcgm-exporter#500: the gauge keeps the last XID for good
        ([("DCGM_FI_DEV_XID_ERRORS", 79), ("DCGM_FI_DEV_SM_CLOCK", 1980)], False),
        ([("DCGM_FI_DEV_FB_USED", 40)], None),
        ([("DCGM_FI_DEV_XID_ERRORS", 9.223372036854776e18)], None),
    ],
)
def test_the_gpu_that_fell_off_the_bus(samples: list[tuple[str, float]], lost: bool | None) -> None:
    assert row_of(*samples)[0]["lost"] is lost
