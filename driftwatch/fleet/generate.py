"""The scrapes and GPU readings of every server, from a scenario and a seed.

They depend on nothing else: not on the order of servers or the number of processes. Memory holds
one server and one day of its scrapes at a time.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.recordings.compact import Part, write_manifest, write_part
from driftwatch.collect.schema import empty_scrapes
from driftwatch.fleet.gpus import board, gpu_load, gpu_rows
from driftwatch.fleet.hidden_engine import (
    clock_ratio,
    configuration_of,
    disturbance_of,
    is_wedged,
    since_start,
    step_time_of,
)
from driftwatch.fleet.metrics import ServerScrapes
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.server import READY_AFTER_SECONDS, Server
from driftwatch.fleet.servers import (
    Life,
    exporter_of,
    generator,
    gpu_times,
    host_of,
    instance_of,
    model_name,
    relabelled_of,
    scrape_times,
    targets_of,
    uuids_of,
)
from driftwatch.fleet.traffic import PoolTraffic
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Observe, Options
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.trial import Engine

Floats = npt.NDArray[np.float64]

# the stretch of a server that is in memory at a time: some 100,000 requests, drawn together
CHUNK_SECONDS = 21_600.0

_TIMED_OUT = "timed out after 10 s"


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """The scrapes and GPU readings of one server in a stretch."""

    number: int  # of the server
    scrapes: pl.DataFrame  # rows in SCRAPE_SCHEMA
    gpus: pl.DataFrame  # rows in GPU_SCHEMA
    requests: pl.DataFrame | None = None  # that ended in the simulator; truth only


def server_of(scenario: Scenario, number: int, life: Life) -> Server:
    """The server process of one life."""
    return Server(
        instance=instance_of(scenario, number),
        model_name=model_name(scenario),
        configuration=configuration_of(scenario, life.serving),
        log_stats=life.stats,
        other_buckets=life.other_buckets,
    )


class Observer(Protocol):
    """Samples the scheduler itself, at times of its own: for the judge."""

    def begin(self) -> None:
        """Another process begins."""

    def times(self, first: float, last: float) -> Floats:
        """Times of its samples in first <= time < last, in seconds."""

    def note(
        self,
        samples: pl.DataFrame,
        arrivals: Floats,
        ended: pl.DataFrame,
        configuration: SchedulerConfiguration,
    ) -> None:
        """Take samples, arrivals in seconds, and the requests that ended meanwhile."""


class ServerRun:
    """One server of a scenario from its first scrape to its last."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        number: int,
        traffic: PoolTraffic,
        observer: Observer | None = None,
    ) -> None:
        self._scenario, self._seed, self._number = scenario, seed, number
        self._traffic = traffic
        self._server = traffic.servers[number]
        self._disturbance = disturbance_of(scenario, seed, number)
        times, missed = scrape_times(scenario, seed, number)
        present = self._server.is_present(times)
        self._times = times[present]
        self._missed = missed[present] | ~self._server.is_listed(self._times)
        self._up = self._server.is_up(self._times)
        self._gpu_times = gpu_times(scenario, seed, number)
        self._observer = observer
        self._history: ServerScrapes | None = None
        self._engine: Engine | None = None
        self._life = -1
        self._read_until = (0.0, 0.0)  # time of the last GPU reading, seconds in steps until then
        self._gpus: list[pl.DataFrame] = []

    def chunks(self) -> Iterator[Chunk]:
        """The whole run; the last scrapes of a chunk may come with the next one."""
        start = 0.0
        while start < self._scenario.duration:
            end = min(start + CHUNK_SECONDS, self._scenario.duration)
            requests = self._traffic.requests(self._number, start, end)
            ended, read_until = [], start
            for number, life in enumerate(self._server.lives):
                first, last = max(start, life.start_seconds), min(end, life.end_seconds)
                if first >= last:
                    continue
                self._read_idle_gpus(read_until, first)
                read_until = last
                if number != self._life:
                    self._begin(number, life)
                ended += self._run(life, first, last, requests)
            self._read_idle_gpus(read_until, end)
            if end >= self._scenario.duration:
                ended += self._end()
            self._fail(start, end)
            yield self._chunk(ended)
            start = end

    def _begin(self, number: int, life: Life) -> None:
        """A process starts, after the one before it has ended."""
        self._end()
        server = server_of(self._scenario, self._number, life)
        edges = server.edges()
        started = life.start_seconds - READY_AFTER_SECONDS
        if self._history is None:
            scrape = self._scenario.scrape
            dropped = scrape.without_buckets, scrape.without_metrics
            self._history = ServerScrapes(server, self._scenario.start, started, *dropped)
        else:
            self._history.restart(server, started)
        self._life = number
        self._engine = Engine(
            server.configuration,
            step_time_of(self._scenario.engine, self._scenario.pool, life.factor),
            Options(
                Observe(
                    itl_edges=edges["itl_seconds"],
                    iteration_tokens_edges=edges["iteration_tokens"],
                ),
                disturbance=since_start(self._disturbance, life.start_seconds),
                seed=int(generator(self._seed, "steps", self._number, number).integers(2**62)),
                timeout_seconds=self._scenario.traffic.timeout,
            ),
        )
        self._read_until = started, 0.0
        if self._observer is not None:
            self._observer.begin()

    def _run(self, life: Life, first: float, last: float, requests: Requests) -> list[pl.DataFrame]:
        """Run a process, or its part in a chunk."""
        assert self._engine is not None and self._history is not None  # noqa: S101 - just begun
        at = requests.arrival_seconds
        mine = requests.take((at >= first) & (at < last))
        self._engine.offer(mine)
        inside = self._times[(self._times >= first) & (self._times < last)]
        beside = self._gpu_times[(self._gpu_times >= first) & (self._gpu_times < last)]
        observer = self._observer
        observed = np.empty(0) if observer is None else observer.times(first, last)
        every_time = np.union1d(np.union1d(inside, beside), observed)
        ran = self._engine.advance(last, every_time)
        ended, scrapes = _ended(ran.requests), ran.scrapes
        at = every_time
        # the exporter is another process: it answers where the server's answer timed out
        self._read_gpus(scrapes.filter(np.isin(at, beside)), life)
        if observer is not None and len(at):
            seen = scrapes.filter(np.isin(at, observed))
            observer.note(seen, mine.arrival_seconds, ended, self._engine.configuration)
        self._history.add(ended, scrapes.filter(np.isin(at, self._times[~self._missed])))
        if last == life.end_seconds:
            return [ended, *self._end()]
        return [ended]

    def _end(self) -> list[pl.DataFrame]:
        """End the process. Its engine runs on, to end the requests that had first tokens."""
        if self._engine is None or self._history is None:
            return []
        ran = self._engine.advance(np.inf, np.zeros(0))
        ended = _ended(ran.requests)
        self._history.add(ended, ran.scrapes)
        self._engine = None
        return [ended]

    def _read_gpus(self, scrapes: pl.DataFrame, life: Life) -> None:
        """Read the GPU exporter beside a running server."""
        if scrapes.is_empty():
            return
        since, before = self._read_until
        times = np.append(since, scrapes["time_seconds"])
        hangs = is_wedged(self._scenario, self._number, life.start_seconds, times[1:])
        busy_seconds = np.append(before, scrapes["busy_seconds"])
        self._add_gpu_rows(times, busy_seconds, hangs, loaded=True)
        self._read_until = float(times[-1]), float(busy_seconds[-1])

    def _read_idle_gpus(self, first: float, last: float) -> None:
        """Read the GPU exporter while no server runs: the GPUs are idle."""
        times = self._gpu_times[(self._gpu_times >= first) & (self._gpu_times < last)]
        if len(times):
            nothing = np.zeros(len(times) + 1)
            self._add_gpu_rows(np.append(times[0] - 1.0, times), nothing, None, loaded=False)

    def _add_gpu_rows(
        self,
        times: Floats,
        busy_seconds: Floats,
        hangs: npt.NDArray[np.bool_] | None,
        *,
        loaded: bool,
    ) -> None:
        """Arguments as of :func:`~driftwatch.fleet.gpus.gpu_load`."""
        scenario, number = self._scenario, self._number
        pool = scenario.pool
        if not pool.dcgm:
            return
        idle = None
        if pool.idle_clocks:
            rng = generator(self._seed, "clocks", number, int(times[1] * 1000))
            idle = rng.random(len(times) - 1)
        load = gpu_load(
            board(pool.gpu),
            scenario.start,
            times,
            busy_seconds,
            loaded=loaded,
            wedged=hangs,
            clock_ratio=clock_ratio(scenario, number, times[1:]),
            idle=idle,
        )
        uuids, host = uuids_of(scenario, number), host_of(scenario, number)
        exporter = exporter_of(scenario, number)
        self._gpus.append(gpu_rows(load, uuids, board(pool.gpu).model_name, exporter, host))

    def _fail(self, start: float, end: float) -> None:
        """Add the failed scrapes of the stretch."""
        inside = (self._times >= start) & (self._times < end)
        timed_out = self._times[inside & self._up & self._missed]
        down = self._times[inside & ~self._up]
        if self._history is None:  # the server does not exist yet
            return
        if len(timed_out):
            self._history.fail(timed_out, _TIMED_OUT)
        if len(down):
            self._history.fail(down)

    def _chunk(self, ended: list[pl.DataFrame]) -> Chunk:
        if self._history is None:
            return Chunk(self._number, empty_scrapes(), empty_gpus())
        gpus, self._gpus = pl.concat([empty_gpus(), *self._gpus]), []
        requests = pl.concat(ended) if ended else None
        return Chunk(self._number, self._history.take(), gpus, requests)


def _ended(requests: pl.DataFrame) -> pl.DataFrame:
    return requests.filter(pl.col("status") != "unfinished")


Progress = Callable[[float, float], None]

_CHUNKS_A_DAY = round(86_400.0 / CHUNK_SECONDS)


def generate(scenario: Scenario, seed: int) -> Iterator[Chunk]:
    """Every server's chunks, server by server, each in order of time."""
    traffic = PoolTraffic.of(scenario, seed)
    for number in range(scenario.servers):
        run = ServerRun(scenario, seed, number, traffic)
        yield from run.chunks()


def generate_compact(
    scenario: Scenario,
    seed: int,
    folder: Path,
    *,
    jobs: int = 1,
    progress: Progress | None = None,
    observers: Mapping[int, Observer] | None = None,
) -> None:
    """Write a compact recording of the scenario.

    ``folder``: of the recording; created if it is missing; ``jobs``: processes; their number does
    not change the recording; ``progress``: called with servers done, servers in all;
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
    """Write one server's Parquet parts, a day each."""
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
