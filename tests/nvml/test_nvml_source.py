"""GPUs through the real binding and a library that answers what the test says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from nvml_cases import BUSY, GIB, NOW, StandIn, collect, row, wait_until_back, why

from driftwatch.collect.gpus import GPU_FIELDS, GPU_SCHEMA
from driftwatch.collect.nvml import calls as nvml_calls
from driftwatch.collect.nvml import fields as nvml_fields
from driftwatch.collect.nvml import library as nvml_library
from driftwatch.collect.nvml.fields import GPM_METRICS
from driftwatch.collect.nvml.source import NvmlSource


def test_every_column_that_nvml_has_a_call_for_is_filled_by_one_table() -> None:
    tables = [set(nvml_fields._CONVERSIONS), set(GPM_METRICS)]
    assert tables[0] | tables[1] == {field.column for field in GPU_FIELDS if field.nvml_call}
    assert tables[0] & tables[1] == set()


def test_values_come_in_base_units(stand_in: StandIn, source: NvmlSource) -> None:
    stand_in.say("gpus 1", *BUSY)
    found = collect(source)
    assert found.problems == ()
    assert dict(found.gpus.schema) == dict(GPU_SCHEMA)
    told = row(found)
    expected = {
        "origin": "NVML",
        "exporter": "nvml:gpu-host",
        "hostname": "gpu-host",
        "own_host": True,
        "time": NOW,
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "pci_bus_id": "00000000:3B:00.0",
        "gpu_model": "Stand-in GPU",
        "utilization_ratio": 0.96,
        "memory_copy_utilization_ratio": 0.41,
        "sm_clock_hertz": 1.98e9,
        "memory_clock_hertz": 2.619e9,
        "power_watts": 402.5,
        "energy_joules_total": 123456.789,
        "temperature_celsius": 61.0,
        "framebuffer_used_bytes": 69.5 * GIB,
        "framebuffer_free_bytes": 10 * GIB,
        "clock_event_reasons": 4.0,
        "lost": False,
        "mig_profile": None,
    }
    assert {name: told[name] for name in expected} == expected
    assert why(told, "xid_code") == "n/a: NVML does not tell it"
    # every NULL quantity has its reason, and nothing that was read has one
    reasons = json.loads(told["reasons"])
    for field in GPU_FIELDS:
        assert (told[field.column] is None) == (field.column in reasons), field.column


def test_an_error_is_a_reason_on_its_field_and_nothing_else(
    stand_in: StandIn, source: NvmlSource
) -> None:
    stand_in.say("gpus 2", *BUSY, "value power 1 100000")
    stand_in.say(
        "call nvmlDeviceGetPowerUsage 0 error 3",
        "call nvmlDeviceGetUtilizationRates 0 error 4",
        "call nvmlDeviceGetTemperatureV 0 error 999",
        "call nvmlDeviceGetTotalEnergyConsumption 0 error 77",
    )
    found = collect(source)
    told = row(found)
    assert why(told, "power_watts") == "n/a: NotSupported"
    assert why(told, "utilization_ratio") == "n/a: NoPermission"
    assert why(told, "memory_copy_utilization_ratio") == "n/a: NoPermission"
    assert why(told, "temperature_celsius") == "n/a: Unknown"
    assert why(told, "energy_joules_total") == "n/a: NVML error 77"
    assert told["sm_clock_hertz"] == 1.98e9
    assert told["lost"] is False
    assert row(found, "1")["power_watts"] == 100.0


def test_an_old_driver_is_asked_by_its_old_names(
    load: Callable[[str], StandIn], source: NvmlSource
) -> None:
    load("old").say("gpus 1", *BUSY)
    told = row(collect(source))
    assert told["clock_event_reasons"] == 4.0
    assert told["temperature_celsius"] == 61.0
    assert told["framebuffer_used_bytes"] == 70 * GIB  # reserved memory is in it
    for column in GPM_METRICS:
        assert why(told, column) == "n/a: FunctionNotFound"


def test_shares_need_two_samples(stand_in: StandIn, source: NvmlSource) -> None:
    stand_in.say("gpus 1", "value gpm 0 1", "value gpm_sample 0 7")
    first = row(collect(source))
    for column in GPM_METRICS:
        assert why(first, column) == "n/a: needs two readings"
    stand_in.say("value gpm_sample 0 47", "value gpm_result_5 * 3")
    second = row(collect(source))
    # 40 between the samples, plus the metric's number
    assert second["engine_active_ratio"] == pytest.approx(0.41)
    assert second["sm_active_ratio"] == pytest.approx(0.42)
    assert second["dram_active_ratio"] == pytest.approx(0.50)
    assert why(second, "tensor_active_ratio") == "n/a: NotSupported"
    # the third reading is between the second and the third; nothing is a share of -37 or 140 %
    stand_in.say("value gpm_sample 0 0")
    assert why(row(collect(source)), "sm_active_ratio") == "n/a: -45 % is no share"
    stand_in.say("value gpm_sample 0 140")
    assert why(row(collect(source)), "sm_active_ratio") == "n/a: 142 % is no share"
    stand_in.say("value gpm_sample 0 238.5")
    assert row(collect(source))["engine_active_ratio"] == pytest.approx(0.995)


def test_no_sample_is_lost_where_samples_cannot_be_taken(
    stand_in: StandIn, source: NvmlSource, tmp_path: Path
) -> None:
    log = tmp_path / "called"
    stand_in.say("gpus 1", "value gpm 0 1", f"log {log}")
    stand_in.say("call nvmlGpmSampleGet 0 error 4")
    for _ in range(5):
        assert why(row(collect(source)), "sm_active_ratio") == "n/a: NoPermission"
    stand_in.drop("call nvmlGpmSampleGet 0 error 4")
    stand_in.say("call nvmlGpmMetricsGet - error 999")
    for reason in ("needs two readings", *["Unknown"] * 4):
        assert why(row(collect(source)), "sm_active_ratio") == f"n/a: {reason}"
    stand_in.drop("call nvmlGpmMetricsGet - error 999")
    for _ in range(5):
        assert row(collect(source))["sm_active_ratio"] == pytest.approx(0.02)
    source.close()
    called = log.read_text().split()
    assert called.count("nvmlGpmSampleAlloc") == called.count("nvmlGpmSampleFree") == 2


def test_a_sample_that_a_hanging_call_writes_to_is_left_alone(
    stand_in: StandIn, source: NvmlSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml_calls, "CALL_SECONDS", 0.7)
    log = tmp_path / "called"
    stand_in.say("gpus 1", "value gpm 0 1", f"log {log}")
    collect(source)
    stand_in.say("call nvmlGpmMetricsGet - hang")
    assert why(row(collect(source)), "sm_active_ratio") == "n/a: no answer within 0.7 s"
    stand_in.drop("call nvmlGpmMetricsGet - hang")
    wait_until_back(source)
    assert why(row(collect(source)), "sm_active_ratio") == "n/a: needs two readings"
    assert row(collect(source))["sm_active_ratio"] == pytest.approx(0.02)
    # two that hung stay with the library, two others took their place
    assert log.read_text().split().count("nvmlGpmSampleAlloc") == 4


def test_a_gpu_that_is_somebody_elses_is_left_out(stand_in: StandIn, source: NvmlSource) -> None:
    stand_in.say("gpus 2", "call nvmlDeviceGetHandleByIndex_v2 0 error 4")
    found = collect(source)
    assert found.gpus["gpu"].to_list() == ["1"]
    assert [(p.where, p.reason) for p in found.problems] == [
        ("NVML on gpu-host, GPU 0", "no permission for this GPU: it is left out")
    ]


def test_blanks_of_the_driver_are_no_values(stand_in: StandIn, source: NvmlSource) -> None:
    stand_in.say("gpus 1", "value utilization 0 4294967295", "value clock_reasons 0 1.8e19")
    told = row(collect(source))
    assert why(told, "utilization_ratio") == "n/a: 4294967295 % is no share"
    assert why(told, "clock_event_reasons") == "n/a: 1.8e+19 is no value"


def test_a_gpu_without_gpm(stand_in: StandIn, source: NvmlSource) -> None:
    stand_in.say("gpus 1")
    assert why(row(collect(source)), "tensor_active_ratio") == "n/a: NotSupported"


def test_mig_instances_are_rows(stand_in: StandIn, source: NvmlSource) -> None:
    stand_in.say("gpus 2", *BUSY, "value mig_mode 0 1", "value mig_mode 1 0", "value gpm 0 1")
    stand_in.say("mig 0 0 1 0 3g.40gb", "mig 0 2 5 0 -", "mig 0 3 7 0 1c.2g.20gb")
    stand_in.say("mig 0 4 7 1 1c.2g.20gb", "value slices 0:2 1", "value megabytes 0:2 9728")
    stand_in.say(f"value total 0:0 {40 * 2**30}", f"value free 0:0 {4 * 2**30}")
    found = collect(source)
    assert found.problems == ()
    rows = [
        (r["gpu"], r["mig_instance"], r["mig_profile"]) for r in found.gpus.iter_rows(named=True)
    ]
    assert rows == [
        ("0", "1", "3g.40gb"),
        ("0", "5", "1g.10gb"),
        ("0", "7/0", "1c.2g.20gb"),
        ("0", "7/1", "1c.2g.20gb"),
        ("1", None, None),
    ]
    one = row(found, "0", "1")
    assert why(one, "utilization_ratio") == "n/a: NotSupported"
    assert one["framebuffer_used_bytes"] == 36 * GIB
    assert one["power_watts"] == 402.5  # the board's
    assert one["uuid"] == "GPU-00000000-0000-0000-0000-000000000000"
    stand_in.say("value gpm_sample 0 20")
    again = collect(source)
    # samples of the instance itself: 1000 times its number is in both of them
    assert row(again, "0", "5")["sm_active_ratio"] == pytest.approx(0.22)
    assert row(again, "0", "7/1")["sm_active_ratio"] == pytest.approx(0.22)


def test_mig_instances_come_and_go(stand_in: StandIn, source: NvmlSource) -> None:
    stand_in.say("gpus 1", "value mig_mode 0 1", "mig 0 0 1 0 3g.40gb")
    assert collect(source).gpus["mig_profile"].to_list() == ["3g.40gb"]
    stand_in.drop("mig 0 0 1 0 3g.40gb")
    stand_in.say("mig 0 0 2 0 7g.80gb")
    assert collect(source).gpus["mig_profile"].to_list() == ["7g.80gb"]
    stand_in.say("call nvmlDeviceGetMaxMigDeviceCount 0 error 999")
    found = collect(source)
    assert found.gpus["mig_profile"].to_list() == ["7g.80gb"]
    assert [p.reason for p in found.problems] == ["MIG instances are as they were: Unknown"]
    stand_in.say("value mig_mode 0 0")
    assert collect(source).gpus["mig_profile"].to_list() == [None]


def test_a_lost_gpu_keeps_its_name_and_the_others_are_read(
    stand_in: StandIn, source: NvmlSource
) -> None:
    stand_in.say("gpus 2", *BUSY, "value power 1 99000", "text uuid 0 GPU-lost")
    assert row(collect(source))["lost"] is False
    stand_in.say("call * 0 error 15")
    found = collect(source)
    lost = row(found)
    assert lost["lost"] is True
    assert lost["uuid"] == "GPU-lost"
    assert why(lost, "power_watts") == "n/a: GpuIsLost"
    assert why(lost, "ports") == "n/a: GpuIsLost"
    assert row(found, "1")["lost"] is False
    assert row(found, "1")["power_watts"] == 99.0
    stand_in.drop("call * 0 error 15")
    assert row(collect(source))["lost"] is False


def test_a_lost_gpu_is_looked_for_by_starting_anew(
    stand_in: StandIn, source: NvmlSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.say("gpus 2", "text uuid 0 GPU-lost", "text uuid 1 GPU-good")
    collect(source)
    stand_in.say("call * 0 error 15")
    collect(source)
    monkeypatch.setattr(nvml_library, "_LOOK_FOR_LOST_SECONDS", -1.0)
    collect(source)
    # the driver lists it no more: the other GPU is number 0 now
    stand_in.drop("gpus 2", "call * 0 error 15", "text uuid 0 GPU-lost", "text uuid 1 GPU-good")
    stand_in.say("gpus 1", "text uuid 0 GPU-good")
    found = collect(source)
    told = {r["uuid"]: r for r in found.gpus.iter_rows(named=True)}
    assert told["GPU-good"]["lost"] is False
    assert told["GPU-lost"]["lost"] is True
    assert why(told["GPU-lost"], "power_watts") == "n/a: NVML does not list this GPU any more"
    # and it comes back
    stand_in.drop("gpus 1", "text uuid 0 GPU-good")
    stand_in.say("gpus 2", "text uuid 0 GPU-lost", "text uuid 1 GPU-good")
    assert {r["uuid"]: r["lost"] for r in collect(source).gpus.iter_rows(named=True)} == {
        "GPU-lost": False,
        "GPU-good": False,
    }


def test_a_gpu_that_is_not_listed_any_more_is_not_forgotten(
    stand_in: StandIn, source: NvmlSource
) -> None:
    stand_in.say("gpus 2")
    collect(source)
    stand_in.drop("gpus 2")
    stand_in.say("gpus 1")
    told = row(collect(source), "1")
    assert told["lost"] is None
    assert why(told, "sm_clock_hertz") == "n/a: NVML does not list this GPU any more"
