"""NVML on the machine that driftwatch runs on, as a source of whole GPUs; and its own names."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import pynvml

from driftwatch.clock import Clock, SystemClock
from driftwatch.collect.gpus import (
    BLANK_FROM,
    GPU_FIELDS,
    NVML_FIELDS,
    GpuField,
    gpu_frame,
)
from driftwatch.collect.schema import Collected, SourceProblem, empty_scrapes

T = TypeVar("T")

READING_SECONDS = 5.0  # of all GPUs; a call that hangs longer is left behind
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
    if field not in NVML_FIELDS
}


# Column of the GPU table → its value in the column's unit, of a GPU's handle.
_READ: Final[Mapping[str, Callable[[Any], float]]] = {
    "utilization_ratio": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "sm_clock_hertz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM) * 1e6,
    "power_watts": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    # version 2 tells used memory from reserved memory
    "framebuffer_used_bytes": lambda gpu: float(
        pynvml.nvmlDeviceGetMemoryInfo(gpu, pynvml.nvmlMemory_v2).used
    ),
    "clock_event_reasons": lambda gpu: float(pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)),
}


class Unread(Exception):
    """A call without a value: why, and NVML's error number, None where NVML gave none."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        self.reason, self.code = reason, code
        super().__init__(reason)


class NvmlSource:
    """The GPUs of this machine, read now.

    NVML is started anew for each reading: else it does not show a driver that was loaded again or a
    GPU that was reset.
    """

    is_live = True

    def __init__(self, clock: Clock | None = None, hostname: str | None = None) -> None:
        self.name = "nvml"
        self.settle_seconds = 0.0
        self.hostname = hostname or socket.gethostname()
        self._where = f"NVML on {self.hostname}"
        self._clock = clock or SystemClock()
        self._hanging: Future[Any] | None = None
        self._names: dict[int, dict[str, str]] = {}  # by index
        self._seen: dict[str, dict[str, Any]] = {}  # by UUID: names, index, and whether lost

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Each GPU once, now, whatever ``since`` and ``until`` are.

        What cannot be read is NULL with its reason. That NVML cannot be used is a problem, and the
        next call tries again. Takes 5 s at most.
        """
        now = self._clock.now()
        try:
            rows, problems = self._within(lambda: self._read(now))
        except Unread as why:
            text = _WHAT_TO_DO.get(-1 if why.code is None else why.code, f"NVML: {why.reason}")
            return Collected(empty_scrapes(), {}, (SourceProblem(self._where, text, now),))
        return Collected(empty_scrapes(), {}, tuple(problems), gpus=gpu_frame(rows))

    def is_here(self) -> bool:
        """Whether this machine has NVIDIA's driver; trouble with one that is there is no "no"."""
        try:
            self._within(lambda: self._read(self._clock.now()))
        except Unread as why:
            return why.code not in _NO_DRIVER
        return True

    def close(self) -> None:
        """Nothing is held between two readings; a call that hangs is not waited for."""

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
            return _called(lambda: answer.result(READING_SECONDS))
        except TimeoutError:
            self._hanging = answer
            raise Unread(f"no answer within {READING_SECONDS:g} s") from None

    def _read(self, now: datetime) -> tuple[list[dict[str, Any]], list[SourceProblem]]:
        """Rows of the GPU table, and what is left out."""
        pynvml.nvmlInit()
        rows, problems = [], []
        try:
            for index in range(pynvml.nvmlDeviceGetCount()):
                row = self._row(index)
                if isinstance(row, str):
                    self._seen.pop(self._names.get(index, {}).get("uuid", ""), None)
                    problems.append(SourceProblem(f"{self._where}, GPU {index}", row, now))
                else:
                    rows.append(row | {"time": now})
        finally:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
        listed = {row["uuid"] for row in rows if "uuid" in row}
        unlisted = "n/a: NVML does not list this GPU any more"
        reasons = json.dumps(_NOT_READ | dict.fromkeys(_READ, unlisted))
        gone = (known for uuid, known in sorted(self._seen.items()) if uuid not in listed)
        return [*rows, *(known | {"time": now, "reasons": reasons} for known in gone)], problems

    def _row(self, index: int) -> dict[str, Any] | str:
        """A GPU's row, or why it has none."""
        values: dict[str, float] = {}
        whys: dict[str, Unread] = {}
        try:
            handle = _called(lambda: pynvml.nvmlDeviceGetHandleByIndex(index))
        except Unread as why:
            if why.code == pynvml.NVML_ERROR_NO_PERMISSION and index not in self._names:
                return "no permission for this GPU: it is left out"
            whys = dict.fromkeys(_READ, why)
        else:
            with suppress(pynvml.NVMLError):  # most GPUs have no MIG
                if pynvml.nvmlDeviceGetMigMode(handle)[0] == 1:
                    return "MIG is on, so it is left out"
            with suppress(pynvml.NVMLError):  # a lost GPU keeps what it was
                uuid, model = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
                self._names[index] = {"uuid": str(uuid), "gpu_model": str(model)}
            for field in NVML_FIELDS:
                try:
                    read = _called(partial(_READ[field.column], handle))
                    values[field.column] = _checked(field, read)
                except Unread as why:
                    whys[field.column] = why
        names = self._names.get(index, {})
        known: dict[str, Any] = {
            "origin": "NVML",
            "exporter": f"nvml:{self.hostname}",
            "hostname": self.hostname,
            "own_host": True,
            "gpu": str(index),
            **names,
        }
        before = self._seen.get(names.get("uuid", ""), {}).get("lost")
        codes = {why.code for why in whys.values()}
        lost = True if pynvml.NVML_ERROR_GPU_IS_LOST in codes else False if values else before
        if names:
            self._seen[names["uuid"]] = known | {"lost": lost or None}
        reasons = _NOT_READ | {column: f"n/a: {why.reason}" for column, why in whys.items()}
        return known | values | {"lost": lost, "reasons": json.dumps(reasons, sort_keys=True)}


def _called(call: Callable[[], T]) -> T:
    """The call's answer.

    Raises Unread: with the error in NVML's words, as ``NotSupported``; TimeoutError.
    """
    try:
        return call()
    except pynvml.NVMLError as error:
        code = int(error.value)
        _, _, words = pynvml.NVMLError(code).__class__.__name__.partition("_")
        raise Unread(words or f"NVML error {code}", code) from error
    except (Unread, TimeoutError):
        raise
    except Exception as error:
        raise Unread(f"{type(error).__name__}: {error}") from error


def _checked(field: GpuField, value: float) -> float:
    """The value. Raises Unread: it is a blank of the driver, or more than can be."""
    if not math.isfinite(value) or value >= BLANK_FROM:
        raise Unread(f"{value:g} is no value")
    if value > field.most:
        raise Unread(f"{value / field.factor:.12g} is {field.why_most}")
    return min(value, 1.0) if field.is_share else value


_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def own_hosts(urls: Iterable[str] = (), *, hostname: str | None = None) -> frozenset[str]:
    """Names and addresses of this machine, without brackets.

    ``urls``: addresses that may be of this machine under another name; the hosts of those that are
    come back as well. A name is looked up, which takes what the resolver takes.
    """
    name = hostname or socket.gethostname()
    words = {word for one in (name, name.partition(".")[0]) for word in (one, one.lower())}
    asked = {host: _looked_up(host) for host in {host_of(url) for url in urls} - words - {""}}
    others = {host for host, found in asked.items() if found and all(map(_is_ours, found))}
    return frozenset({*_LOOPBACK, *words, *others, *filter(_is_ours, _looked_up(name))})


def host_of(url: str) -> str:
    """The host of a URL in small letters, without brackets; "" where there is none."""
    try:
        return urlsplit(url if "://" in url else f"//{url}").hostname or ""
    except ValueError:
        return ""


def _is_ours(address: str) -> bool:
    """A socket can be bound to an address of this machine alone."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _looked_up(host: str) -> set[str]:
    try:
        return {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return set()  # the scrape's reason names what is wrong with the name
