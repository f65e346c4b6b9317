"""NVML on the machine that driftwatch runs on, as a source of readings of whole GPUs."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import pynvml

from driftwatch.clock import Clock, SystemClock
from driftwatch.collect.gpus import (
    BLANK_FROM,
    GPU_FIELD_BY_COLUMN,
    GPU_FIELDS,
    NVML_COLUMNS,
    SHARE_OVER,
    gpu_frame,
)
from driftwatch.collect.schema import Collected, SourceProblem, empty_scrapes

T = TypeVar("T")

READING_SECONDS = 5.0  # of all GPUs; a call that hangs longer is left behind
# A GPU that was reset is seen only by an NVML that was started after it.
_LOOK_FOR_LOST: Final = timedelta(minutes=5)
# After these nothing works before NVML is started anew.
_ENDED: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
_NO_DRIVER: Final = frozenset(
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
_NOT_READ: Final = {
    field.column: "n/a: not read by NVML; dcgm-exporter tells it"
    for field in GPU_FIELDS
    if field.column not in NVML_COLUMNS
}


def _memory(handle: Any) -> Any:
    return pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)


# Column of the GPU table → its value in the column's unit, of a GPU's handle.
_READ: Final[Mapping[str, Callable[[Any], float]]] = {
    "utilization_ratio": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "sm_clock_hertz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM) * 1e6,
    "power_watts": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    # version 2 tells used memory from reserved memory
    "framebuffer_used_bytes": lambda gpu: float(_memory(gpu).used),
    "clock_event_reasons": lambda gpu: float(pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)),
}


class Unread(Exception):
    """A call that gave no value: why, and NVML's error number, None where NVML said nothing."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        self.reason, self.code = reason, code
        super().__init__(reason)


class _LeftOut(Exception):
    """A GPU of this machine that has no row."""


class NvmlSource:
    """The GPUs of this machine, read now."""

    is_live = True

    def __init__(self, clock: Clock | None = None, hostname: str | None = None) -> None:
        self.name = "nvml"
        self.settle_seconds = 0.0
        self.hostname = hostname or socket.gethostname()
        self._where = f"NVML on {self.hostname}"
        self._clock = clock or SystemClock()
        self._started = self._ended = False
        self._hanging: Future[Any] | None = None
        self._names: dict[int, dict[str, str]] = {}  # by index, while NVML is not started anew
        self._seen: dict[str, dict[str, Any]] = {}  # by UUID: names, index, and whether lost
        self._lost_since: datetime | None = None

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Each GPU once, now: ``since`` and ``until`` say nothing to a live GPU.

        What cannot be read is NULL with its reason. That NVML cannot be used is a problem, and the
        next call tries again. Takes 5 s at most.
        """
        now = self._clock.now()
        try:
            rows, problems = self._within(lambda: self._read(now))
        except Unread as why:
            problems = [SourceProblem(self._where, _what_to_do(why), now)]
            return Collected(empty_scrapes(), {}, tuple(problems))
        return Collected(empty_scrapes(), {}, tuple(problems), gpus=gpu_frame(rows))

    def is_here(self) -> bool:
        """Whether this machine has NVIDIA's driver; trouble with one that is there is no "no"."""
        try:
            self._within(self._start)
        except Unread as why:
            return why.code not in _NO_DRIVER
        return True

    def close(self) -> None:
        """Give NVML back; a call that hangs is not waited for."""
        with suppress(Unread):
            self._within(self._stop)

    def _within(self, call: Callable[[], T]) -> T:
        """The call's answer, from a daemon thread; none is made while an earlier one hangs.

        Raises Unread.
        """
        if self._hanging is not None and not self._hanging.done():
            raise Unread("a call has not come back")
        answer: Future[T] = Future()

        def work() -> None:
            try:
                answer.set_result(call())
            except Exception as error:  # noqa: BLE001 - whoever waits for it raises it
                answer.set_exception(error)

        threading.Thread(target=work, name="driftwatch-nvml", daemon=True).start()
        try:
            return answer.result(READING_SECONDS)
        except TimeoutError:
            self._hanging = answer
            raise Unread(f"no answer within {READING_SECONDS:g} s") from None
        except Exception as error:
            raise _unread(error) from error

    def _start(self) -> None:
        if not self._started:
            pynvml.nvmlInit()
            self._started, self._names = True, {}

    def _stop(self) -> None:
        if self._started:
            self._started = False
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _read(self, now: datetime) -> tuple[list[dict[str, Any]], list[SourceProblem]]:
        """Rows of the GPU table, and what is left out."""
        self._start()
        self._ended = False
        try:
            count = self._asked(pynvml.nvmlDeviceGetCount)
        except Unread:
            if self._ended:
                self._stop()
            raise
        rows, problems = [], []
        for index in range(count):
            try:
                rows.append(self._row(index) | {"time": now})
            except _LeftOut as why:
                self._seen.pop(self._names.get(index, {}).get("uuid", ""), None)
                problems.append(SourceProblem(f"{self._where}, GPU {index}", str(why), now))
        listed = {row["uuid"] for row in rows if "uuid" in row}
        unlisted = "n/a: NVML does not list this GPU any more"
        reasons = json.dumps(_NOT_READ | dict.fromkeys(NVML_COLUMNS, unlisted))
        for uuid, known in sorted(self._seen.items()):
            if uuid not in listed:
                rows.append(known | {"time": now, "reasons": reasons})
        lost = any(row["lost"] for row in rows)
        self._lost_since = (self._lost_since or now) if lost else None
        if self._ended or (lost and now - (self._lost_since or now) > _LOOK_FOR_LOST):
            self._lost_since = None
            self._stop()
        return rows, problems

    def _row(self, index: int) -> dict[str, Any]:
        """A GPU's row. Raises _LeftOut: it is not to be read."""
        values: dict[str, float] = {}
        whys: dict[str, Unread] = {}
        try:
            handle = self._asked(lambda: pynvml.nvmlDeviceGetHandleByIndex(index))
        except Unread as why:
            if why.code == pynvml.NVML_ERROR_NO_PERMISSION and index not in self._names:
                raise _LeftOut("no permission for this GPU: it is left out") from why
            whys = dict.fromkeys(NVML_COLUMNS, why)
        else:
            self._check_mig(handle)
            with suppress(Unread):  # a lost GPU keeps what it was
                self._names[index] = self._asked(lambda: _names(handle))
            for column in NVML_COLUMNS:
                try:
                    values[column] = self._value(column, handle)
                except Unread as why:
                    whys[column] = why
        known: dict[str, Any] = {
            "origin": "NVML",
            "exporter": f"nvml:{self.hostname}",
            "hostname": self.hostname,
            "own_host": True,
            "gpu": str(index),
            **(names := self._names.get(index, {})),
        }
        before = self._seen.get(names.get("uuid", ""), {}).get("lost")
        codes = {why.code for why in whys.values()}
        lost = True if pynvml.NVML_ERROR_GPU_IS_LOST in codes else False if values else before
        if names:
            self._seen[names["uuid"]] = known | {"lost": lost or None}
        reasons = _NOT_READ | {column: f"n/a: {why.reason}" for column, why in whys.items()}
        return known | values | {"lost": lost, "reasons": json.dumps(reasons, sort_keys=True)}

    def _value(self, column: str, handle: Any) -> float:
        return _checked(column, self._asked(lambda: _READ[column](handle)))

    def _check_mig(self, handle: Any) -> None:
        """Raises _LeftOut: the GPU is divided into instances."""
        try:
            current, _ = self._asked(lambda: pynvml.nvmlDeviceGetMigMode(handle))
        except Unread:
            return  # most GPUs have none
        if current == 1:
            raise _LeftOut("MIG is on, so it is left out")

    def _asked(self, call: Callable[[], T]) -> T:
        """The call's answer. Raises Unread; notes where NVML must be started anew."""
        try:
            return call()
        except Exception as error:
            why = _unread(error)
            self._ended = self._ended or why.code in _ENDED
            raise why from error


def _names(handle: Any) -> dict[str, str]:
    """What does not change while the driver is loaded."""
    return {
        "uuid": str(pynvml.nvmlDeviceGetUUID(handle)),
        "gpu_model": str(pynvml.nvmlDeviceGetName(handle)),
    }


def _checked(column: str, value: float) -> float:
    """The value; raises Unread where it is none: a blank of the driver, or more than can be."""
    field = GPU_FIELD_BY_COLUMN[column]
    if not math.isfinite(value) or value >= BLANK_FROM:
        raise Unread(f"{value:g} is no value")
    if column.endswith("_ratio"):
        if not 0 <= value <= 1 + SHARE_OVER:
            raise Unread(f"{100 * value:.12g} % is no share")
        return min(value, 1.0)
    if value > field.most:
        raise Unread(f"{value:.12g} is {field.why_most}")
    return value


def _unread(error: Exception) -> Unread:
    """An error in NVML's words: ``NotSupported``, ``GpuIsLost``."""
    if isinstance(error, Unread):
        return error
    if not isinstance(error, pynvml.NVMLError):
        return Unread(f"{type(error).__name__}: {error}")
    code = int(error.value)
    _, _, words = pynvml.NVMLError(code).__class__.__name__.partition("_")
    return Unread(words or f"NVML error {code}", code)


def _what_to_do(why: Unread) -> str:
    """A sentence, with what mends it where that is known."""
    return _WHAT_TO_DO.get(-1 if why.code is None else why.code, f"NVML: {why.reason}")
