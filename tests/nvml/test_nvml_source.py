"""Whole GPUs: values, reasons, what is lost, hangs or cannot be used."""

from __future__ import annotations

import json
import threading

import pytest
from nvml_cases import GIB, NOW, StandIn, collect, rows, why

from driftwatch.collect import nvml as nvml_source
from driftwatch.collect.gpus import GPU_FIELDS, GPU_SCHEMA, NVML_FIELDS
from driftwatch.collect.nvml import NvmlSource


def test_values_come_in_base_units(source: NvmlSource) -> None:
    found = collect(source)
    assert found.problems == ()
    assert dict(found.gpus.schema) == dict(GPU_SCHEMA)
    told = rows(found)["GPU-0"]
    expected = {
        "origin": "NVML",
        "exporter": "nvml:gpu-host",
        "hostname": "gpu-host",
        "own_host": True,
        "time": NOW,
        "gpu": "0",
        "gpu_model": "Stand-in GPU",
        "utilization_ratio": 0.96,
        "sm_clock_hertz": 1.98e9,
        "power_watts": 402.5,
        "framebuffer_used_bytes": 70.0 * GIB,
        "clock_event_reasons": 4.0,
        "lost": False,
    }
    assert {name: told[name] for name in expected} == expected
    assert why(told, "xid_code") == "n/a: not read by NVML; dcgm-exporter tells it"
    # every NULL quantity has its reason, and nothing that was read has one
    reasons = json.loads(told["reasons"])
    for field in GPU_FIELDS:
        assert (told[field.column] is None) == (field.column in reasons), field.column


def test_an_error_is_a_reason_on_its_field_and_nothing_else(
    stand_in: StandIn, source: NvmlSource
) -> None:
    stand_in.gpus = [0, 1]
    stand_in.errors = {
        ("nvmlDeviceGetPowerUsage", 0): 3,
        ("nvmlDeviceGetUtilizationRates", 0): 4,
        ("nvmlDeviceGetMemoryInfo", 0): 77,
    }
    stand_in.values = {"reasons": {0: 1.8e19}, "busy": {1: 4294967295}}
    told = rows(collect(source))
    assert why(told["GPU-0"], "power_watts") == "n/a: NotSupported"
    assert why(told["GPU-0"], "utilization_ratio") == "n/a: NoPermission"
    assert why(told["GPU-0"], "framebuffer_used_bytes") == "n/a: NVML error 77"
    assert why(told["GPU-0"], "clock_event_reasons") == "n/a: 1.8e+19 is no value"
    assert (told["GPU-0"]["sm_clock_hertz"], told["GPU-0"]["lost"]) == (1.98e9, False)
    assert why(told["GPU-1"], "utilization_ratio") == "n/a: 4294967295 is above 100 %"
    assert told["GPU-1"]["power_watts"] == 402.5


def test_what_is_not_to_be_read_is_left_out_and_said(stand_in: StandIn, source: NvmlSource) -> None:
    stand_in.gpus = [0, 1, 2]
    stand_in.errors = {("nvmlDeviceGetHandleByIndex", 0): 4, ("nvmlDeviceGetMigMode", 2): 3}
    stand_in.values = {"mig": {1: 1}}
    found = collect(source)
    assert list(rows(found)) == ["GPU-2"]
    assert [(p.where, p.reason) for p in found.problems] == [
        ("NVML on gpu-host, GPU 0", "no permission for this GPU: it is left out"),
        (
            "NVML on gpu-host, GPU 1",
            "MIG is on, so it is left out",
        ),
    ]


def test_a_lost_gpu_keeps_its_name_and_the_others_are_read(
    stand_in: StandIn, source: NvmlSource
) -> None:
    stand_in.gpus = [0, 1]
    assert rows(collect(source))["GPU-0"]["lost"] is False
    stand_in.errors = {("*", 0): 15}
    told = rows(collect(source))
    assert told["GPU-0"]["lost"] is True
    assert {why(told["GPU-0"], one.column) for one in NVML_FIELDS} == {"n/a: GpuIsLost"}
    assert (told["GPU-1"]["lost"], told["GPU-1"]["power_watts"]) == (False, 402.5)
    stand_in.errors = {}
    assert rows(collect(source))["GPU-0"]["lost"] is False


def test_a_gpu_that_is_not_listed_any_more_is_not_forgotten(
    stand_in: StandIn, source: NvmlSource
) -> None:
    stand_in.gpus = [0, 1]
    collect(source)
    stand_in.errors = {("*", 0): 15}
    assert rows(collect(source))["GPU-0"]["lost"] is True
    # the driver lists it no more: the other GPU is number 0 now
    stand_in.gpus, stand_in.errors = [1], {}
    told = rows(collect(source))
    assert (told["GPU-1"]["lost"], told["GPU-1"]["gpu"]) == (False, "0")
    assert told["GPU-0"]["lost"] is True
    assert why(told["GPU-0"], "power_watts") == "n/a: NVML does not list this GPU any more"
    stand_in.gpus = [0]
    assert {uuid: row["lost"] for uuid, row in rows(collect(source)).items()} == {
        "GPU-0": False,
        "GPU-1": None,
    }


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (9, "the NVIDIA driver is not loaded: modprobe nvidia"),
        (18, "of different versions: load the new driver or reboot"),
        (4, "no permission for /dev/nvidia*"),
        (12, "there is no libnvidia-ml.so.1: install the NVIDIA driver"),
        (999, "NVML: Unknown"),
    ],
)
def test_nvml_that_cannot_be_started_is_a_problem_and_tried_again(
    stand_in: StandIn, source: NvmlSource, code: int, said: str
) -> None:
    stand_in.errors = {("nvmlInit", "*"): code}
    for _ in range(2):
        found = collect(source)
        assert found.gpus.is_empty()
        ((problem),) = found.problems
        assert (problem.where, problem.time) == ("NVML on gpu-host", NOW)
        assert said in problem.reason
    assert source.is_here() == (code not in (9, 12))
    stand_in.errors = {}
    assert collect(source).gpus.height == 1


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetPowerUsage"])
def test_a_call_that_hangs_ends_no_tick(
    stand_in: StandIn, source: NvmlSource, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(nvml_source, "READING_SECONDS", 0.2)
    stand_in.hangs = {call: threading.Event()}
    said = [p.reason for _ in range(3) for p in collect(source).problems]
    assert said == ["NVML: no answer within 0.2 s", *["NVML: a call has not come back"] * 2]
    assert stand_in.called.count(call) == 1
    stand_in.hangs.pop(call).set()
    assert source._hanging is not None
    source._hanging.result(10)
    assert rows(collect(source))["GPU-0"]["power_watts"] == 402.5
