"""Examples for autoscalers: their queries, as the files have them, asked of a real Prometheus."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import requests
from deploy_cases import DEPLOY, documents

from driftwatch.fleet.generate import generate, write_openmetrics
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.model import Reason
from driftwatch.pipeline.advised_replicas import Advised
from driftwatch.service.endpoint import Endpoint
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.service.pool_metrics import ADVISED
from driftwatch.service.target_metrics import PREFIX, STALE_SECONDS
from driftwatch.testing import prometheus_server
from driftwatch.testing.prometheus_server import PrometheusServer, scrape_config

FOLDER = DEPLOY / "autoscaling"
POOL = "rag-8b"
_real = pytest.mark.skipif(
    not prometheus_server.installed(), reason=prometheus_server.NOT_INSTALLED
)

# KEDA's CRD has no schema in Kubernetes: what the file uses of it, and nothing else
_WINDOW = {"stabilizationWindowSeconds": {"type": "integer"}, "policies": {"type": "array"}}
_SCALED_OBJECT = {
    "type": "object",
    "required": ["scaleTargetRef", "triggers", "minReplicaCount", "maxReplicaCount"],
    "additionalProperties": False,
    "properties": {
        "scaleTargetRef": {"type": "object", "required": ["name"], "maxProperties": 1},
        "pollingInterval": {"type": "integer"},
        # with 0 the pool is scaled to nothing, and has no capacity from then on
        "minReplicaCount": {"type": "integer", "minimum": 1},
        "maxReplicaCount": {"type": "integer"},
        "advanced": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "horizontalPodAutoscalerConfig": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "behavior": {
                            "type": "object",
                            "additionalProperties": False,
                            "properties": {
                                "scaleDown": {"properties": _WINDOW, "additionalProperties": False}
                            },
                        }
                    },
                }
            },
        },
        "triggers": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["type", "metricType", "metadata"],
                "additionalProperties": False,
                "properties": {
                    "type": {"const": "prometheus"},
                    "metricType": {"const": "AverageValue"},
                    "metadata": {
                        "type": "object",
                        "required": ["serverAddress", "query", "threshold", "ignoreNullValues"],
                        "additionalProperties": {"type": "string"},
                        "properties": {
                            "threshold": {"const": "1"},
                            # or an empty answer would be 0 replicas
                            "ignoreNullValues": {"const": "false"},
                        },
                    },
                },
            },
        },
    },
}


def _scaled_object() -> dict[str, Any]:
    (found,) = documents(FOLDER / "keda-scaledobject.yaml")
    return dict(found)


def _autoscaler() -> dict[str, Any]:
    (found,) = documents(FOLDER / "hpa.yaml")
    return dict(found)


def _queries() -> dict[str, str]:
    """What KEDA asks, and what the adapter asks for the autoscaler, by file."""
    (metric,) = (one["external"]["metric"] for one in _autoscaler()["spec"]["metrics"])
    (values,) = documents(FOLDER / "prometheus-adapter.yaml")
    (rule,) = values["rules"]["external"]
    assert rule["resources"] == {"namespaced": False}  # or it would add a namespace's matcher
    assert rule["seriesQuery"].split("{")[0] == metric["name"]
    matchers = ",".join(f'{k}="{v}"' for k, v in metric["selector"]["matchLabels"].items())
    text = rule["metricsQuery"].replace("<<.Series>>", metric["name"])
    asked = text.replace("<<.LabelMatchers>>", matchers)
    assert "<<" not in asked
    (trigger,) = _scaled_object()["spec"]["triggers"]
    return {"keda": trigger["metadata"]["query"], "adapter": asked}


def test_the_schemas_take_the_examples() -> None:
    for release in ("1.27", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(_autoscaler(), release, strict=True)
    found = _scaled_object()
    assert (found["apiVersion"], found["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    jsonschema.validate(found["spec"], _SCALED_OBJECT)


def test_both_examples_say_the_same() -> None:
    keda, hpa = _scaled_object()["spec"], _autoscaler()["spec"]
    assert keda["scaleTargetRef"]["name"] == hpa["scaleTargetRef"]["name"]
    assert (keda["minReplicaCount"], keda["maxReplicaCount"]) == (
        hpa["minReplicas"],
        hpa["maxReplicas"],
    )
    assert keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == hpa["behavior"]
    (target,) = (one["external"]["target"] for one in hpa["metrics"])
    (trigger,) = keda["triggers"]
    assert target == {
        "type": trigger["metricType"],
        "averageValue": trigger["metadata"]["threshold"],
    }
    assert len(set(_queries().values())) == 1


def _numbers(server: PrometheusServer) -> dict[str, list[float]]:
    """What each query answers now: one number, or none."""
    found = {}
    for name, query in _queries().items():
        found[name] = [float(one["value"][1]) for one in server.query(query)]
        assert len(found[name]) <= 1
    return found


def _until(true: Callable[[], Any], seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.3)
    return found


HOLDS: dict[str, list[float]] = {"keda": [], "adapter": []}


@_real
def test_an_autoscaler_holds_where_the_pool_is_unknown_and_where_the_minute_is_long_past() -> None:
    now = [datetime.now(UTC)]
    end = now[0]
    own = OwnMetrics(lambda: now[0])
    endpoint = Endpoint(("127.0.0.1", 0), own.registry, lambda: None, lambda: None)
    config = scrape_config({"driftwatch": ["{}:{}".format(*endpoint.address)]}, interval="1s")
    try:
        with PrometheusServer(config) as server:

            def answers(wanted: list[float]) -> None:
                both = dict.fromkeys(HOLDS, wanted)
                _until(lambda: server.query("up == 1") and _numbers(server) == both, 30)

            own.per_pool.note({POOL: Advised(3), "other": Advised(9)}, end)
            answers([3.0])
            unknown = Advised(None, Reason("minutes", "unknown"))
            own.per_pool.note({POOL: unknown, "other": Advised(9)}, end)
            answers([])
            own.per_pool.note({POOL: Advised(4)}, end)
            answers([4.0])
            now[0] = end + timedelta(seconds=STALE_SECONDS + 1)
            answers([])
    finally:
        endpoint.close()


REPLICAS, RATE, MINUTES = 2, 20.0, 35
CONFIG = """
sources: [{{prometheus: '{url}', step: 15s, match: {{job: vllm}}}}]
interval: 5s
listen: 127.0.0.1:0
autoscaling: {{target_load_ratio: 0.6}}
pools:
  - name: rag-8b
    match: {{model_name: meta-llama/Llama-3.1-8B}}
    serving: {{max_num_seqs: 256, max_num_batched_tokens: 2048}}
    slo: {{ttft_seconds: 2.0, tpot_seconds: 0.05}}
"""


def _fleet(name: str, more: dict[str, Any]) -> Scenario:
    start = datetime.now(UTC) - timedelta(minutes=MINUTES)
    return Scenario.model_validate(
        {
            "name": name,
            "title": name,
            # the servers answer for as long as the test looks at them
            "duration": f"{MINUTES + 5}m",
            "start": start.isoformat(),
            "pool": {"name": name, "replicas": REPLICAS, "dcgm": False, **more},
            "traffic": {"requests_per_second": RATE, "wander_ratio": 0.05},
            "truth": {},
        }
    )


def _history(folder: Path) -> Path:
    """Blocks of two pools: one with declared settings, one of which nobody knows them."""
    promtool = shutil.which("promtool")
    assert promtool is not None
    for scenario in (_fleet("chat", {}), _fleet("blind", {"model": "qwen2.5-7b", "replicas": 1})):
        part = folder / scenario.name
        part.mkdir()
        text = write_openmetrics(scenario, generate(scenario, 1, pages=True), part)
        make = [promtool, "tsdb", "create-blocks-from", "openmetrics", text, folder / "blocks"]
        subprocess.run(make, capture_output=True, check=True)
    return folder / "blocks"


@_real
def test_a_real_driftwatch_advises_and_an_autoscaler_holds_when_it_is_killed(
    tmp_path: Path,
) -> None:
    with PrometheusServer(blocks=_history(tmp_path)) as past:
        config = tmp_path / "driftwatch.yaml"
        config.write_text(CONFIG.format(url=past.url))
        log = (tmp_path / "log").open("w+")
        service = subprocess.Popen(
            [sys.executable, "-m", "driftwatch", "run", "-c", str(config)],
            stderr=log,
            cwd=tmp_path,
            env={**os.environ, "NO_COLOR": "1"},
        )
        try:

            def listens() -> re.Match[str] | None:
                assert service.poll() is None, (tmp_path / "log").read_text()
                return re.search(r"metrics=http://(\S+)/metrics", (tmp_path / "log").read_text())

            address = _until(listens, 60).group(1)
            with PrometheusServer(scrape_config({"driftwatch": [address]})) as server:
                found = _until(lambda: any((now := _numbers(server)).values()) and now, 120)
                page = requests.get(f"http://{address}/metrics", timeout=10).text
                _matches(found, page)
                service.kill()
                service.wait()
                _until(lambda: _numbers(server) == HOLDS, 30)
        finally:
            service.kill()
            service.wait()
            log.close()


def _matches(found: dict[str, list[float]], page: str) -> None:
    """Both queries have the number of driftwatch's own page, and it is one that can be."""
    (advised,) = re.findall(rf'^{ADVISED}{{pool="{POOL}"}} (\S+)$', page, re.M)
    assert found == {name: [float(advised)] for name in HOLDS}
    # the whole pool's; the settings of the other one are not known
    assert re.search(r'^driftwatch_pool_replicas_unknown{pool="[^"]*qwen', page, re.M | re.I)
    assert len(re.findall(rf"^{ADVISED}{{", page, re.M)) == 1
    capacities = re.findall(rf"^{PREFIX}capacity_requests_per_second{{.*}} (\S+)$", page, re.M)
    assert len(capacities) in (0, REPLICAS)  # they are served from the next minute on
    assert float(advised) >= math.ceil(
        0.9 * RATE / 0.6 / 24.3
    )  # what the hidden engine can at most
    assert float(advised) <= 16
