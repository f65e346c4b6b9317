"""The servers of a scenario: their names, when each runs as what, and when it is scraped."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from driftwatch.collect.recordings.compact import Relabelled
from driftwatch.fleet.scenario.model import Fault, Scenario, Serving
from driftwatch.model import Target, TargetKey
from driftwatch.simulate.hardware import model

Floats = npt.NDArray[np.float64]

DOWN_SECONDS = 40.0  # as vllm-0.32/restart: a small model is back after 40 s
EVERY_SECONDS = 180.0  # rollout: one replica after the other


@dataclass(frozen=True, slots=True)
class Life:
    """A server's process from its start to its end."""

    start_seconds: float  # it answers from then on
    end_seconds: float  # it does not answer from then on; inf = to the end
    serving: Serving  # its settings
    factor: float = 1.0  # on its step times (another release)
    other_buckets: bool = False  # with another layout of histograms
    stats: bool = True  # with vllm: series on its page
    vllm_version: str | None = None  # what discovery labels it with, None = with nothing
    image: str | None = None  # of its container, None = unknown


@dataclass(frozen=True, slots=True)
class Replica:
    """One server of the pool."""

    number: int  # from 0
    lives: tuple[Life, ...]  # in order; between two of them it is down
    # stretches (from, to) in which there is such a server, and in which its page answers
    present: tuple[tuple[float, float], ...]
    listed: tuple[tuple[float, float], ...]

    def is_present(self, times: Floats) -> npt.NDArray[np.bool_]:
        """Whether discovery lists it at these times."""
        return _within(self.present, times)

    def is_listed(self, times: Floats) -> npt.NDArray[np.bool_]:
        """Whether its page answers at these times, while the server runs."""
        return _within(self.listed, times)

    def is_up(self, times: Floats) -> npt.NDArray[np.bool_]:
        """Whether it answers, and the balancer sends to it, at these times."""
        up = np.zeros(len(times), dtype=bool)
        for life in self.lives:
            up |= (times >= life.start_seconds) & (times < life.end_seconds)
        return up


def servers_of(scenario: Scenario) -> tuple[Replica, ...]:
    """Every server that there ever is, by number."""
    return tuple(_server(scenario, number) for number in range(scenario.servers))


def servers_up(servers: tuple[Replica, ...], times: Floats) -> npt.NDArray[np.int64]:
    """How many servers the balancer sends to at each of the times."""
    up = np.zeros(len(times), dtype=np.int64)
    for server in servers:
        up += server.is_up(times)
    return up


def concerns(fault: Fault, number: int) -> bool:
    """Whether the fault strikes that replica."""
    return not fault.replicas or number in fault.replicas


def _server(scenario: Scenario, number: int) -> Replica:
    present = _present(scenario, number)
    own = [f for f in scenario.faults if concerns(f, number)]
    lives: list[Life] = []
    for start, end in present:
        boot = DOWN_SECONDS if start > 0 else 0.0
        pool = scenario.pool
        life = Life(
            min(start + boot, end),
            end,
            pool.serving,
            vllm_version=pool.vllm_version,
            image=pool.image,
        )
        for at, fault in sorted(_restarts(scenario, own, number), key=lambda one: one[0]):
            if not start <= at < end:
                continue
            if at > life.start_seconds:  # else it was down still, and stays so
                lives.append(replace(life, end_seconds=at))
            life = _after(life, fault, min(at + (fault.down or DOWN_SECONDS), end))
        lives.append(life)
    listed = present
    for fault in own:
        if fault.kind == "gone":
            listed = _without(listed, fault.at, fault.until or np.inf)
    return Replica(number, tuple(lives), tuple(present), tuple(listed))


def _within(stretches: Sequence[tuple[float, float]], times: Floats) -> npt.NDArray[np.bool_]:
    inside = np.zeros(len(times), dtype=bool)
    for start, end in stretches:
        inside |= (times >= start) & (times < end)
    return inside


def _present(scenario: Scenario, number: int) -> list[tuple[float, float]]:
    """Stretches in which the replica exists."""
    steps = [(0.0, scenario.pool.replicas)]
    steps += sorted((f.at, f.to) for f in scenario.faults if f.to is not None)
    stretches: list[tuple[float, float]] = []
    for (start, count), following in zip(steps, [*steps[1:], (np.inf, 0)], strict=True):
        if number >= count:
            continue
        end = following[0]
        if stretches and stretches[-1][1] == start:
            stretches[-1] = (stretches[-1][0], end)
        else:
            stretches.append((start, end))
    return stretches


def _restarts(scenario: Scenario, faults: list[Fault], number: int) -> list[tuple[float, Fault]]:
    """When the replica's process ends, and by what."""
    restarts = []
    for fault in faults:
        if fault.kind in ("restart", "stats_disabled", "bucket_layout"):
            restarts.append((fault.at, fault))
        elif fault.kind == "rollout":
            order = sorted(fault.replicas or range(scenario.servers)).index(number)
            restarts.append((fault.at + order * (fault.every or EVERY_SECONDS), fault))
    return restarts


def _after(life: Life, fault: Fault, start: float) -> Life:
    """The life that follows."""
    return replace(
        life,
        start_seconds=start,
        serving=life.serving if fault.serving is None else life.serving.changed(fault.serving),
        factor=life.factor * (fault.factor or 1.0),
        other_buckets=life.other_buckets or fault.kind == "bucket_layout",
        stats=life.stats and fault.kind != "stats_disabled",
        vllm_version=fault.vllm_version or life.vllm_version,
        image=fault.image or life.image,
    )


def _without(
    stretches: list[tuple[float, float]], start: float, end: float
) -> list[tuple[float, float]]:
    rest = []
    for first, last in stretches:
        rest += [(a, b) for a, b in ((first, min(last, start)), (max(first, end), last)) if a < b]
    return rest


JOB, DCGM_JOB = "vllm", "dcgm"  # of the servers and of their GPUs' exporters, to a Prometheus
KUBE_JOB, NAMESPACE, CONTAINER = "kube-state-metrics", "inference", "vllm"
_PORT, _EXPORTER_PORT = 8000, 9400


def instance_of(scenario: Scenario, number: int) -> str:
    """host:port of a server; its GPUs' exporter is on the same host."""
    return f"{host_of(scenario, number)}:{_PORT}"


def host_of(scenario: Scenario, number: int) -> str:
    """Name of the machine that a server is on."""
    return f"{scenario.pool.name}-{number}"


def exporter_of(scenario: Scenario, number: int) -> str:
    """host:port of the exporter of a server's GPUs."""
    return f"{host_of(scenario, number)}:{_EXPORTER_PORT}"


def model_name(scenario: Scenario) -> str:
    """As it is served."""
    return model(scenario.pool.model).name


def targets_of(scenario: Scenario) -> dict[TargetKey, Target]:
    """Every server's engine, as a recording of its pages knows it."""
    targets = {}
    for number in range(scenario.servers):
        key = TargetKey(instance_of(scenario, number), "0")
        labels = {
            "instance": key.instance,
            "engine": key.engine,
            "model_name": model_name(scenario),
        }
        labels |= release_labels(scenario.pool.vllm_version, scenario.pool.image)
        if scenario.pool.image is not None:
            labels |= pod_of(scenario, number)
        targets[key] = Target(key, labels)
    return targets


def pod_of(scenario: Scenario, number: int) -> dict[str, str]:
    """Labels that Kubernetes' discovery gives a server, and kube-state-metrics its series."""
    return {"namespace": NAMESPACE, "pod": host_of(scenario, number)}


def release_labels(vllm_version: str | None, image: str | None) -> dict[str, str]:
    """What a source that reads discovery and kube-state-metrics knows of the release."""
    labels = {"vllm_version": vllm_version, "container_image": image}
    return {name: value for name, value in labels.items() if value is not None}


def relabelled_of(scenario: Scenario) -> list[Relabelled]:
    """Servers that come back with another release, from when on, in order of time."""
    start, _ = seconds_of(scenario)
    relabelled = [
        Relabelled(
            instance=instance_of(scenario, server.number),
            engine="0",
            since=start + life.start_seconds,
            labels=release_labels(life.vllm_version, life.image),
        )
        for server in servers_of(scenario)
        for before, life in pairwise(server.lives)
        if (life.vllm_version, life.image) != (before.vllm_version, before.image)
    ]
    return sorted(relabelled, key=lambda one: (one.since, one.key))


def uuids_of(scenario: Scenario, number: int) -> list[str]:
    """UUIDs of a server's GPUs, as NVIDIA writes them; the same for the same pool and number."""
    if not scenario.pool.dcgm:
        return []
    return [
        f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{scenario.pool.name}-{number}-{gpu}.invalid')}"
        for gpu in range(scenario.pool.gpus_per_replica)
    ]


def seconds_of(scenario: Scenario) -> tuple[float, float]:
    """Unix seconds of the scenario's start and end."""
    end = scenario.start + timedelta(seconds=scenario.duration)
    return scenario.start.timestamp(), end.timestamp()


Booleans = npt.NDArray[np.bool_]

_DAY_SECONDS = 86_400.0
_GAP_SECONDS = (60.0, 900.0)  # of a Prometheus that restarts, or is out of memory for a while
_LATEST_RATIO = 0.95  # of an interval: a scrape is not later than the next one


def scrape_times(scenario: Scenario, seed: int, number: int) -> tuple[Floats, Booleans]:
    """When a server is scraped, and which of these scrapes time out, over the whole scenario."""
    scrape = scenario.scrape
    rng = generator(seed, "scrapes", number)
    planned = np.arange(rng.random() * scrape.interval, scenario.duration, scrape.interval)
    late = np.abs(rng.standard_normal(len(planned))) * scrape.jitter_seconds
    times = planned + np.minimum(late, scrape.interval / 3.0)
    missed = rng.random(len(times))
    ratio = np.full(len(times), scrape.missed_ratio)
    for fault in scenario.faults:
        if fault.kind == "missed_scrapes" and concerns(fault, number):
            during = (times >= fault.at) & (times < (fault.until or np.inf))
            ratio[during] = fault.ratio or 0.0
    times, is_scraped = _scraped(scenario, seed, number, planned, times, "scrapes-kept")
    return times[is_scraped], (missed < ratio)[is_scraped]


def gpu_times(scenario: Scenario, seed: int, number: int) -> Floats:
    """When the exporter of a server's GPUs is scraped."""
    scrape = scenario.scrape
    if not scenario.pool.dcgm:
        return np.zeros(0)
    if not scrape.gpu_offset:  # the exporter is scraped with the server
        return scrape_times(scenario, seed, number)[0]
    rng = generator(seed, "scrapes", number)
    phase = (rng.random() * scrape.interval + scrape.gpu_offset) % scrape.interval
    planned = np.arange(phase, scenario.duration, scrape.interval)
    times, is_scraped = _scraped(scenario, seed, number, planned, planned, "gpu-scrapes-kept")
    return times[is_scraped]


def gaps(scenario: Scenario, seed: int) -> tuple[Floats, Floats]:
    """Stretches in which nothing of the pool is scraped: starts and ends."""
    rng = generator(seed, "gaps")
    count = rng.poisson(scenario.scrape.gaps_per_day * scenario.duration / _DAY_SECONDS)
    start = np.sort(rng.uniform(0.0, scenario.duration, count))
    shortest, longest = np.log(_GAP_SECONDS)
    return start, start + np.exp(rng.uniform(shortest, longest, count))


def _scraped(
    scenario: Scenario, seed: int, number: int, planned: Floats, times: Floats, purpose: str
) -> tuple[Floats, Booleans]:
    """Times with the late ones moved, and which of them are kept at all."""
    scrape = scenario.scrape
    rng = generator(seed, purpose, number)
    late, by, lost = rng.random((3, len(times)))
    moved = np.where(
        late < scrape.late_ratio, planned + by * _LATEST_RATIO * scrape.interval, times
    )
    times = np.maximum.accumulate(moved)
    is_scraped = (times < scenario.duration) & (lost >= scrape.lost_ratio)
    is_scraped &= np.diff(times, prepend=-np.inf) > 0.0
    for first, last in zip(*gaps(scenario, seed), strict=True):
        is_scraped &= (times < first) | (times >= last)
    return times, is_scraped


def generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """A generator of its own for each purpose, server and day; independent of the order of use."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), *numbers])
