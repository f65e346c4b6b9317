"""The servers of a scenario: their names, their processes, and the times of their scrapes."""

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
EVERY_SECONDS = 180.0  # rollout: from one replica to the next


@dataclass(frozen=True, slots=True)
class Life:
    """A process of a server."""

    start_seconds: float  # of its answers
    end_seconds: float  # of its answers; inf = the end of the scenario
    serving: Serving  # its settings
    factor: float = 1.0  # on its step times (another release)
    other_buckets: bool = False  # its histograms have another layout
    stats: bool = True  # its page has vllm: series
    vllm_version: str | None = None  # its label by discovery; None = none
    image: str | None = None  # of its container; None = unknown


@dataclass(frozen=True, slots=True)
class Replica:
    """One server of the pool."""

    number: int  # from 0
    lives: tuple[Life, ...]  # in order; between two of them it is down
    # stretches (from, to) in which the server exists, and in which its page answers
    present: tuple[tuple[float, float], ...]
    listed: tuple[tuple[float, float], ...]

    def is_present(self, times: Floats) -> npt.NDArray[np.bool_]:
        """Whether discovery lists it at these times."""
        return _within(self.present, times)

    def is_listed(self, times: Floats) -> npt.NDArray[np.bool_]:
        """Whether its page answers at these times, while the server runs."""
        return _within(self.listed, times)

    def is_up(self, times: Floats) -> npt.NDArray[np.bool_]:
        """Whether the server answers and gets requests at these times."""
        return _within([(life.start_seconds, life.end_seconds) for life in self.lives], times)


def servers_of(scenario: Scenario) -> tuple[Replica, ...]:
    """Every server of the scenario, by number."""
    return tuple(_server(scenario, number) for number in range(scenario.servers))


def servers_up(servers: tuple[Replica, ...], times: Floats) -> npt.NDArray[np.int64]:
    """The number of servers that the balancer sends requests to at these times."""
    up = [server.is_up(times) for server in servers]
    return np.asarray(np.sum(up, axis=0), dtype=np.int64)


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
            if at > life.start_seconds:  # else it was still down, and stays down
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
    """When a fault ends the replica's process, and the fault."""
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


_PORT, _EXPORTER_PORT = 8000, 9400


def instance_of(scenario: Scenario, number: int) -> str:
    """host:port of a server; its GPUs' exporter is on the same host."""
    return f"{host_of(scenario, number)}:{_PORT}"


def host_of(scenario: Scenario, number: int) -> str:
    """Name of a server's machine."""
    return f"{scenario.pool.name}-{number}"


def exporter_of(scenario: Scenario, number: int) -> str:
    """host:port of the exporter of a server's GPUs."""
    return f"{host_of(scenario, number)}:{_EXPORTER_PORT}"


def model_name(scenario: Scenario) -> str:
    """The served model name."""
    return model(scenario.pool.model).name


def targets_of(scenario: Scenario) -> dict[TargetKey, Target]:
    """Every server's engine as a target, with the labels of a recording."""
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
            # by Kubernetes' discovery and by kube-state-metrics
            labels |= {"namespace": "inference", "pod": host_of(scenario, number)}
        targets[key] = Target(key, labels)
    return targets


def release_labels(vllm_version: str | None, image: str | None) -> dict[str, str]:
    """Labels of the release by discovery and kube-state-metrics."""
    labels = {"vllm_version": vllm_version, "container_image": image}
    return {name: value for name, value in labels.items() if value is not None}


def relabelled_of(scenario: Scenario) -> list[Relabelled]:
    """Servers that come back with another release, in order of time."""
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
_GAP_SECONDS = (60.0, 900.0)  # a Prometheus restarts, or has no memory left for a while
_LATEST_RATIO = 0.95  # most lateness, of an interval: a scrape comes before the next one


def scrape_times(scenario: Scenario, seed: int, number: int) -> tuple[Floats, Booleans]:
    """Times of a server's scrapes, and which of them time out, over the whole scenario."""
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
    """Times of the scrapes of a server's GPU exporter."""
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
    """Stretches without any scrape of the pool: starts and ends."""
    rng = generator(seed, "gaps")
    count = rng.poisson(scenario.scrape.gaps_per_day * scenario.duration / _DAY_SECONDS)
    start = np.sort(rng.uniform(0.0, scenario.duration, count))
    shortest, longest = np.log(_GAP_SECONDS)
    return start, start + np.exp(rng.uniform(shortest, longest, count))


def _scraped(
    scenario: Scenario, seed: int, number: int, planned: Floats, times: Floats, purpose: str
) -> tuple[Floats, Booleans]:
    """The times with late scrapes moved, and which of them leave a sample."""
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
    """A random generator per purpose, server and day, independent of the order of use."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), *numbers])
