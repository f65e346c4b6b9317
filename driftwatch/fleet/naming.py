"""What the servers of a scenario, their hosts and their GPUs are called."""

from __future__ import annotations

import uuid
from datetime import timedelta
from itertools import pairwise

from driftwatch.collect.recordings.compact import Relabelled
from driftwatch.fleet.scenario import Scenario
from driftwatch.fleet.timeline import servers_of
from driftwatch.model import Target, TargetKey
from driftwatch.simulate.hardware import model

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
    """As it is served: the name at its publisher where the table has one."""
    known = model(scenario.pool.model)
    return known.aliases[0] if known.aliases else known.name


def targets_of(scenario: Scenario) -> dict[TargetKey, Target]:
    """Every server's engine, as a recording of its pages knows it."""
    found = {}
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
        found[key] = Target(key, labels)
    return found


def pod_of(scenario: Scenario, number: int) -> dict[str, str]:
    """Labels that Kubernetes' discovery gives a server, and kube-state-metrics its series."""
    return {"namespace": NAMESPACE, "pod": host_of(scenario, number)}


def release_labels(vllm_version: str | None, image: str | None) -> dict[str, str]:
    """What a source that reads discovery and kube-state-metrics knows of the release."""
    found = {"vllm_version": vllm_version, "container_image": image}
    return {name: value for name, value in found.items() if value is not None}


def relabelled_of(scenario: Scenario) -> list[Relabelled]:
    """Servers that come back with another release, from when on, in order of time."""
    start, _ = seconds_of(scenario)
    found = [
        Relabelled(
            TargetKey(instance_of(scenario, server.number), "0"),
            start + life.start_seconds,
            release_labels(life.vllm_version, life.image),
        )
        for server in servers_of(scenario)
        for before, life in pairwise(server.lives)
        if (life.vllm_version, life.image) != (before.vllm_version, before.image)
    ]
    return sorted(found, key=lambda one: (one.since, one.key))


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
