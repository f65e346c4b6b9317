"""Situations that people report in public, rebuilt with the stand-in of shared/data/field."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest
from fakes.prometheus_api import PrometheusApi, Series

from driftwatch.collect.pages.parser import PageParser
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import Collected

T0 = datetime(2026, 1, 1, tzinfo=UTC)
_SAMPLE = re.compile(r"([\w:]+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@pytest.fixture(scope="module")
def vsim(shared_data: Path) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("vsim", shared_data / "field/lib/vsim.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Fleet:
    """Pages as a Prometheus stores them."""

    def __init__(self) -> None:
        self._points: dict[tuple[tuple[str, str], ...], list[tuple[float, str]]] = {}

    def page(
        self,
        at: float,
        body: str,
        target: Mapping[str, str],
        rename: Callable[[str], str] = str,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self._add(at, "up", target, "1")
        for line in body.splitlines():
            if (match := _SAMPLE.fullmatch(line)) is not None:
                labels = {**dict(_LABEL.findall(match[2] or "")), **target, **(more or {})}
                self._add(at, rename(match[1]), labels, match[3])

    def _add(self, at: float, name: str, labels: Mapping[str, str], value: str) -> None:
        key = tuple(sorted({"__name__": name, **labels}.items()))
        self._points.setdefault(key, []).append((T0.timestamp() + at, value))

    def collected(self) -> Collected:
        held = [Series(dict(key), points, 15) for key, points in self._points.items()]
        with PrometheusApi(held) as api:
            source = PrometheusSource(PrometheusAsker(api.address), selector={})
            found = source.collect(T0, T0 + timedelta(minutes=1))
            source.close()
        return found


def engine(vsim: ModuleType, seed: int, rate: float) -> Callable[[float], str]:
    """A server with this many requests a second; its page at a second."""
    one = vsim.Engine(seed=seed, t0=T0.timestamp() - 300 - seed, max_num_seqs=8, kv_tokens=60_000)

    def page(at: float) -> str:
        one.advance(T0.timestamp() + at, rate=rate, p=300, g=150)
        return str(vsim.page([one]))

    return page


def test_36_one_instance_in_two_namespaces(vsim: ModuleType) -> None:
    fleet = Fleet()
    for seed, (namespace, rate) in enumerate((("prod", 9.0), ("dev", 0.5))):
        page = engine(vsim, seed, rate)
        labels = {"instance": "vllm-0:metrics", "job": "pods", "namespace": namespace}
        for at in range(0, 60, 15):
            fleet.page(at, page(at), {**labels, "pod": "vllm-0", "cluster": "c1"})
    found = fleet.collected()
    assert found.problems == ()
    waiting = found.scrapes.group_by("instance").agg(pl.col("waiting_requests").max())
    assert dict(waiting.rows())["dev/vllm-0:metrics"] == 0
    assert dict(waiting.rows())["prod/vllm-0:metrics"] > 10


def test_03_one_server_scraped_by_two_jobs(vsim: ModuleType) -> None:
    fleet, page = Fleet(), engine(vsim, 3, 1.5)
    pod = {"instance": "10.1.0.5:8000", "job": "pods", "namespace": "models", "pod": "chat-0"}
    service = {"instance": "chat.models.svc:8000", "job": "services", "namespace": "models"}
    for at in range(0, 60, 15):
        fleet.page(at, page(at), pod)
        fleet.page(at + 7, page(at + 7), service)
    found = fleet.collected()
    assert [key.instance for key in found.targets] == ["10.1.0.5:8000"]
    assert found.scrapes.height == 4
    (problem,) = found.problems
    assert "scraped more than once" in problem.reason
    assert "chat.models.svc:8000" in problem.reason


def test_01_another_prefix(vsim: ModuleType) -> None:
    """KServe's PodMonitor renames every metric and adds labels that `up` does not have."""
    fleet, page, plain = Fleet(), engine(vsim, 1, 4.0), Fleet()
    labels = {"instance": "10.1.0.5:8000", "job": "models/kserve", "namespace": "models"}
    for at in range(0, 60, 15):
        body = page(at)
        plain.page(at, body, labels)
        fleet.page(at, body, labels, lambda name: f"kserve_{name}", {"llm_isvc_name": "chat"})
    found = fleet.collected()
    assert found.problems == ()
    assert found.scrapes.equals(plain.collected().scrapes)


@pytest.mark.parametrize("prefix", ["ray_vllm_", "vllm_omni:", "acme_llm:vllm:"])
def test_01_any_prefix_on_a_page(vsim: ModuleType, prefix: str) -> None:
    body = engine(vsim, 1, 4.0)(0)
    ours = PageParser().parse("h:1", T0, body.replace("vllm:", prefix).encode())
    truth = PageParser().parse("h:1", T0, body.encode())
    assert ours.problems == ()
    assert ours.frame.equals(truth.frame)


def test_37b_an_allow_list_without_start_times(vsim: ModuleType) -> None:
    """All else is read; that there are several API servers is a guess."""
    fleet, page = Fleet(), engine(vsim, 1, 4.0)
    labels = {"instance": "10.1.0.5:8000", "job": "vllm"}
    for at in range(0, 60, 15):
        lines = page(at).splitlines()
        kept = [o for o in lines if not o.startswith("process_") and "_created" not in o]
        fleet.page(at, "\n".join(kept), labels)
    rows = fleet.collected().scrapes
    assert rows["several_api_servers"].all()
    assert rows["iteration_tokens_count"].null_count() == 0
    assert rows["itl_seconds_buckets"].null_count() == 0
