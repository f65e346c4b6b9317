"""NVML on the machine that driftwatch runs on, as a source of GPU readings."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from driftwatch.clock import Clock, SystemClock
from driftwatch.collect.gpus import GPU_FIELDS, gpu_frame
from driftwatch.collect.nvml.calls import Unread
from driftwatch.collect.nvml.gpu import GPU_SECONDS, GpuReader, GpuReading, Identity
from driftwatch.collect.nvml.library import NO_DRIVER, NvmlLibrary
from driftwatch.collect.nvml.machine import Listeners, NoPorts
from driftwatch.collect.schema import Collected, SourceProblem, empty_scrapes

# Nobody computes on a GPU with less in use. One context takes hundreds of MiB, an idle GPU a few.
_NOBODY_BYTES: Final = 64 * 2.0**20
_UNTOLD: Final = {f.column: "n/a: NVML does not tell it" for f in GPU_FIELDS if not f.nvml_call}


@dataclass(frozen=True, slots=True)
class _Unlisted:
    """A GPU that NVML listed once and does not list now."""

    index: int
    identity: Identity
    lost: bool


class NvmlSource:
    """The GPUs of this machine, read now; every call on its own, with a deadline."""

    def __init__(
        self, clock: Clock | None = None, proc: Path = Path("/proc"), hostname: str | None = None
    ) -> None:
        self.name = "nvml"
        self.settle_seconds = 0.0
        self.hostname = hostname or socket.gethostname()
        self._clock = clock or SystemClock()
        self._proc = proc
        self._library = NvmlLibrary()
        self._listed: dict[str, _Unlisted] = {}

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Each GPU once, now: ``since`` and ``until`` say nothing to a live GPU.

        What cannot be read is NULL with its reason; that NVML cannot be used is a problem, and
        the next call tries again. Takes 11 s at most.
        """
        now = self._clock.now()
        try:
            readers = self._library.readers()
        except Unread as why:
            problem = SourceProblem(f"NVML on {self.hostname}", why.reason, now)
            return Collected(empty_scrapes(), {}, (problem,))
        readings = _at_once(readers)
        self._library.learn(readings)
        listeners = Listeners(self._proc)
        rows = [self._row(reading, listeners, now) for reading in readings]
        rows += [self._unlisted_row(gpu, now) for gpu in self._unlisted(readings)]
        where = f"NVML on {self.hostname}"
        reasons = [(where, self._library.problem)]
        reasons += [(f"{where}, GPU {reader.index}", reader.problem) for reader in readers]
        problems = tuple(
            SourceProblem(w, reason, now) for w, reason in reasons if reason is not None
        )
        return Collected(empty_scrapes(), {}, problems, gpus=gpu_frame(rows))

    def is_here(self) -> bool:
        """Whether this machine has NVIDIA's driver; trouble with one that is there is no "no"."""
        try:
            self._library.readers()
        except Unread as why:
            return why.code not in NO_DRIVER
        return True

    def close(self) -> None:
        """Give NVML back; a call that hangs is not waited for."""
        self._library.close()

    def _unlisted(self, readings: Sequence[GpuReading]) -> list[_Unlisted]:
        """GPUs that are not listed any more: a lost one stays lost until it is back."""
        listed = {}
        for reading in readings:
            uuid = reading.identity.uuid
            if uuid is not None:
                was_lost = reading.lost is None and uuid in self._listed and self._listed[uuid].lost
                lost = was_lost if reading.lost is None else reading.lost
                listed[uuid] = _Unlisted(reading.index, reading.identity, lost)
        self._listed |= listed
        return [gpu for uuid, gpu in sorted(self._listed.items()) if uuid not in listed]

    def _row(self, reading: GpuReading, listeners: Listeners, now: datetime) -> dict[str, Any]:
        reasons = {**_UNTOLD, **reading.fields.reasons}
        ports = None
        try:
            ports = _ports(reading, listeners)
        except NoPorts as why:
            reasons["ports"] = f"n/a: {why.reason}"
        return self._base(reading.index, reading.identity, now) | {
            "mig_profile": reading.mig_profile,
            "mig_instance": reading.mig_instance,
            "ports": ports,
            "lost": reading.lost,
            "reasons": json.dumps(reasons, sort_keys=True),
            **reading.fields.values,
        }

    def _unlisted_row(self, gpu: _Unlisted, now: datetime) -> dict[str, Any]:
        why = "n/a: NVML does not list this GPU any more"
        columns = [f.column for f in GPU_FIELDS if f.nvml_call]
        reasons = {**_UNTOLD, **dict.fromkeys(["ports", *columns], why)}
        return self._base(gpu.index, gpu.identity, now) | {
            "lost": True if gpu.lost else None,
            "reasons": json.dumps(reasons, sort_keys=True),
        }

    def _base(self, index: int, identity: Identity, now: datetime) -> dict[str, Any]:
        return {
            "origin": "NVML",
            "exporter": f"nvml:{self.hostname}",
            "time": now,
            "hostname": self.hostname,
            "own_host": True,
            "gpu": str(index),
            "uuid": identity.uuid,
            "pci_bus_id": identity.pci_bus_id,
            "gpu_model": identity.model,
        }


def _at_once(readers: Sequence[GpuReader]) -> list[GpuReading]:
    """Every GPU read by a thread of its own: one that hangs delays no other."""
    readings: dict[int, list[GpuReading]] = {}

    def read(reader: GpuReader) -> None:
        try:
            readings[reader.index] = reader.read()
        except Exception as error:  # noqa: BLE001 - one odd answer must not cost the other GPUs
            reader.problem = f"its reading failed: {type(error).__name__}: {error}"

    threads = [
        threading.Thread(target=read, args=(reader,), name="driftwatch-nvml-read", daemon=True)
        for reader in readers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GPU_SECONDS + 1)  # every wait inside has a deadline
    for reader in readers:
        if reader.index not in readings and reader.problem is None:
            reader.problem = "its reading did not end"
    return [reading for index in sorted(readings) for reading in readings[index]]


def _ports(reading: GpuReading, listeners: Listeners) -> list[int]:
    """The ports of the GPU's processes; none where nobody computes on it.

    Raises NoPorts: they are not known.
    """
    if isinstance(reading.processes, Unread):
        raise NoPorts(reading.processes.reason)
    if not reading.processes:
        used = reading.fields.values.get("framebuffer_used_bytes")
        if used is None or used > _NOBODY_BYTES:
            # NVML leaves out what this process cannot see
            raise NoPorts("processes of another pid namespace")
    return listeners.ports(reading.processes)
