"""A scenario and a seed → what a scraper would have got of every server.

Everything follows from scenario and seed: the same in any order, in any number of processes. One
server and one day's scrapes are in memory at a time.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice
from pathlib import Path

import polars as pl

from driftwatch.collect.recordings.compact import Part, write_manifest, write_part
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.server_run import CHUNK_SECONDS, Chunk, Observer, ServerRun
from driftwatch.fleet.servers import relabelled_of, targets_of
from driftwatch.fleet.traffic import PoolTraffic

Progress = Callable[[float, float], None]

_CHUNKS_A_DAY = round(86_400.0 / CHUNK_SECONDS)


def generate(
    scenario: Scenario, seed: int, *, chunk_seconds: float = CHUNK_SECONDS
) -> Iterator[Chunk]:
    """Every server's chunks, server by server, each in order of time.

    ``chunk_seconds``: how much is in memory at a time; requests are drawn chunk by chunk, so
    another length is another draw.
    """
    traffic = PoolTraffic.of(scenario, seed)
    for number in range(scenario.servers):
        run = ServerRun(scenario, seed, number, traffic)
        yield from run.chunks(chunk_seconds)


def generate_compact(
    scenario: Scenario,
    seed: int,
    folder: Path,
    *,
    jobs: int = 1,
    progress: Progress | None = None,
    observers: Mapping[int, Observer] | None = None,
) -> None:
    """A compact recording of the scenario, servers side by side.

    ``folder``: of the recording; made if it is not there; ``jobs``: processes; the recording does
    not depend on how many; ``progress``: told (servers done, servers in all);
    ``observers``: by the number of the server; for one job.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count = scenario.servers
    parts: dict[int, list[Part]] = {}
    if jobs <= 1 or count == 1:
        for number in range(count):
            observer = (observers or {}).get(number)
            parts[number] = server_parts(scenario, seed, number, folder, observer)
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


def server_parts(
    scenario: Scenario, seed: int, number: int, folder: Path, observer: Observer | None = None
) -> list[Part]:
    """One server's Parquet parts, a day each."""
    traffic = PoolTraffic.of(scenario, seed)
    run = ServerRun(scenario, seed, number, traffic, observer)
    parts: list[Part] = []
    chunks = run.chunks()
    for day, of_day in enumerate(iter(lambda: list(islice(chunks, _CHUNKS_A_DAY)), [])):
        parts += write_part(
            folder,
            f"{number:04d}-{day:03d}",
            pl.concat([chunk.scrapes for chunk in of_day]),
            pl.concat([chunk.gpus for chunk in of_day]),
        )
    return parts
