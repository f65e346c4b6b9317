"""DCGM through Debian's Prometheus: both label schemes, and a server joined to its GPUs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.dcgm_exporter import DcgmExporter
from fakes.dcgm_pages import FakeGpu, dcgm_page, workload
from fakes.exposition_server import read_pages
from fakes.manual_clock import ManualClock
from fakes.prometheus_server import PrometheusServer, backfill

from driftwatch.collect.dcgm_sources import DcgmPagesSource, DcgmPrometheusSource
from driftwatch.collect.gpus import GPU_FIELDS
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.service.configuration import sources_of
from driftwatch.settings import Settings

pytestmark = pytest.mark.usefixtures("real_prometheus")

OWN = {"pod": "gpu-metrics-7mqjg", "namespace": "gpu-operator", "container": "exporter"}
BUSY = FakeGpu(0, "GPU-a", workload=workload("prod", "vllm-0"))
IDLE = FakeGpu(1, "GPU-b")
EMPTY = FakeGpu(2, "GPU-c", workload=workload("", "", ""))  # as old exporters write it
ROWS = [
    ("GPU-a", "prod", "vllm-0"),
    ("GPU-b", None, None),
    ("GPU-c", None, None),
]


def job(name: str, exporter: DcgmExporter, *, honor: bool, **more: Any) -> dict[str, Any]:
    target = {"targets": [exporter.instance], "labels": OWN}
    return {"job_name": name, "honor_labels": honor, "static_configs": [target], **more}


def wait_for(server: PrometheusServer, text: str, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(server.query(text)) != count:
        assert time.monotonic() < deadline, server.query(text)
        time.sleep(0.1)


def soon() -> tuple[datetime, datetime]:
    """The last two scrapes or so."""
    at = datetime.now(UTC)
    return at - timedelta(seconds=2), at


def source_of(server: PrometheusServer, job: str) -> DcgmPrometheusSource:
    return DcgmPrometheusSource(PrometheusAsker(server.url), selector={"job": job}, name=job)


@pytest.fixture(scope="module")
def exporter() -> Iterator[DcgmExporter]:
    with DcgmExporter(dcgm_page([BUSY, IDLE, EMPTY])) as exporter:
        yield exporter


@pytest.fixture(scope="module")
def server(real_prometheus: None, exporter: DcgmExporter) -> Iterator[PrometheusServer]:
    no_up = [{"source_labels": ["__name__"], "regex": "DCGM_.*", "action": "keep"}]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            job("aside", exporter, honor=False),
            job("honoured", exporter, honor=True),
            {
                "job_name": "bare",
                "honor_labels": False,
                "static_configs": [{"targets": [exporter.instance]}],
                "metric_relabel_configs": no_up,
            },
        ],
    }
    with PrometheusServer(config) as server:
        wait_for(server, "DCGM_FI_DEV_SM_CLOCK", 9)
        wait_for(server, "up == 1", 3)
        yield server


@pytest.mark.parametrize("scheme", ["aside", "honoured", "bare"])
def test_each_label_scheme_gives_the_page(
    server: PrometheusServer, exporter: DcgmExporter, scheme: str
) -> None:
    since, until = soon()
    source = source_of(server, scheme)
    found = source.collect(since, until)
    source.close()
    assert found.problems == ()
    assert found.scrapes.is_empty()
    rows = found.gpus.select("uuid", "namespace", "pod").unique(maintain_order=True)
    assert rows.rows() == ROWS
    page = DcgmPagesSource([exporter.url], ManualClock(since))
    truth = page.collect(since, until).gpus
    page.close()
    once = found.gpus.unique("uuid", maintain_order=True).drop("time")
    assert once.equals(truth.drop("time"))


def test_a_server_and_its_gpus_from_one_history(shared_data: Path, tmp_path: Path) -> None:
    pages = read_pages(shared_data / "vllm-0.32/run_cap/scrapes.jsonl.gz")[:120]
    labels = {"job": "vllm", "instance": "10.0.0.1:8000", "namespace": "prod", "pod": "vllm-0"}
    backfill(pages, labels, tmp_path / "blocks")
    hot = FakeGpu(0, "GPU-a", workload=workload("prod", "vllm-0"))
    dcgm = [(at, dcgm_page([hot, IDLE])) for at, _ in pages[::6]]
    # as Prometheus stores it with honorLabels true; the idle GPU carries no pod
    backfill(dcgm, {"job": "dcgm", "instance": "10.0.0.1:9400"}, tmp_path / "blocks")
    first = datetime.fromtimestamp(pages[0][0], UTC)
    last = datetime.fromtimestamp(pages[-1][0], UTC)
    with PrometheusServer(blocks=tmp_path / "blocks") as server:
        said = {"sources": [{"prometheus": server.url, "match": {"job": "vllm"}}]}
        servers, gpus = sources_of(Settings.model_validate(said), ManualClock(last))
        found, readings = servers.collect(first, last), gpus.collect(first, last)
        servers.close()
        gpus.close()
    assert found.problems == readings.problems == ()
    assert {(t.labels["namespace"], t.labels["pod"]) for t in found.targets.values()} == {
        ("prod", "vllm-0")
    }
    pods = readings.gpus.filter(uuid="GPU-a").select("namespace", "pod").unique().rows()
    assert pods == [("prod", "vllm-0")]
    assert readings.gpus.filter(uuid="GPU-b")["pod"].unique().to_list() == [None]
    times = readings.gpus["time"].unique()
    assert first <= times.min() <= times.max() < last  # type: ignore[operator]
    (watts,) = readings.gpus["power_watts"].unique()
    assert watts == 512.25
    default = {f.column for f in GPU_FIELDS if not f.absent}
    assert {column for column in default if readings.gpus[column].null_count()} == set()
