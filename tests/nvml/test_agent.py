"""driftwatch agent: NVML as /metrics in DCGM's names, labels and units."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
import requests
from nvml_cases import NOW, StandIn
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from driftwatch.clock import ManualClock
from driftwatch.collect.dcgm.pages import DcgmPagesSource
from driftwatch.collect.gpus import GPU_FIELDS
from driftwatch.collect.nvml.source import NvmlSource
from driftwatch.collect.schema import Collected, SourceProblem, empty_scrapes
from driftwatch.service.agent import Agent
from driftwatch.testing import prometheus_server
from driftwatch.testing.prometheus_server import PrometheusServer, scrape_config

Samples = dict[str, list[tuple[dict[str, str], float]]]

H100 = (
    "text name 0 NVIDIA H100 80GB HBM3",
    "value utilization 0 57",
    "value memory_utilization 0 29",
    f"value total 0 {80 * 2**30}",
    f"value free 0 {10 * 2**30}",
    "value sm_clock 0 1980",
    "value memory_clock 0 2619",
    "value power 0 402500",
    "value energy 0 123456789",
    "value temperature 0 61",
    "value clock_reasons 0 4",
    "value gpm 0 1",
)


def samples(agent: Agent) -> Samples:
    return parsed(generate_latest(agent.registry).decode())


def parsed(page: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def one(found: Samples, name: str) -> float:
    ((_, value),) = found[name]
    return value


@pytest.fixture
def agent(source: NvmlSource, clock: ManualClock) -> Agent:
    return Agent(source, 15.0, clock)


def test_dcgms_names_labels_and_units(stand_in: StandIn, agent: Agent) -> None:
    stand_in.say("gpus 1", *H100)
    agent.read_once()
    stand_in.say("value gpm_sample 0 40")
    agent.read_once()
    found = samples(agent)
    assert found["DCGM_FI_DEV_GPU_UTIL"][0][0] == {
        "gpu": "0",
        "UUID": "GPU-00000000-0000-0000-0000-000000000000",
        "pci_bus_id": "00000000:3B:00.0",
        "device": "nvidia0",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": "gpu-host",
    }
    expected = {
        "DCGM_FI_DEV_GPU_UTIL": 57,
        "DCGM_FI_DEV_MEM_COPY_UTIL": 29,
        "DCGM_FI_DEV_SM_CLOCK": 1980,
        "DCGM_FI_DEV_MEM_CLOCK": 2619,
        "DCGM_FI_DEV_POWER_USAGE": 402.5,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 123456789,
        "DCGM_FI_DEV_GPU_TEMP": 61,
        "DCGM_FI_DEV_FB_USED": 70 * 1024,
        "DCGM_FI_DEV_FB_FREE": 10 * 1024,
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 4,
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.41,
        "DCGM_FI_PROF_SM_ACTIVE": 0.42,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.45,
        "DCGM_FI_PROF_DRAM_ACTIVE": 0.5,
        "driftwatch_agent_up": 1,
        "driftwatch_agent_gpu_lost": 0,
    }
    assert {name: one(found, name) for name in expected} == expected
    assert "DCGM_FI_DEV_XID_ERRORS" not in found
    assert "driftwatch_agent_field_unread" not in found
    assert one(found, "driftwatch_agent_reading_age_seconds") >= 0


def test_what_is_not_read_has_no_series_and_a_reason(stand_in: StandIn, agent: Agent) -> None:
    stand_in.say("gpus 2", "value power 1 99000", "call nvmlDeviceGetPowerUsage 0 error 3")
    agent.read_once()
    found = samples(agent)
    assert [labels["gpu"] for labels, _ in found["DCGM_FI_DEV_POWER_USAGE"]] == ["1"]
    unread = {
        (s["gpu"], s["field"]): s["reason"] for s, _ in found["driftwatch_agent_field_unread"]
    }
    assert unread["0", "DCGM_FI_DEV_POWER_USAGE"] == "n/a: NotSupported"
    assert ("1", "DCGM_FI_DEV_POWER_USAGE") not in unread
    assert {field for _, field in unread} & {"DCGM_FI_DEV_XID_ERRORS"} == set()
    # each GPU has, for each field, a series or a reason
    for field in GPU_FIELDS:
        if field.nvml_call:
            name = field.dcgm_names[0]
            told = {labels["gpu"] for labels, _ in found.get(name, [])}
            assert told | {g for g, f in unread if f == name} == {"0", "1"}
            assert told & {g for g, f in unread if f == name} == set()


def test_mig_instances_have_their_labels(stand_in: StandIn, agent: Agent) -> None:
    stand_in.say("gpus 1", *H100, "value mig_mode 0 1")
    stand_in.say("mig 0 0 1 0 3g.40gb", "mig 0 1 2 0 4g.40gb")
    agent.read_once()
    found = samples(agent)
    assert [
        (labels["GPU_I_ID"], labels["GPU_I_PROFILE"])
        for labels, _ in found["DCGM_FI_DEV_POWER_USAGE"]
    ] == [("1", "3g.40gb"), ("2", "4g.40gb")]
    assert "DCGM_FI_DEV_GPU_UTIL" not in found


def test_a_lost_gpu_says_so(stand_in: StandIn, agent: Agent) -> None:
    stand_in.say("gpus 2", "call * 1 error 15")
    agent.read_once()
    lost = {s["gpu"]: value for s, value in samples(agent)["driftwatch_agent_gpu_lost"]}
    assert lost == {"0": 0.0, "1": 1.0}


def test_no_driver_is_a_page_that_says_so(
    stand_in: StandIn, agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agent.why_not_ready() == "no reading yet"
    stand_in.say("gpus 1", "call nvmlInitWithFlags * error 9")
    for _ in range(3):
        agent.read_once()
    found = samples(agent)
    assert one(found, "driftwatch_agent_up") == 0
    ((labels, _),) = found["driftwatch_agent_problem"]
    assert labels["where"] == "NVML on gpu-host"
    assert labels["reason"].startswith("the NVIDIA driver is not loaded")
    assert (agent.why_unhealthy(), agent.why_not_ready()) == (None, None)
    stand_in.drop("call nvmlInitWithFlags * error 9")
    agent.read_once()
    found = samples(agent)
    assert one(found, "driftwatch_agent_up") == 1
    assert "driftwatch_agent_problem" not in found
    said = capsys.readouterr().out
    assert said.count("not loaded") == 1  # when it begins, not at every reading
    assert said.count("reading") == 1


class _Failing:
    """A source that brings a reading and then breaks."""

    name = "nvml"
    settle_seconds = 0.0

    def __init__(self) -> None:
        self.broken = False

    def collect(self, since: datetime, until: datetime) -> Collected:
        if self.broken:
            raise RuntimeError("no driver should do this")
        return Collected(empty_scrapes(), {}, (SourceProblem("GPU 0", "odd"),))

    def close(self) -> None:
        pass


def test_an_old_reading_is_not_shown_as_if_it_were_now(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    source = _Failing()
    agent = Agent(source, 15.0, clock)
    agent.read_once()
    assert "driftwatch_agent_problem" in samples(agent)
    source.broken = True
    agent.read_once()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    found = samples(agent)
    assert one(found, "driftwatch_agent_up") == 0
    assert one(found, "driftwatch_agent_reading_age_seconds") > 60
    assert "driftwatch_agent_problem" not in found
    assert agent.why_not_ready() is not None
    assert "no reading began" in (agent.why_unhealthy() or "")


@contextmanager
def running(stand_in: StandIn, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command in a process of its own, whose loader finds the library by itself."""
    command = [sys.executable, "-m", "driftwatch", "agent", "--listen", "127.0.0.1:0", *more]
    with subprocess.Popen(
        command, env=stand_in.environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            # the two lines of the start come in any order
            said = ""
            while "serving" not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            address = re.search(r"http://127\.0\.0\.1:\d+", said)
            assert address is not None
            yield process, address[0]
        finally:
            process.kill()


def until(look: Callable[[], object], what: str) -> None:
    for _ in range(600):
        if look():
            return
        time.sleep(0.05)
    raise AssertionError(f"did not happen: {what}")


def test_a_real_prometheus_scrapes_it(stand_in: StandIn) -> None:
    if not prometheus_server.installed():
        pytest.skip(prometheus_server.NOT_INSTALLED)
    stand_in.say("gpus 1", *H100)
    with running(stand_in, "--interval", "1s") as (process, address):
        instance = address.removeprefix("http://")
        with PrometheusServer(scrape_config({"gpus": [instance]})) as server:
            until(lambda: server.query("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), "a scrape")
            (told,) = server.query("DCGM_FI_DEV_POWER_USAGE")
            assert told["value"][1] == "402.5"
            assert told["metric"]["UUID"] == "GPU-00000000-0000-0000-0000-000000000000"
            assert told["metric"]["instance"] == instance
            assert [s["value"][1] for s in server.query("up")] == ["1"]
        process.terminate()
        assert process.wait(10) == 0


def test_promtool_has_nothing_against_what_is_ours(stand_in: StandIn, agent: Agent) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip(prometheus_server.NOT_INSTALLED)
    stand_in.say("gpus 2", *H100, 'text name 1 a "b" \\c', "call nvmlDeviceGetPowerUsage 1 error 3")
    agent.read_once()
    page = generate_latest(agent.registry)
    ran = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True)
    assert ran.returncode in (0, 3)  # 3: style
    # dcgm-exporter's own label modelName is the one thing against the style
    said = {line.split(" ", 1)[1] for line in ran.stderr.decode().splitlines()}
    assert said <= {"label names should be written in 'snake_case' not 'camelCase'"}
    assert {line.split("_")[0] for line in ran.stderr.decode().splitlines()} <= {"DCGM"}


def test_a_call_that_hangs_delays_neither_the_scrape_nor_the_end(stand_in: StandIn) -> None:
    stand_in.say("gpus 1", *H100, "call * 0 hang")
    with running(stand_in, "--interval", "1s") as (process, address):
        for path in ("/metrics", "/healthz", "/-/healthy"):
            assert requests.get(address + path, timeout=10).status_code == 200
        assert "DCGM_FI_DEV_POWER_USAGE{" not in requests.get(f"{address}/metrics", timeout=10).text
        process.terminate()
        assert process.wait(10) == 0


def test_it_waits_for_a_driver_that_is_not_installed(tmp_path: Path) -> None:
    try:
        import ctypes

        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        pass
    else:
        pytest.skip("this machine has an NVIDIA driver")
    with running(StandIn(tmp_path / "none", tmp_path), "--interval", "1s") as (process, address):
        until(
            lambda: "driftwatch_agent_problem{" in requests.get(f"{address}/metrics").text,
            "a reading",
        )
        page = parsed(requests.get(f"{address}/metrics", timeout=10).text)
        ((labels, _),) = page["driftwatch_agent_problem"]
        assert labels["reason"].startswith("there is no libnvidia-ml.so.1: install the NVIDIA")
        assert one(page, "driftwatch_agent_up") == 0
        process.terminate()
        assert process.wait(10) == 0


@pytest.mark.parametrize("listen", ["9400", "host:", ":9400", "127.0.0.1:70000"])
def test_an_address_that_is_none(listen: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "driftwatch", "agent", "--listen", listen],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "not host:port" in ran.stderr


def test_an_address_that_is_taken(stand_in: StandIn) -> None:
    with running(stand_in) as (_, address):
        ran = subprocess.run(
            [sys.executable, "-m", "driftwatch", "agent", "--listen", address.split("//")[1]],
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 2
    assert "cannot listen on" in ran.stderr
    assert "--listen HOST:PORT" in ran.stderr


def test_what_is_read_of_its_page_is_what_nvml_said(
    stand_in: StandIn, source: NvmlSource, clock: ManualClock
) -> None:
    stand_in.say("gpus 3", *H100, "value gpm_sample 0 3", "value mig_mode 1 1")
    stand_in.say("call nvmlDeviceGetPowerUsage 2 error 15")
    stand_in.say("mig 1 0 1 0 3g.40gb", "call nvmlDeviceGetTemperatureV 0 error 3")
    since = datetime.now(UTC)
    with running(stand_in, "--interval", "1s") as (_, address):
        until(
            lambda: "PIPE_TENSOR_ACTIVE{" in requests.get(f"{address}/metrics").text, "two readings"
        )
        pages = DcgmPagesSource([f"{address}/metrics"])
        told = pages.collect(since, since + timedelta(minutes=1))
        pages.close()
    assert told.problems == ()
    source.collect(NOW, NOW)
    direct = source.collect(NOW, NOW).gpus
    same = ["gpu", "uuid", "pci_bus_id", "gpu_model", "mig_profile", "mig_instance"]
    same += [field.column for field in GPU_FIELDS]
    ours, theirs = (frame.select(same).sort("gpu") for frame in (direct, told.gpus))
    assert ours.select(same[:6]).equals(theirs.select(same[:6]))
    for column in same[6:]:
        assert theirs[column].to_list() == pytest.approx(ours[column].to_list()), column
    assert told.gpus.sort("gpu")["lost"].to_list() == [False, False, True]
    assert direct.sort("gpu")["lost"].to_list() == [False, False, True]
    assert told.gpus["own_host"].to_list() == [False] * 3


def test_a_gpu_that_is_lost_behind_an_agent(stand_in: StandIn) -> None:
    stand_in.say("gpus 2", "text uuid 1 GPU-lost")
    since = datetime.now(UTC)

    def page(address: str) -> str:
        return requests.get(f"{address}/metrics", timeout=10).text

    with running(stand_in, "--interval", "1s") as (_, address):
        until(lambda: "DCGM_FI_DEV_POWER_USAGE{" in page(address), "a reading")
        stand_in.say("call * 1 error 15")
        until(lambda: 'gpu_lost{UUID="GPU-lost",gpu="1"} 1.0' in page(address), "a lost GPU")
        pages = DcgmPagesSource([f"{address}/metrics"])
        told = pages.collect(since, since + timedelta(minutes=1))
        pages.close()
    (lost,) = told.gpus.filter(pl.col("lost")).to_dicts()
    assert lost["uuid"] == "GPU-lost"
    assert lost["power_watts"] is None
