"""A simulated fleet as a text recording, and as OpenMetrics for promtool."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import orjson

from driftwatch.fleet.metrics.history import Scraped
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.server_run import Chunk
from driftwatch.fleet.servers import (
    CONTAINER,
    DCGM_JOB,
    JOB,
    KUBE_JOB,
    exporter_of,
    instance_of,
    pod_of,
    seconds_of,
    servers_of,
)

_TEXT_FILE = "scrapes.jsonl.gz"


def write_recording(scenario: Scenario, chunks: Iterable[Chunk], folder: Path) -> Path:
    """``scrapes.jsonl.gz``: server by server, each server's pages and its exporter's by time.

    ``chunks``: with the texts of the pages. Returns the file; the same chunks give the same bytes.
    """
    path = folder / _TEXT_FILE
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        for chunk in chunks:
            lines = [(a, instance_of(scenario, chunk.number)) for a in chunk.answers]
            lines += [(a, exporter_of(scenario, chunk.number)) for a in chunk.gpu_answers]
            for answer, instance in sorted(lines, key=lambda line: (line[0].time, line[1])):
                file.write(_line(answer, instance))
    return path


def _line(answer: Scraped, instance: str) -> bytes:
    fields = {
        "t": answer.time.timestamp(),
        "instance": instance,
        "status": answer.status,
        "body": answer.body,
    }
    return orjson.dumps(fields) + b"\n"


_OPENMETRICS_FILE = "fleet.om"
KUBE_INSTANCE = "kube-state-metrics:8080"


def write_openmetrics(scenario: Scenario, chunks: Iterable[Chunk], folder: Path) -> Path:
    """``fleet.om``, series of all servers.

    ``chunks``: with the texts of the pages. Returns the file; ``promtool tsdb create-blocks-from
    openmetrics FILE DATA`` loads it.
    """
    path = folder / _OPENMETRICS_FILE
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for chunk in chunks:
            for answers, instance, job in (
                (chunk.answers, instance_of(scenario, chunk.number), JOB),
                (chunk.gpu_answers, exporter_of(scenario, chunk.number), DCGM_JOB),
            ):
                # the exporter's own labels hold its pod, not that of the server
                kube = scenario.pool.image is not None and job == JOB
                more = pod_of(scenario, chunk.number) if kube else {}
                for answer in answers:
                    file.writelines(_samples(answer, instance, job, more))
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


def _samples(answer: Scraped, instance: str, job: str, more: Mapping[str, str]) -> Iterator[str]:
    """The lines of one scrape, with the labels that discovery gives the target."""
    at = f"{answer.time.timestamp():.3f}"
    target_labels = {"instance": instance, "job": job, **more}
    labels = ",".join(f'{name}="{value}"' for name, value in target_labels.items())
    yield f"up{{{labels}}} {int(answer.status == 200)} {at}\n"
    if answer.status != 200:
        return
    for line in answer.body.splitlines():
        if not line or line.startswith("#"):
            continue
        series, _, value = line.rpartition(" ")
        name, brace, rest = series.partition("{")
        inside = f"{rest[:-1].rstrip(',')}," if brace and rest != "}" else ""
        yield f"{name}{{{inside}{labels}}} {value} {at}\n"
