"""The dashboard: of one piece, and each of its queries answered by a real Prometheus."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from deploy_cases import DEPLOY
from fakes import prometheus_server
from fakes.dcgm_pages import FakeGpu, dcgm_page, workload
from fakes.exposition_server import Page, read_pages
from fakes.manual_clock import ManualClock
from fakes.prometheus_server import PrometheusServer, backfill
from prometheus_client.exposition import generate_latest

from driftwatch.collect.dcgm import GpuSamples
from driftwatch.collect.recordings import open_recording
from driftwatch.collect.schema import Collected
from driftwatch.receivers.stdout import StdoutSender
from driftwatch.service.configuration import plan_of_settings
from driftwatch.service.metrics import TARGET_COLUMNS
from driftwatch.service.run import Receiver, Service
from driftwatch.settings import load_settings
from driftwatch.store.store import Store

FOLDER = DEPLOY / "grafana"
INSTANCE = "rag-0:8000"
# minutes into run_cap: heavy since 3, the page fires at 11.8, traffic goes back at 12
MINUTES = 12.5


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "dashboards/driftwatch.json").read_text())
    return found


def _panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def _queries(dashboard: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (panel["title"], target["refId"], target["expr"])
        for panel in _panels(dashboard)
        for target in panel["targets"]
    ]


# -- its shape -----------------------------------------------------------------------------------


def test_unknown_is_a_gap(dashboard: dict[str, Any]) -> None:
    for panel in _panels(dashboard):
        if panel["type"] == "table":  # its absence of lines is not unknown, nor is it zero
            assert "Firing now" in panel["fieldConfig"]["defaults"]["noValue"]
            continue
        assert panel["fieldConfig"]["defaults"]["noValue"] == "unknown"
        if panel["type"] != "stat":
            assert panel["fieldConfig"]["defaults"]["custom"]["spanNulls"] is False
    filled = [
        expr for _, _, expr in _queries(dashboard) if re.search(r"or (on \(\) )?vector", expr)
    ]
    assert filled == []


def test_gauges_of_targets_are_those_that_are_served(dashboard: dict[str, Any]) -> None:
    asked = set(re.findall(r"driftwatch_target_(\w+)", json.dumps(dashboard)))
    assert asked - {"limit_binds"} <= set(TARGET_COLUMNS)


# -- its queries ---------------------------------------------------------------------------------

CONFIG = """
sources: [{{nvml: true}}]
pools:
  - name: rag-8b
    serving: {{max_num_seqs: 8, max_num_batched_tokens: 1024}}
    tuned_for: {{prompt_tokens: 100, generation_tokens: 120}}
receivers: [{{name: out, stdout: {{}}}}]
"""


def _pages_of_gpu(times: list[float]) -> list[Page]:
    gpu = FakeGpu(0, "GPU-1", workload=workload("prod", "rag-0"))
    return [(at, dcgm_page([gpu], "node-1")) for at in times]


def _recording(folder: Path, servers: list[Page]) -> Path:
    path = folder / "scrapes.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for at, body in servers:
            line = {"t": at, "status": 200, "body": body, "instance": INSTANCE}
            file.write(json.dumps(line) + "\n")
    return path


class RecordedGpus:
    """The pages of a dcgm-exporter, as a source."""

    name, settle_seconds = "dcgm", 0.0

    def __init__(self, pages: list[Page]) -> None:
        self._pages = [(datetime.fromtimestamp(at, UTC), body.encode()) for at, body in pages]

    def collect(self, since: datetime, until: datetime) -> Collected:
        samples = GpuSamples()
        for at, body in self._pages:
            if since <= at < until:
                samples.page("node-1:9400", at, body)
        return samples.collected()

    def close(self) -> None:
        """Nothing is open."""


def _own_pages(folder: Path, recording: Path, gpus: list[Page], begin: float) -> list[Page]:
    """What the service's own /metrics says while it watches the recording, minute by minute."""
    config = folder / "driftwatch.yaml"
    config.write_text(CONFIG.format())
    settings = load_settings(config, environ={})
    labels = {"namespace": "prod", "pod": "rag-0"}
    clock = ManualClock(datetime.fromtimestamp(begin, UTC))
    pages: list[Page] = []
    with Store.open(folder / "driftwatch.db") as store, (folder / "pages.jsonl").open("w") as out:
        sender = StdoutSender("out", json=True, stream=out)
        receivers = [Receiver("out", ("page", "ticket", "notice"), sender, "each")]
        source = open_recording(recording)
        for key, target in (read := source.collect(*source.span())).targets.items():
            read.targets[key] = replace(target, labels={**labels, **target.labels})  # type: ignore[index]
        sources = [source, RecordedGpus(gpus)]
        service = Service(sources, plan_of_settings(settings), store, receivers, clock)
        for _ in range(int(MINUTES)):
            clock.advance(timedelta(minutes=1))
            service.tick_once()
            service.deliver_once()
            pages.append((clock.now().timestamp(), generate_latest(service.metrics.registry)))
        service.stop()
    return [(at, body.decode()) for at, body in pages]


@pytest.fixture(scope="module")
def real_prometheus(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[PrometheusServer, float]]:
    """A recorded server, its GPU and the driftwatch that watched it; and the time they end."""
    if not prometheus_server.installed():
        pytest.skip(prometheus_server.NOT_INSTALLED)
    folder = tmp_path_factory.mktemp("grafana")
    recorded = read_pages(shared_data / "vllm-0.32/run_cap/scrapes.jsonl.gz")
    begin = recorded[0][0]
    servers = [(at, body) for at, body in recorded if at <= begin + MINUTES * 60]
    gpus = _pages_of_gpu([at for at, _ in servers[::3]])
    own = _own_pages(folder, _recording(folder, servers), gpus, begin)
    blocks = folder / "blocks"
    backfill(servers, {"job": "vllm", "instance": INSTANCE}, blocks)
    backfill(gpus, {"job": "dcgm-exporter", "instance": "node-1:9400"}, blocks)
    # as scraped with honor_labels: what it says of a target keeps the target's instance
    backfill(own, {"job": "driftwatch"}, blocks)
    with PrometheusServer(blocks=blocks) as server:
        yield server, own[-1][0]


def _substituted(text: str) -> str:
    """As Grafana does for "All" in a pool of one: one value, escaped for a regular expression."""
    values = {"__rate_interval": "3m", "pool": "rag-8b", "instance": "rag-0:8000"}
    for name, value in values.items():
        text = text.replace(f"${name}", value)
    assert "$" not in text, text
    return text


def _asked(server: PrometheusServer, text: str, at: float) -> list[dict[str, Any]]:
    answer = requests.get(
        f"{server.url}/api/v1/query", params={"query": text, "time": f"{at:.3f}"}, timeout=10
    )
    assert answer.ok, (text, answer.text)
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found


def test_every_query_is_answered(
    dashboard: dict[str, Any], real_prometheus: tuple[PrometheusServer, float]
) -> None:
    server, at = real_prometheus
    silent = [
        (title, ref)
        for title, ref, expression in _queries(dashboard)
        if not _asked(server, _substituted(expression), at)
    ]
    assert silent == []


def test_the_numbers_are_those_of_the_incident(
    dashboard: dict[str, Any], real_prometheus: tuple[PrometheusServer, float]
) -> None:
    server, at = real_prometheus
    expressions = {(title, ref): text for title, ref, text in _queries(dashboard)}

    def value(title: str, ref: str = "A") -> float:
        (found,) = _asked(server, _substituted(expressions[title, ref]), at)
        return float(found["value"][1])

    assert value("Firing now") >= 1
    assert value("Running against max_num_seqs", "B") == 8
    assert value("GPU_UTIL") == 0.99
    assert value("Power") == 512.25
    assert value("Every GPU: power") == 512.25
    binding = _asked(server, _substituted(expressions["Which limit binds", "A"]), at)
    assert [f["metric"]["limit"] for f in binding if f["value"][1] == "1"] == ["max_num_seqs"]
