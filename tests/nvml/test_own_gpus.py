"""watch and run on a machine that has the server and its GPUs: nothing else is needed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from fakes.exposition_server import ReplayedExposition, read_pages
from fakes.manual_clock import ManualClock
from nvml_cases import StandIn

from driftwatch.collect.nvml import NvmlSource, host_of, own_hosts
from driftwatch.collect.pages import PagesSource
from driftwatch.pipeline.plan import Plan
from driftwatch.service.configuration import plan_of_settings, sources_of
from driftwatch.service.replay import Ticks
from driftwatch.settings import load_settings
from driftwatch.store.store import Store


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
    rows = []
    ticks = Ticks([pages, nvml], plan, Store.in_memory(), clock.now() - timedelta(minutes=1))
    for _ in range(13):
        rows.append(ticks.tick(clock.now()).rows)
        clock.advance(timedelta(seconds=15))
    pages.close()
    nvml.close()
    return pl.concat([frame for frame in rows if len(frame)])


def test_the_only_server_has_the_gpus_in_use(
    stand_in: StandIn, clock: ManualClock, server: ReplayedExposition
) -> None:
    stand_in.gpus = [0, 1]
    stand_in.values = {"used": {1: 4_000_000}}  # nobody computes there
    plan = Plan((), {}, own_hosts=own_hosts([server.url]))
    rows = minutes(clock, server, plan, NvmlSource(clock))
    last = rows.row(-1, named=True)
    assert last["gpu_count"] == 1.0
    assert last["gpu_power_watts"] == 402.5
    assert last["gpu_utilization_ratio"] == pytest.approx(0.96)
    assert last["gpu_sm_clock_hertz"] == 1.98e9
    assert last["gpus_lost"] == 0.0
    assert "NVML" in last["gpu_count_source"]


def test_a_configuration_with_nvml(stand_in: StandIn, tmp_path: Path, clock: ManualClock) -> None:
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


def resolver(**known: list[str]) -> object:
    def look_up(host: str, port: None) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        if host not in known:
            raise socket.gaierror
        return [(0, 0, 0, "", (address, 0)) for address in known[host]]

    return look_up


def test_a_host_that_is_asked_for_by_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, other = "127.0.0.7", "203.0.113.9"
    known = {"alias": [ours], "other": [other], "both": [ours, other], "127.0.0.2": ["127.0.0.2"]}
    monkeypatch.setattr(socket, "getaddrinfo", resolver(**known))
    urls = [f"http://{host}:8000/metrics" for host in (*known, "none")]
    found = own_hosts([*urls, "http://[", ""], hostname="gpu-1")
    assert found & {*known, "none"} == {"alias", "127.0.0.2"}


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://host:8000/metrics", "host"),
        ("https://Host/metrics", "host"),
        ("http://user:secret@host:1/", "host"),
        ("http://[fd00::2]:8000/metrics", "fd00::2"),
        ("http://[fd00::2]/metrics", "fd00::2"),
        ("host:8000", "host"),
        ("http://[bad", ""),
    ],
)
def test_the_host_of_a_url(url: str, host: str) -> None:
    assert host_of(url) == host
