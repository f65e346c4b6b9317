"""watch and run on a machine that has the server and its GPUs: nothing else is needed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from nvml_cases import StandIn

from driftwatch.cli.watch import hosts_with_own_gpus
from driftwatch.clock import ManualClock
from driftwatch.collect.nvml.machine import own_hosts
from driftwatch.collect.nvml.source import NvmlSource
from driftwatch.collect.pages.source import PagesSource
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import State
from driftwatch.pipeline.tick import tick
from driftwatch.service.configuration import plan_of_settings, sources_of
from driftwatch.settings import load_settings
from driftwatch.testing.exposition_server import ReplayedExposition, read_pages

GPU = (
    "gpus 1",
    f"value total 0 {80 * 2**30}",
    f"value free 0 {10 * 2**30}",
    "value utilization 0 96",
    "value power 0 402500",
    "value sm_clock 0 1980",
    "value gpm 0 1",
)


# Listens on a port of its own, and is no child of the process that listens on the server's.
ORPHAN = """
import os, socket, sys, time
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.01)
held = socket.create_server(("127.0.0.1", 0))
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def clock(shared_data: Path) -> ManualClock:
    pages = read_pages(shared_data / "vllm-0.32/run_main/scrapes.jsonl.gz")
    return ManualClock(datetime.fromtimestamp(pages[0][0], UTC) + timedelta(minutes=1))


@pytest.fixture
def server(shared_data: Path, clock: ManualClock) -> Iterator[ReplayedExposition]:
    pages = read_pages(shared_data / "vllm-0.32/run_main/scrapes.jsonl.gz")
    with ReplayedExposition(pages, clock=lambda: clock.now().timestamp()) as running:
        yield running


def minutes(
    clock: ManualClock, server: ReplayedExposition, plan: Plan, nvml: NvmlSource
) -> pl.DataFrame:
    """The evidence of three minutes."""
    pages = PagesSource([server.url], clock=clock)
    state, rows = State(), []
    for _ in range(13):
        state, outcome = tick([pages, nvml], state, clock.now(), plan)
        rows.append(outcome.rows)
        clock.advance(timedelta(seconds=15))
    pages.close()
    nvml.close()
    return pl.concat([frame for frame in rows if len(frame)])


def test_the_servers_process_joins_it_to_its_gpu(
    stand_in: StandIn, clock: ManualClock, server: ReplayedExposition
) -> None:
    # this process listens on the server's port, and the library says that it computes on the GPU
    stand_in.say(*GPU, f"pid 0 {os.getpid()}")
    plan = Plan((), {}, own_hosts=own_hosts([server.url]))
    rows = minutes(clock, server, plan, NvmlSource(clock))
    last = rows.row(-1, named=True)
    assert last["gpu_count"] == 1.0
    assert last["gpu_power_watts"] == 402.5
    assert last["gpu_utilization_ratio"] == pytest.approx(0.96)
    assert last["gpu_sm_clock_hertz"] == 1.98e9
    assert last["gpu_tensor_active_ratio"] == pytest.approx(0.05)
    assert last["gpus_lost"] == 0.0
    assert "NVML" in last["gpu_count_source"]


def test_another_process_does_not(
    stand_in: StandIn, clock: ManualClock, server: ReplayedExposition
) -> None:
    plan = Plan((), {}, own_hosts=own_hosts([server.url]))
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdin is not None and started.stdout is not None
        stand_in.say(*GPU, f"pid 0 {int(started.stdout.readline())}")
        rows = minutes(clock, server, plan, NvmlSource(clock))
        started.stdin.close()
    assert rows["gpu_power_watts"].null_count() == len(rows)
    assert rows["gpu_count"].null_count() == len(rows)


def called(stand_in: StandIn, log: Path, *arguments: str) -> set[str]:
    """NVML's functions that a command called."""
    log.write_text("")
    subprocess.run(
        [sys.executable, "-m", "driftwatch", *arguments],
        env=stand_in.environment(),
        capture_output=True,
        check=False,
        cwd=log.parent,
    )
    return set(log.read_text().split())


def test_watch_reads_the_gpus_of_its_own_machine_alone(
    stand_in: StandIn, server: ReplayedExposition, tmp_path: Path
) -> None:
    log = tmp_path / "called"
    stand_in.say(*GPU, f"log {log}")
    for_a_second = ("--interval", "1s", "--for", "1s")
    assert "nvmlDeviceGetPowerUsage" in called(stand_in, log, "watch", server.url, *for_a_second)
    assert called(stand_in, log, "watch", server.url, "--no-nvml", *for_a_second) == set()


def test_which_urls_are_of_this_machine(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "called"
    log.write_text("")
    stand_in.say(*GPU, f"log {log}")

    def look_up(host: str, port: None) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        address = {"alias": "127.0.0.1"}.get(host, "203.0.113.7")
        return [(0, 0, 0, "", (address, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    # TEST-NET-3: of no machine, and NVML is not even asked
    assert hosts_with_own_gpus(["http://203.0.113.77:1/metrics"]) == frozenset()
    assert log.read_text() == ""
    assert hosts_with_own_gpus(["http://elsewhere:8000/metrics"]) == frozenset()
    for host in ("localhost", "[::1]", "alias"):
        hosts = hosts_with_own_gpus([f"http://{host}:8000/metrics"])
        assert host.strip("[]") in hosts
        assert "elsewhere" not in hosts


def test_watch_says_nothing_of_gpus_that_are_not_there(
    stand_in: StandIn, server: ReplayedExposition, tmp_path: Path
) -> None:
    log = tmp_path / "called"
    stand_in.say(f"log {log}", "call nvmlInitWithFlags * error 9")
    log.write_text("")
    ran = subprocess.run(
        [sys.executable, "-m", "driftwatch", "watch", server.url, "--for", "1s"],
        env=stand_in.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0
    assert ran.stderr == ""
    assert "NVIDIA" not in ran.stdout
    assert log.read_text().split() == ["nvmlInitWithFlags"]  # asked once, then left alone


def test_a_configuration_with_nvml(stand_in: StandIn, tmp_path: Path, clock: ManualClock) -> None:
    stand_in.say(*GPU)
    config = tmp_path / "driftwatch.yaml"
    config.write_text(
        "sources: [{nvml: true}, {pages: ['http://127.0.0.1:8000/metrics']}, {nvml: true}]\n"
    )
    settings = load_settings(config)
    sources = sources_of(settings, clock)
    assert sorted(source.name for source in sources) == ["nvml", "pages"]
    assert {"localhost", "127.0.0.1"} <= plan_of_settings(settings).own_hosts
    for source in sources:
        source.close()
    config.write_text("sources: [{pages: ['http://127.0.0.1:8000/metrics']}]\n")
    assert plan_of_settings(load_settings(config)).own_hosts == frozenset()


def test_run_once_reads_them(stand_in: StandIn, server: ReplayedExposition, tmp_path: Path) -> None:
    log = tmp_path / "called"
    stand_in.say(*GPU, f"log {log}")
    (tmp_path / "driftwatch.yaml").write_text(
        f"sources: [{{nvml: true}}, {{pages: ['{server.url}']}}]\n"
    )
    assert "nvmlDeviceGetPowerUsage" in called(stand_in, log, "run", "--once")
