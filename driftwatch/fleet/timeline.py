"""When each server of a scenario runs, as what, and when service discovery lists it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from driftwatch.fleet.scenario import Fault, Scenario, Serving, Style

Floats = npt.NDArray[np.float64]

DOWN_SECONDS = 40.0  # as vllm-0.32/restart: a small model is back after 40 s
EVERY_SECONDS = 180.0  # rollout: one replica after the other


@dataclass(frozen=True, slots=True)
class Life:
    """A server's process from its start to its end."""

    start_seconds: float  # it answers from then on
    end_seconds: float  # it does not answer from then on; inf = to the end
    serving: Serving  # its settings
    factor: float = 1.0  # on its step times (another release's law)
    release: Style = "0.32"  # whose pages it shows
    other_buckets: bool = False  # with another layout of histograms
    stats: bool = True  # with vllm: series on its page
    vllm_version: str | None = None  # what discovery labels it with, None = with nothing
    image: str | None = None  # of its container, None = nothing tells


@dataclass(frozen=True, slots=True)
class Server:
    """One server of the pool."""

    number: int  # from 0
    lives: tuple[Life, ...]  # in order; between two of them it is down
    listed: tuple[tuple[float, float], ...]  # stretches (from, to) in which it is scraped

    def is_listed(self, times: Floats) -> npt.NDArray[np.bool_]:
        """Whether it is scraped at these times."""
        found = np.zeros(len(times), dtype=bool)
        for start, end in self.listed:
            found |= (times >= start) & (times < end)
        return found

    def is_up(self, times: Floats) -> npt.NDArray[np.bool_]:
        """Whether it answers, and the balancer sends to it, at these times."""
        found = np.zeros(len(times), dtype=bool)
        for life in self.lives:
            found |= (times >= life.start_seconds) & (times < life.end_seconds)
        return found


def servers_of(scenario: Scenario) -> tuple[Server, ...]:
    """Every server that there ever is, by number."""
    return tuple(_server(scenario, number) for number in range(scenario.servers))


def servers_up(servers: tuple[Server, ...], times: Floats) -> npt.NDArray[np.int64]:
    """How many servers the balancer sends to at each of the times."""
    up = np.zeros(len(times), dtype=np.int64)
    for server in servers:
        up += server.is_up(times)
    return up


def concerns(fault: Fault, number: int) -> bool:
    """Whether the fault strikes that replica."""
    return not fault.replicas or number in fault.replicas


def _server(scenario: Scenario, number: int) -> Server:
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
            release=pool.release,
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
    return Server(number, tuple(lives), tuple(listed))


def _present(scenario: Scenario, number: int) -> list[tuple[float, float]]:
    """Stretches in which the replica exists."""
    steps = [(0.0, scenario.pool.replicas)]
    steps += sorted((f.at, f.to) for f in scenario.faults if f.to is not None)
    found: list[tuple[float, float]] = []
    for (start, count), following in zip(steps, [*steps[1:], (np.inf, 0)], strict=True):
        if number >= count:
            continue
        end = following[0]
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _restarts(scenario: Scenario, faults: list[Fault], number: int) -> list[tuple[float, Fault]]:
    """When the replica's process ends, and by what."""
    found = []
    for fault in faults:
        if fault.kind in ("restart", "stats_disabled", "bucket_layout"):
            found.append((fault.at, fault))
        elif fault.kind == "rollout":
            order = sorted(fault.replicas or range(scenario.servers)).index(number)
            found.append((fault.at + order * (fault.every or EVERY_SECONDS), fault))
    return found


def _after(life: Life, fault: Fault, start: float) -> Life:
    """The life that follows."""
    return replace(
        life,
        start_seconds=start,
        serving=life.serving if fault.serving is None else life.serving.changed(fault.serving),
        factor=life.factor * (fault.factor or 1.0),
        release=fault.release or life.release,
        other_buckets=life.other_buckets or fault.kind == "bucket_layout",
        stats=life.stats and fault.kind != "stats_disabled",
        vllm_version=fault.vllm_version or life.vllm_version,
        image=fault.image or life.image,
    )


def _without(
    stretches: list[tuple[float, float]], start: float, end: float
) -> list[tuple[float, float]]:
    found = []
    for first, last in stretches:
        found += [(a, b) for a, b in ((first, min(last, start)), (max(first, end), last)) if a < b]
    return found
