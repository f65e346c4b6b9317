"""A simulated fleet as OpenMetrics for promtool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from driftwatch.collect.foreign import STATS_DISABLED
from driftwatch.collect.registry import REGISTRY
from driftwatch.fleet.generate import Chunk
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.servers import (
    CONTAINER,
    JOB,
    KUBE_JOB,
    instance_of,
    pod_of,
    seconds_of,
    servers_of,
)

_OPENMETRICS_FILE = "fleet.om"
KUBE_INSTANCE = "kube-state-metrics:8080"


def write_openmetrics(scenario: Scenario, chunks: Iterable[Chunk], folder: Path) -> Path:
    """``fleet.om``, series of all servers.

    Returns the file; ``promtool tsdb create-blocks-from openmetrics FILE DATA`` loads it.
    """
    path = folder / _OPENMETRICS_FILE
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for chunk in chunks:
            target = {"instance": instance_of(scenario, chunk.number), "job": JOB}
            if scenario.pool.image is not None:
                target |= pod_of(scenario, chunk.number)
            for row in chunk.scrapes.iter_rows(named=True):
                file.writelines(f"{line} {row['time'].timestamp():.3f}\n"
                                for line in _samples(row, target))  # fmt: skip
        file.writelines(container_info(scenario))
        file.write("# EOF\n")
    return path


def container_info(scenario: Scenario) -> Iterator[str]:
    """``kube_pod_container_info`` of each server at each interval: which image its pod runs."""
    start, end = seconds_of(scenario)
    for server in servers_of(scenario):
        where = {**pod_of(scenario, server.number), "container": CONTAINER}
        since = 0.0
        for life in server.lives:
            begun, since = since, life.end_seconds  # a pod is replaced at once, and boots then
            if life.image is None:
                continue
            labels = where | {"image": life.image, "instance": KUBE_INSTANCE, "job": KUBE_JOB}
            inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
            at = start + begun
            while at < min(start + life.end_seconds, end):
                yield f"kube_pod_container_info{{{inside}}} 1 {at:.3f}\n"
                at += scenario.scrape.interval


def _samples(row: Mapping[str, Any], target: Mapping[str, str]) -> Iterator[str]:
    """The series of one scrape, with the labels that discovery gives the target."""

    def line(name: str, value: float, **own: str) -> str:
        labels = ",".join(f'{k}="{v}"' for k, v in {**own, **target}.items())
        return f"{name}{{{labels}}} {value!r}"

    yield line("up", float(row["ok"] or row["reason"] == STATS_DISABLED))
    if not row["ok"]:
        return
    engine = {"engine": row["engine"], "model_name": row["model_name"]}
    for metric in REGISTRY:
        name, column = metric.wire_name, metric.column
        own = {**(engine if name.startswith("vllm:") else {}), **dict(metric.labels)}
        if metric.type == "info":
            yield line(name, 1.0, **{"engine": row["engine"], **orjson.loads(row[column])})
        elif metric.type != "histogram" and row[column] is not None:
            yield line(name, row[column], **own)
        elif metric.type == "histogram":
            edges, counts = (row.get(f"{column}_{part}") or () for part in ("edges", "buckets"))
            for edge, count in zip(edges, counts, strict=True):
                le = "+Inf" if edge == float("inf") else repr(edge)
                yield line(f"{name}_bucket", count, **own, le=le)
            yield line(f"{name}_sum", row[f"{column}_sum"], **own)
            yield line(f"{name}_count", row[f"{column}_count"], **own)
