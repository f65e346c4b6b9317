"""NVML's life: loaded, started, asked how many GPUs there are, started anew when it must be."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import pynvml

from driftwatch.collect.nvml.calls import Lane, Unread, function
from driftwatch.collect.nvml.gpu import GpuReader, GpuReading

_LIBRARY_SECONDS = 5.0
_CLOSE_SECONDS: Final = 1.0
# A GPU that was reset is seen only by an NVML that was started after it.
_LOOK_FOR_LOST_SECONDS = 300.0
# After these nothing works before NVML is started anew.
_ENDED: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
NO_DRIVER: Final = frozenset(
    {pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED}
)
_WHAT_TO_DO: Final[Mapping[int, str]] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "there is no libnvidia-ml.so.1: install the NVIDIA "
    "driver; a container needs the NVIDIA runtime with the capability utility",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded: modprobe nvidia; a "
    "container needs the NVIDIA runtime",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "libnvidia-ml.so.1 and the loaded driver are of "
    "different versions: load the new driver or reboot, then restart driftwatch",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission for /dev/nvidia*: run as a user who has it",
}


class NvmlLibrary:
    """Readers of the GPUs that NVML lists, for as long as it lists them.

    ``problem``: what the last list leaves open.
    """

    def __init__(self) -> None:
        self.problem: str | None = None
        self._lane = Lane("driftwatch-nvml")
        self._started = False
        self._anew = False
        self._count: int | None = None
        self._readers: dict[int, GpuReader] = {}
        self._lost_since: float | None = None

    def readers(self) -> list[GpuReader]:
        """One for each GPU, by index; NVML is started where it is not.

        Raises Unread: NVML cannot be used, with a sentence and what to do. Asked again, it tries
        again.
        """
        self._lane.begin(_LIBRARY_SECONDS)
        self.problem = None
        call = "nvmlInit"
        try:
            if self._anew and not self._hangs():
                self._stop()
            if not self._started:
                self._lane.ask("nvmlInit", self._start, _LIBRARY_SECONDS)
            call = "nvmlDeviceGetCount"
            count = self._counted(call)
        except Unread as why:
            self._anew = self._anew or why.code in _ENDED
            words = _WHAT_TO_DO.get(-1 if why.code is None else why.code, f"{call}: {why.reason}")
            raise Unread(words, why.code) from why
        if count != self._count:
            for reader in self._readers.values():
                reader.renew(forget=True)
            self._count = count
        return [self._readers.setdefault(index, GpuReader(index)) for index in range(count)]

    def _counted(self, call: str) -> int:
        """How many GPUs there are; as many as before where the answer does not come."""
        try:
            count: int = self._lane.ask(call, function(call))
        except Unread as why:
            if not why.hangs or self._count is None:
                raise
            self.problem = f"as many GPUs as before are read: {call}: {why.reason}"
            count = self._count
        return count

    def learn(self, readings: Iterable[GpuReading]) -> None:
        """What the readings say of NVML itself: whether it must be started anew."""
        listed = list(readings)
        self._anew = self._anew or any(not _ENDED.isdisjoint(r.fields.codes) for r in listed)
        if not any(reading.lost for reading in listed):
            self._lost_since = None
        elif self._lost_since is None:
            self._lost_since = time.monotonic()
        elif time.monotonic() - self._lost_since > _LOOK_FOR_LOST_SECONDS:
            self._anew, self._lost_since = True, None

    def close(self) -> None:
        """Give NVML back, unless a call on it hangs."""
        self._lane.begin(_CLOSE_SECONDS)
        if self._started and not self._hangs():
            with suppress(Unread):  # the process ends anyway
                self._stop()
        for reader in self._readers.values():
            reader.close()
        self._lane.close()

    def _hangs(self) -> bool:
        """A call has not come back: NVML must not be stopped under it."""
        return self._lane.hangs or any(reader.hangs for reader in self._readers.values())

    def _start(self) -> None:
        # with many GPUs it can take longer than anyone waits: what counts is that it came back
        pynvml.nvmlInit()
        self._started = True

    def _stop(self) -> None:
        if self._started:
            for reader in self._readers.values():
                reader.release()
            try:
                self._lane.ask("nvmlShutdown", function("nvmlShutdown"))
            except Unread as why:
                if why.code is None:
                    raise
        self._started = self._anew = False
        for reader in self._readers.values():
            reader.renew(forget=False)
