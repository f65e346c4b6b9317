"""One GPU read through NVML: its identity, its MIG instances, their fields and processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pynvml

from driftwatch.collect.gpus import GPU_FIELDS
from driftwatch.collect.nvml.calls import CALL_SECONDS, Lane, Unread, function
from driftwatch.collect.nvml.fields import (
    GPM_METRICS,
    GpmSamples,
    Reading,
    leave_all,
    read_fields,
    take_gpm,
)

# of all calls on one GPU in one reading
GPU_SECONDS: Final = 5.0
_NO_MIG: Final = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND})
_EMPTY_PLACE: Final = frozenset({pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT})


@dataclass(frozen=True, slots=True)
class Identity:
    """What does not change while the driver is loaded; None = not read yet."""

    uuid: str | None = None  # ``GPU-…``
    pci_bus_id: str | None = None  # ``00000000:3B:00.0``.
    model: str | None = None  # product name


@dataclass(slots=True)
class GpuReading:
    """A GPU, or one of its MIG instances, as it was read."""

    index: int  # on its host
    identity: Identity  # of the physical GPU
    fields: Reading = field(default_factory=Reading)  # values and reasons
    processes: tuple[int, ...] | Unread = ()  # that compute on it, or why they are not known
    mig_profile: str | None = None  # ``1g.10gb``, None = the whole GPU.
    # number of the GPU instance, with that of the compute instance where it holds several
    mig_instance: str | None = None
    lost: bool | None = None  # NVML says so; None = nothing could be read


@dataclass(frozen=True, slots=True)
class _Instance:
    """A MIG instance that exists now."""

    handle: Any
    gpu_instance: int
    compute_instance: int
    profile: str

    @property
    def name(self) -> str:
        return f"{self.gpu_instance}/{self.compute_instance}"


class GpuReader:
    """Reads one GPU again and again; one reading at a time.

    ``index``: of the GPU, as NVML counts; ``identity``: of the GPU that was there when it was last
    read; ``problem``: what the last reading could not find out, beside single fields.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.identity = Identity()
        self.problem: str | None = None
        self._lane = Lane(f"driftwatch-nvml-{index}")
        self._handle: Any = None
        self._last_instances: list[_Instance] = []
        self._gpm = GpmSamples(self._ask)

    @property
    def hangs(self) -> bool:
        """A call on it has not come back."""
        return self._lane.hangs

    def release(self) -> None:
        """Free what NVML holds for it, before NVML is stopped."""
        self._lane.begin(CALL_SECONDS)
        self._gpm.free()

    def renew(self, *, forget: bool) -> None:
        """NVML was started anew: handles and samples of before are void.

        ``forget``: the index may mean another GPU now.
        """
        self._handle, self._last_instances = None, []
        self._gpm = GpmSamples(self._ask)
        if forget:
            self.identity = Identity()

    def read(self) -> list[GpuReading]:
        """The GPU now, a reading for each MIG instance where it has any; within 5 s."""
        self._lane.begin(GPU_SECONDS)
        self.problem = None
        try:
            self._handle = self._handle or self._ask("nvmlDeviceGetHandleByIndex", self.index)
        except Unread as why:
            return self._unreadable(why)
        board = Reading()
        self._identify(board)
        read_fields(board, self._on(self._handle), of_instance=False)
        instances: list[_Instance | None] = [*self._instances()] or [None]
        # instances of one GPU instance share its samples
        parents = {None if i is None else i.gpu_instance for i in instances}
        self._gpm.keep(parents)
        shares = {parent: self._gpm.shares(self._handle, parent) for parent in parents}
        readings = [
            self._of(i, board, shares[None if i is None else i.gpu_instance]) for i in instances
        ]
        codes = {code for reading in readings for code in reading.fields.codes}
        for reading in readings:
            if pynvml.NVML_ERROR_GPU_IS_LOST in codes:
                reading.lost = True
            elif board.values or reading.fields.values:
                reading.lost = False
        return readings

    def close(self) -> None:
        """Let its thread end."""
        self._lane.close()

    def _ask(self, name: str, *arguments: Any, key: str = "") -> Any:
        """NVML's function of that name with a deadline; ``key`` tells what it is asked of."""
        return self._lane.ask(f"{name} {key}", partial(function(name), *arguments))

    def _on(self, handle: Any, key: str = "") -> Callable[[str, Sequence[Any]], Any]:
        """Asks calls whose first argument is the handle."""

        def ask(name: str, arguments: Sequence[Any]) -> Any:
            return self._ask(name, handle, *arguments, key=f"{key}{tuple(arguments)}")

        return ask

    def _unreadable(self, why: Unread) -> list[GpuReading]:
        """A GPU without a handle; one that was never ours to read is no GPU of this machine."""
        if why.code == pynvml.NVML_ERROR_NO_PERMISSION and self.identity.uuid is None:
            self.problem = "no permission for this GPU: it is left out"
            return []
        reading = GpuReading(self.index, self.identity, processes=why)
        leave_all(reading.fields, (f.column for f in GPU_FIELDS if f.nvml_call), why)
        if why.code == pynvml.NVML_ERROR_GPU_IS_LOST:
            reading.lost = True
        return [reading]

    def _identify(self, board: Reading) -> None:
        """Read what is not known yet; a lost GPU keeps what it was."""

        def ask_once(column: str, value: str | None, name: str, take: Callable[[Any], str]) -> Any:
            if value is not None:
                return value
            try:
                return take(self._ask(name, self._handle))
            except Unread as why:
                board.leave(column, why)
                return None

        was = self.identity
        self.identity = Identity(
            ask_once("uuid", was.uuid, "nvmlDeviceGetUUID", str),
            ask_once("pci_bus_id", was.pci_bus_id, "nvmlDeviceGetPciInfo", _bus_id),
            ask_once("gpu_model", was.model, "nvmlDeviceGetName", str),
        )

    def _instances(self) -> list[_Instance]:
        """MIG instances; none where MIG is off. Where NVML does not say: those of before."""
        try:
            if self._ask("nvmlDeviceGetMigMode", self._handle)[0] != 1:
                self._last_instances = []
                return []
            instances = []
            for place in range(self._ask("nvmlDeviceGetMaxMigDeviceCount", self._handle)):
                try:
                    instances.append(self._instance(place))
                except Unread as why:
                    if why.code not in _EMPTY_PLACE:
                        raise
            self._last_instances = instances
        except Unread as why:
            if why.code in _NO_MIG:
                self._last_instances = []
            elif self._last_instances or why.code != pynvml.NVML_ERROR_GPU_IS_LOST:
                self.problem = f"MIG instances are as they were: {why.reason}"
        return self._last_instances

    def _instance(self, place: int) -> _Instance:
        handle = self._ask(
            "nvmlDeviceGetMigDeviceHandleByIndex", self._handle, place, key=str(place)
        )
        ask = self._on(handle, f"mig {place}")
        gpu_instance = ask("nvmlDeviceGetGpuInstanceId", ())
        compute_instance = ask("nvmlDeviceGetComputeInstanceId", ())
        profile = re.search(r"\bMIG (\S+)$", ask("nvmlDeviceGetName", ()))
        if profile is not None:
            return _Instance(handle, gpu_instance, compute_instance, profile[1])
        # older drivers give an instance the name of its board
        slices = ask("nvmlDeviceGetAttributes", ())
        memory = round(slices.memorySizeMB / 1024)
        named = f"{slices.gpuInstanceSliceCount}g.{memory}gb"
        return _Instance(handle, gpu_instance, compute_instance, named)

    def _of(self, instance: _Instance | None, board: Reading, shares: Any) -> GpuReading:
        """The board, or one instance: what it has of its own beside what is the board's."""
        handle, key = (self._handle, "")
        if instance is not None:
            handle, key = instance.handle, f"mig {instance.name}"
        own = Reading(dict(board.values), dict(board.reasons), set(board.codes))
        read_fields(own, self._on(handle, key), of_instance=True)
        if isinstance(shares, Unread):
            leave_all(own, GPM_METRICS, shares)
        else:
            take_gpm(own, shares)
        reading = GpuReading(self.index, self.identity, own, self._processes(handle, key))
        if instance is not None:
            alone = sum(i.gpu_instance == instance.gpu_instance for i in self._last_instances) == 1
            reading.mig_profile = instance.profile
            reading.mig_instance = str(instance.gpu_instance) if alone else instance.name
        return reading

    def _processes(self, handle: Any, key: str) -> tuple[int, ...] | Unread:
        """Ids of the processes that compute there, in order."""
        ask = self._on(handle, key)
        try:
            try:
                processes = ask("nvmlDeviceGetComputeRunningProcesses", ())
            except Unread as why:
                if why.code != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                    raise
                processes = ask("nvmlDeviceGetComputeRunningProcesses_v2", ())
        except Unread as why:
            return why
        return tuple(sorted({process.pid for process in processes}))


def _bus_id(pci: Any) -> str:
    """``00000000:3B:00.0``, as DCGM writes it."""
    return str(pci.busId.decode() if isinstance(pci.busId, bytes) else pci.busId)
