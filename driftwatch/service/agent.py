"""What ``driftwatch agent`` does: reads NVML on a schedule, serves the last reading as DCGM would.

A scrape only shows what was read before, so a call that hangs delays no scrape.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry, Info, Metric
from prometheus_client.registry import Collector

from driftwatch import __version__
from driftwatch.clock import Clock
from driftwatch.collect.gpus import GPU_FIELDS, GpuField
from driftwatch.collect.schema import Collected, Source

# DCGM names its percentages, MHz, MiB and mJ without saying so.
_UNITS: Final[Mapping[float, str]] = {0.01: "percent", 1e6: "MHz", 2.0**20: "MiB", 1e-3: "mJ"}
# One reading may take this long where calls hang.
_READING_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class _Reading:
    """A reading and when it was complete, on the monotonic clock."""

    collected: Collected
    at: float


class Agent:
    """Reads the source every interval, in a thread of its own.

    Args:
        interval_seconds: between the beginnings of two readings.

    Attributes:
        registry: what ``/metrics`` serves.
    """

    def __init__(self, source: Source, interval_seconds: float, clock: Clock) -> None:
        self.registry = CollectorRegistry()
        Info("driftwatch_build", "Version of this driftwatch.", registry=self.registry).info(
            {"version": __version__}
        )
        self._source = source
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._log = structlog.get_logger()
        self._told: Mapping[str, str] | None = None
        self._read: _Reading | None = None
        self._begun = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="driftwatch-agent", daemon=True)
        self.registry.register(_Page(self))

    def start(self) -> None:
        """Read now and then every interval, until :meth:`stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more; a reading under way is not waited for."""
        self._stopping.set()
        self._thread.join(1.0)
        if not self._thread.is_alive():
            self._source.close()

    def last(self) -> tuple[Collected | None, float | None]:
        """The last reading and its age in seconds; no reading where the last one is too old."""
        newest = self._read
        if newest is None:
            return None, None
        age = time.monotonic() - newest.at
        return (newest.collected if age <= self._oldest else None), age

    def why_unhealthy(self) -> str | None:
        """Why the process should be restarted; None = it should not. No GPU is no reason."""
        silent = time.monotonic() - self._begun
        return f"no reading began for {silent:.0f} s" if silent > self._oldest else None

    def why_not_ready(self) -> str | None:
        """Why there is nothing to scrape yet; None = a reading is there, whatever it says."""
        return None if self.last()[0] is not None else "no reading yet"

    @property
    def _oldest(self) -> float:
        return 3 * self._interval_seconds + _READING_SECONDS

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._begun = time.monotonic()
            self.read_once()
            spent = time.monotonic() - self._begun
            self._stopping.wait(max(0.0, self._interval_seconds - spent))

    def read_once(self) -> None:
        """One reading now. Trouble is said in the log when it begins and when it ends."""
        now = self._clock.now()
        try:
            collected = self._source.collect(now, now + timedelta(seconds=self._interval_seconds))
        except Exception as error:  # noqa: BLE001 - the agent outlives whatever a driver does
            self._tell({self._source.name: f"{type(error).__name__}: {error}"}, 0)
            return
        self._read = _Reading(collected, time.monotonic())
        self._tell({p.where: p.reason for p in collected.problems}, collected.gpus.height)

    def _tell(self, problems: Mapping[str, str], gpus: int) -> None:
        before = self._told
        for where, reason in problems.items():
            if before is None or before.get(where) != reason:
                self._log.warning("not read", where=where, reason=reason)
        if not problems and before != {}:
            self._log.info("reading", gpus=gpus)
        self._told = problems


class _Page(Collector):
    """The last reading as metric families."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterator[Metric]:
        """Every family, also those that have no series now: their names are told."""
        collected, age = self._agent.last()
        rows = [] if collected is None else collected.gpus.to_dicts()
        problems = () if collected is None else collected.problems
        up = collected is not None and not problems
        yield _gauge("driftwatch_agent_up", "1: the last reading is fresh and met no problem.", up)
        yield _gauge(
            "driftwatch_agent_reading_age_seconds", "Since the last reading was complete.", age
        )
        trouble = _gauge("driftwatch_agent_problem", "1 for each thing that cannot be read.")
        for problem in problems:
            trouble.add_sample(
                trouble.name, {"where": problem.where, "reason": problem.reason}, 1.0
            )
        yield trouble
        lost = _gauge("driftwatch_agent_gpu_lost", "1: NVML says that the GPU is lost.")
        for row in rows:
            if row["lost"] is not None:
                lost.add_sample(lost.name, _name(row), float(row["lost"]))
        yield lost
        yield _unread(rows)
        for field in GPU_FIELDS:
            if field.nvml_call:
                yield _family(field, rows)


def _family(field: GpuField, rows: list[dict[str, Any]]) -> Metric:
    """One quantity in DCGM's name and unit; a GPU that did not tell it has no series."""
    unit = _UNITS.get(field.factor)
    text = f"{field.meaning[:1].upper()}{field.meaning[1:]}{f' ({unit})' if unit else ''}."
    # the energy is a counter, but this format ends a counter's name in _total, and DCGM's does not
    kind = "unknown" if field.column.endswith("_total") else "gauge"
    family = Metric(field.dcgm_names[0], text, kind)
    for row in rows:
        if row[field.column] is not None:
            # what dividing by 0.01 adds in the last digits is not NVML's
            family.add_sample(family.name, _labels(row), round(row[field.column] / field.factor, 6))
    return family


def _unread(rows: list[dict[str, Any]]) -> Metric:
    """What could not be read and why; what NVML has no call for is not missing."""
    family = _gauge("driftwatch_agent_field_unread", "1 for each field that could not be read.")
    for row in rows:
        reasons = json.loads(row["reasons"] or "{}")
        for field in GPU_FIELDS:
            if field.nvml_call and field.column in reasons:
                why = {"field": field.dcgm_names[0], "reason": reasons[field.column]}
                family.add_sample(family.name, _name(row) | why, 1.0)
    return family


def _gauge(name: str, text: str, value: float | None = None) -> Metric:
    family = Metric(name, text, "gauge")
    if value is not None:
        family.add_sample(name, {}, float(value))
    return family


def _name(row: Mapping[str, Any]) -> dict[str, str]:
    """The labels that tell one GPU, or MIG instance, from the others."""
    instance = row["mig_instance"]
    labels = {"gpu": row["gpu"], "UUID": row["uuid"] or ""}
    return labels if instance is None else labels | {"GPU_I_ID": instance}


def _labels(row: Mapping[str, Any]) -> dict[str, str]:
    """The labels of dcgm-exporter; those of an instance only where there is one."""
    labels = _name(row) | {
        "pci_bus_id": row["pci_bus_id"] or "",
        "device": f"nvidia{row['gpu']}",
        "modelName": row["gpu_model"] or "",
        "Hostname": row["hostname"],
    }
    profile = row["mig_profile"]
    return labels if profile is None else labels | {"GPU_I_PROFILE": profile}
