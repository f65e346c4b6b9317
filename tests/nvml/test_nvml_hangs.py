"""An NVML that cannot be started, goes, or hangs: the other GPUs are read."""

from __future__ import annotations

from datetime import timedelta

import pytest
from nvml_cases import BUSY, NOW, StandIn, collect, row, wait_until_back, why

from driftwatch.clock import ManualClock
from driftwatch.collect.nvml import calls as nvml_calls
from driftwatch.collect.nvml import fields as nvml_fields
from driftwatch.collect.nvml import library as nvml_library
from driftwatch.collect.nvml.source import NvmlSource


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (9, "the NVIDIA driver is not loaded: modprobe nvidia"),
        (18, "of different versions: load the new driver or reboot"),
        (4, "no permission for /dev/nvidia*"),
        (12, "there is no libnvidia-ml.so.1: install the NVIDIA driver"),
        (999, "nvmlInit: Unknown"),
    ],
)
def test_nvml_that_cannot_be_started_is_a_problem_and_tried_again(
    stand_in: StandIn, source: NvmlSource, code: int, said: str
) -> None:
    stand_in.say("gpus 1", f"call nvmlInitWithFlags * error {code}")
    for _ in range(2):
        found = collect(source)
        assert found.gpus.is_empty()
        assert [p.where for p in found.problems] == ["NVML on gpu-host"]
        assert said in found.problems[0].reason
        assert found.problems[0].time == NOW
    stand_in.drop(f"call nvmlInitWithFlags * error {code}")
    assert collect(source).gpus.height == 1


def test_a_driver_that_is_loaded_anew(stand_in: StandIn, source: NvmlSource) -> None:
    stand_in.say("gpus 1", "value energy 0 5000000", "value gpm 0 1")
    assert row(collect(source))["energy_joules_total"] == 5000.0
    stand_in.say("call * * error 9")
    assert "not loaded" in collect(source).problems[0].reason
    stand_in.drop("call * * error 9", "value energy 0 5000000")
    stand_in.say("value energy 0 1000")
    told = row(collect(source))
    assert told["energy_joules_total"] == 1.0  # a counter of the new driver
    assert why(told, "sm_active_ratio") == "n/a: needs two readings"


def test_a_driver_that_goes_while_gpus_are_read(stand_in: StandIn, source: NvmlSource) -> None:
    stand_in.say("gpus 1", *BUSY)
    collect(source)
    stand_in.say("call * 0 error 9")  # counting still works
    assert why(row(collect(source)), "power_watts") == "n/a: DriverNotLoaded"
    stand_in.drop("call * 0 error 9")
    # handles of before nvmlShutdown are refused by the library: new ones were taken
    assert row(collect(source))["power_watts"] == 402.5


def test_a_call_that_hangs_costs_its_field(
    stand_in: StandIn, source: NvmlSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml_calls, "CALL_SECONDS", 0.7)
    stand_in.say("gpus 2", *BUSY, "value power 1 99000")
    hang = "call nvmlDeviceGetPowerUsage 0 hang"
    stand_in.say(hang)
    for _ in range(2):
        found = collect(source)
        told = row(found)
        assert why(told, "power_watts") == "n/a: no answer within 0.7 s"
        assert told["temperature_celsius"] == 61.0
        assert told["lost"] is False
        assert row(found, "1")["power_watts"] == 99.0
    stand_in.drop(hang)
    wait_until_back(source)
    assert row(collect(source))["power_watts"] == 402.5


def test_a_gpu_whose_every_call_hangs(
    stand_in: StandIn, source: NvmlSource, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    monkeypatch.setattr(nvml_calls, "CALL_SECONDS", 0.7)
    stand_in.say("gpus 2", *BUSY, "text uuid 0 GPU-stuck", "value power 1 99000")
    collect(source)
    stand_in.say("call * 0 hang")
    for _ in range(3):
        clock.advance(timedelta(seconds=15))
        found = collect(source)
        stuck = row(found)
        assert stuck["uuid"] == "GPU-stuck"
        assert stuck["lost"] is None
        assert {why(stuck, column) for column in nvml_fields._CONVERSIONS} <= {
            "n/a: no answer within 0.7 s",
            "n/a: not asked: 3 calls have not answered",
        }
        assert row(found, "1")["power_watts"] == 99.0
    stand_in.drop("call * 0 hang")
    wait_until_back(source)
    assert row(collect(source))["power_watts"] == 402.5


def test_a_library_that_hangs_as_a_whole(
    stand_in: StandIn, source: NvmlSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml_calls, "CALL_SECONDS", 0.7)
    stand_in.say("gpus 2", *BUSY)
    collect(source)
    stand_in.say("call * * hang")
    for _ in range(2):
        found = collect(source)
        assert [p.reason for p in found.problems if p.where == "NVML on gpu-host"] == [
            "as many GPUs as before are read: nvmlDeviceGetCount: no answer within 0.7 s"
        ]
        assert found.gpus["lost"].to_list() == [None, None]
        assert found.gpus["power_watts"].to_list() == [None, None]
    stand_in.drop("call * * hang")
    wait_until_back(source)
    found = collect(source)
    assert found.problems == ()
    assert row(found)["power_watts"] == 402.5


def test_a_start_that_hangs_is_waited_for_in_later_calls(
    stand_in: StandIn, source: NvmlSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml_library, "_LIBRARY_SECONDS", 0.7)
    stand_in.say("gpus 1", "call nvmlInitWithFlags * hang")
    for _ in range(2):
        assert [p.reason for p in collect(source).problems] == ["nvmlInit: no answer within 0.7 s"]
    monkeypatch.setattr(nvml_library, "_LIBRARY_SECONDS", 5.0)
    stand_in.drop("call nvmlInitWithFlags * hang")
    wait_until_back(source)
    assert collect(source).gpus.height == 1
