"""A scenario and a seed → what a scraper would have got of every server.

Everything follows from scenario and seed: the same in any order, in any number of processes. One
server and one day's scrapes are in memory at a time.
"""

from __future__ import annotations

import gzip
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice
from pathlib import Path

import orjson
import polars as pl

from driftwatch.collect.recordings.compact import Part, write_manifest, write_part
from driftwatch.fleet.load import load_file
from driftwatch.fleet.metrics.history import Scraped
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.server_run import CHUNK_SECONDS, Chunk, ServerRun
from driftwatch.fleet.servers import (
    CONTAINER,
    DCGM_JOB,
    JOB,
    KUBE_JOB,
    exporter_of,
    instance_of,
    pod_of,
    relabelled_of,
    seconds_of,
    servers_of,
    targets_of,
)
from driftwatch.fleet.traffic import PoolTraffic

Progress = Callable[[float, float], None]

_CHUNKS_A_DAY = round(86_400.0 / CHUNK_SECONDS)


def generate(
    scenario: Scenario, seed: int, *, pages: bool = False, chunk_seconds: float = CHUNK_SECONDS
) -> Iterator[Chunk]:
    """Every server's chunks, server by server, each in order of time.

    ``pages``: with the texts of the pages; ``chunk_seconds``: how much is in memory at a time;
    requests are drawn chunk by chunk, so another length is another draw.
    """
    traffic = PoolTraffic.of(scenario, seed)
    for number in range(scenario.servers):
        run = ServerRun(scenario, seed, number, traffic, pages=pages)
        yield from run.chunks(chunk_seconds)


def generate_compact(
    scenario: Scenario,
    seed: int,
    folder: Path,
    *,
    jobs: int = 1,
    progress: Progress | None = None,
) -> None:
    """A compact recording of the scenario, servers side by side.

    ``folder``: of the recording; made if it is not there; ``jobs``: processes; the recording does
    not depend on how many; ``progress``: told (servers done, servers in all).
    """
    folder.mkdir(parents=True, exist_ok=True)
    count = scenario.servers
    parts: dict[int, list[Part]] = {}
    if jobs <= 1 or count == 1:
        for number in range(count):
            parts[number] = server_parts(scenario, seed, number, folder)
            if progress is not None:
                progress(len(parts), count)
    else:
        # never fork after polars was imported: its threads would be gone in the child
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(jobs, count), mp_context=context) as pool:
            running = {
                pool.submit(server_parts, scenario, seed, number, folder): number
                for number in range(count)
            }
            for done in as_completed(running):
                parts[running[done]] = done.result()
                if progress is not None:
                    progress(len(parts), count)
    ordered = [part for number in range(count) for part in parts[number]]
    write_manifest(folder, ordered, targets_of(scenario), relabelled=relabelled_of(scenario))


def server_parts(scenario: Scenario, seed: int, number: int, folder: Path) -> list[Part]:
    """One server's Parquet parts, a day each; its load goes beside them."""
    run = ServerRun(scenario, seed, number, PoolTraffic.of(scenario, seed), pages=False)
    parts: list[Part] = []
    loads: list[pl.DataFrame] = []
    chunks = run.chunks()
    for day, of_day in enumerate(iter(lambda: list(islice(chunks, _CHUNKS_A_DAY)), [])):
        loads += [chunk.load for chunk in of_day if chunk.load is not None]
        parts += write_part(
            folder,
            f"{number:04d}-{day:03d}",
            pl.concat([chunk.scrapes for chunk in of_day]),
            pl.concat([chunk.gpus for chunk in of_day]),
        )
    pl.concat(loads).write_parquet(load_file(folder, number), compression="zstd")
    return parts


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
