"""One server of a scenario, from its first scrape to its last, a stretch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.gpu_schema import empty_gpus
from driftwatch.collect.schema import empty_scrapes
from driftwatch.simulate.compiled import compiling_allowed
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Edges, Engine
from driftwatch.simulate.hardware import gpu, model
from driftwatch.simulate.kv_cache import num_gpu_blocks
from driftwatch.simulate.requests import Requests
from driftwatch.testing.dcgm_pages import FakeGpu
from driftwatch.testing.fleet.families_0_32 import V0_32
from driftwatch.testing.fleet.families_old import V0_8
from driftwatch.testing.fleet.gpu_boards import board
from driftwatch.testing.fleet.gpu_load import (
    WORK_COLUMNS,
    dcgm_text,
    gpu_load,
    gpu_rows,
    work_of,
)
from driftwatch.testing.fleet.hidden_engine import (
    clock_ratio,
    disturbance_of,
    generator,
    is_wedged,
    law_of,
    since_start,
)
from driftwatch.testing.fleet.metric_history import Answer, MetricHistory
from driftwatch.testing.fleet.naming import (
    exporter_of,
    host_of,
    instance_of,
    model_name,
    uuids_of,
)
from driftwatch.testing.fleet.scenario import Scenario
from driftwatch.testing.fleet.server import Server
from driftwatch.testing.fleet.timeline import Life
from driftwatch.testing.fleet.traffic import PoolTraffic

Floats = npt.NDArray[np.float64]

# so much of a server is in memory at a time: some 100,000 requests
CHUNK_SECONDS = 21_600.0

_BOOT_SECONDS = 25.0  # from the start of a process until it answers
# A second of a busy server is some 100 steps, of 8 µs each as plain Python; compiling takes 10 s.
_WORTH_COMPILING_SECONDS = 15_000.0
_TIMED_OUT = "timed out after 10 s"
# --custom-histogram-buckets after a change of layout: every second of the usual edges
_OTHER_EDGES = 2


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """What was scraped of one server in a stretch.

    Attributes:
        number: of the server.
        scrapes: rows in SCRAPE_SCHEMA.
        gpus: rows in GPU_SCHEMA.
        answers: the same scrapes as text, where pages were asked for.
        gpu_answers: pages of the exporter, where pages were asked for.
        requests: what ended, as the simulator tells it; truth only.
    """

    number: int
    scrapes: pl.DataFrame
    gpus: pl.DataFrame
    answers: Sequence[Answer] = ()
    gpu_answers: Sequence[Answer] = ()
    requests: pl.DataFrame | None = None


def configuration_of(scenario: Scenario, life: Life) -> SchedulerConfiguration:
    """The scheduler's settings in one life; KV blocks are what the model leaves on the GPU."""
    pool, serving = scenario.pool, life.serving
    blocks = serving.num_gpu_blocks or num_gpu_blocks(
        gpu(pool.gpu),
        model(pool.model),
        block_size=serving.block_size,
        tensor_parallel=pool.gpus_per_replica,
        gpu_memory_utilization=0.9,
        max_num_seqs=serving.max_num_seqs,
        max_num_batched_tokens=serving.max_num_batched_tokens,
    )
    return serving.configuration(blocks)


def server_of(scenario: Scenario, number: int, life: Life) -> Server:
    """The server process of one life."""
    style = V0_8 if life.release == "0.8" else V0_32
    custom = {}
    if life.other_buckets:
        plain = Server("", "", configuration_of(scenario, life), style)
        custom = {
            name: edges[1::_OTHER_EDGES]
            for name, edges in plain.finite_edges().items()
            if len(edges) > 2 * _OTHER_EDGES and not name.startswith("http_")
        }
    return Server(
        instance=instance_of(scenario, number),
        model_name=model_name(scenario),
        configuration=configuration_of(scenario, life),
        style=style,
        log_stats=life.stats,
        custom_histogram_buckets=custom,
        ready_after_seconds=_BOOT_SECONDS,
    )


def scrape_times(
    scenario: Scenario, seed: int, number: int
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """When a server is scraped, and which of these scrapes time out, over the whole scenario."""
    said = scenario.scrape
    rng = generator(seed, "scrapes", number)
    planned = np.arange(rng.random() * said.interval, scenario.duration, said.interval)
    late = np.abs(rng.standard_normal(len(planned))) * said.jitter_seconds
    times = planned + np.minimum(late, said.interval / 3.0)
    missed = rng.random(len(times))
    ratio = np.full(len(times), said.missed_ratio)
    for fault in scenario.faults:
        if fault.kind == "missed_scrapes" and (not fault.replicas or number in fault.replicas):
            during = (times >= fault.at) & (times < (fault.until or np.inf))
            ratio[during] = fault.ratio or 0.0
    inside = times < scenario.duration
    return times[inside], (missed < ratio)[inside]


def _compiled(scenario: Scenario) -> bool | None:
    """True where the whole scenario is worth a compilation, else as the engine thinks fit."""
    worth_it = scenario.servers * scenario.duration >= _WORTH_COMPILING_SECONDS
    return True if worth_it and compiling_allowed() else None


class ServerRun:
    """One server of a scenario from its first scrape to its last.

    Args:
        scenario: what it is of.
        seed: all randomness comes from it.
        number: of the server.
        traffic: of the pool.
        pages: whether texts are kept as well.
    """

    def __init__(
        self, scenario: Scenario, seed: int, number: int, traffic: PoolTraffic, *, pages: bool
    ) -> None:
        self._scenario, self._seed, self._number = scenario, seed, number
        self._traffic, self._pages = traffic, pages
        self._server = traffic.servers[number]
        self._disturbance = disturbance_of(scenario, seed, number)
        times, missed = scrape_times(scenario, seed, number)
        listed = self._server.is_listed(times)
        self._times, self._missed = times[listed], missed[listed]
        self._up = self._server.is_up(self._times)
        self._history: MetricHistory | None = None
        self._engine: Engine | None = None
        self._life = -1
        self._before: pl.DataFrame | None = None
        self._energy = 0.0
        self._gpus: list[pl.DataFrame] = []
        self._gpu_pages: list[Answer] = []

    def chunks(self, length: float = CHUNK_SECONDS) -> Iterator[Chunk]:
        """The whole run; each chunk may lack its last scrapes, which the next one has."""
        start = 0.0
        while start < self._scenario.duration:
            end = min(start + length, self._scenario.duration)
            requests = self._traffic.requests(self._number, start, end)
            ended, told = [], start
            for number, life in enumerate(self._server.lives):
                first, last = max(start, life.start_seconds), min(end, life.end_seconds)
                if first >= last:
                    continue
                self._read_idle_gpus(told, first)
                told = last
                if number != self._life:
                    self._begin(number, life)
                ended += self._run(life, first, last, requests)
            self._read_idle_gpus(told, end)
            if end >= self._scenario.duration:
                ended += self._end()
            self._fail(start, end)
            yield self._chunk(ended)
            start = end

    def _begin(self, number: int, life: Life) -> None:
        """A process starts, after the one before it has ended."""
        self._end()
        server = server_of(self._scenario, self._number, life)
        started = life.start_seconds - _BOOT_SECONDS
        if self._history is None:
            self._history = MetricHistory(server, self._scenario.start, started)
        else:
            self._history.restart(server, started)
        self._life = number
        timeout = self._scenario.traffic.timeout
        self._engine = Engine(
            server.configuration,
            law_of(self._scenario.engine, self._scenario.pool, life.factor),
            disturbance=since_start(self._disturbance, life.start_seconds),
            seed=int(generator(self._seed, "steps", self._number, number).integers(2**62)),
            timeout_seconds=timeout,
            observe_edges=Edges(server.itl_edges, server.iteration_tokens_edges),
            compiled=_compiled(self._scenario),
            identify_blocks=False,  # each request brings its cached tokens
        )
        self._before = None

    def _run(self, life: Life, first: float, last: float, requests: Requests) -> list[pl.DataFrame]:
        """A life, or the part of it that is in a chunk."""
        assert self._engine is not None and self._history is not None  # noqa: S101 - just begun
        at = requests.arrival_seconds
        self._engine.offer(requests.take((at >= first) & (at < last)))
        inside = (self._times >= first) & (self._times < last)
        outcome = self._engine.advance(last, self._times[inside])
        if outcome.scrapes is not None and len(outcome.scrapes):
            # the exporter is another process: it answers where the server's answer timed out
            self._read_gpus(outcome.scrapes, life)
            answered = outcome.scrapes.filter(pl.Series(~self._missed[inside]))
            outcome = replace(outcome, scrapes=answered)
        self._history.add(outcome)
        found = [outcome.requests]
        if last == life.end_seconds:
            found += self._end()
        return found

    def _end(self) -> list[pl.DataFrame]:
        """The process ends. What its engine would still do tells the first tokens it had."""
        if self._engine is None or self._history is None:
            return []
        outcome = self._engine.advance()
        self._history.add(outcome)
        self._history.finish()
        self._engine = None
        return [outcome.requests]

    def _read_gpus(self, scrapes: pl.DataFrame, life: Life) -> None:
        """The exporter beside the server is read whenever the server is."""
        times = scrapes["time_seconds"].to_numpy()
        hangs = is_wedged(self._scenario, self._number, life.start_seconds, times)
        self._tell_gpus(scrapes, hangs, loaded=True)
        self._before = scrapes.tail(1)

    def _read_idle_gpus(self, first: float, last: float) -> None:
        """While no server runs its GPUs are idle, and their exporter answers."""
        times = self._times[(self._times >= first) & (self._times < last)]
        if len(times):
            nothing = pl.DataFrame({name: np.zeros(len(times)) for name in WORK_COLUMNS})
            idle = nothing.with_columns(time_seconds=times)
            self._tell_gpus(idle, np.zeros(len(times), dtype=np.bool_), loaded=False)

    def _tell_gpus(
        self, scrapes: pl.DataFrame, hangs: npt.NDArray[np.bool_], *, loaded: bool
    ) -> None:
        scenario, number = self._scenario, self._number
        pool = scenario.pool
        if not pool.dcgm:
            return
        work = work_of(gpu(pool.gpu), model(pool.model), tensor_parallel=pool.gpus_per_replica)
        load = gpu_load(
            board(pool.gpu),
            work if loaded else replace(work, memory_utilization_ratio=0.0),
            scenario.start,
            scrapes,
            wedged=hangs,
            clock_ratio=clock_ratio(scenario, number, scrapes["time_seconds"].to_numpy()),
            before=self._before if loaded else None,
            energy_joules=self._energy,
        )
        self._energy = load.energy_joules
        fakes = [
            FakeGpu(index, name, board(pool.gpu).model_name)
            for index, name in enumerate(uuids_of(scenario, number))
        ]
        gpus = [(fake, load) for fake in fakes]
        host = host_of(scenario, number)
        self._gpus.append(gpu_rows(gpus, exporter_of(scenario, number), host))
        if self._pages:
            epoch = datetime.fromtimestamp(0, UTC)
            self._gpu_pages += [
                Answer(epoch + timedelta(microseconds=int(at)), 200, dcgm_text(gpus, row, host))
                for row, at in enumerate(load.micros)
            ]

    def _fail(self, start: float, end: float) -> None:
        """Scrapes of the stretch that brought no page."""
        inside = (self._times >= start) & (self._times < end)
        timed_out = self._times[inside & self._up & self._missed]
        down = self._times[inside & ~self._up]
        if self._history is None:  # a server that is not there yet has nobody to tell of it
            return
        if len(timed_out):
            self._history.fail(timed_out, body=_TIMED_OUT)
        if len(down):
            self._history.fail(down)

    def _chunk(self, ended: list[pl.DataFrame]) -> Chunk:
        history = self._history
        if history is None:
            return Chunk(self._number, empty_scrapes(), empty_gpus())
        scrapes = history.scrape_frame()
        answers = history.answers() if self._pages else []
        history.drop()
        gpus, gpu_pages = pl.concat([empty_gpus(), *self._gpus]), self._gpu_pages
        self._gpus, self._gpu_pages = [], []
        requests = pl.concat(ended) if ended else None
        return Chunk(self._number, scrapes, gpus, answers, gpu_pages, requests)
