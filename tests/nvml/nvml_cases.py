"""The part of NVML that driftwatch calls, answering what a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pynvml

from driftwatch.collect.nvml import NvmlSource
from driftwatch.collect.schema import Collected

NOW = datetime(2026, 11, 18, 2, 56, tzinfo=UTC)
GIB = 2**30


class StandIn:
    """Functions of pynvml: ``gpus`` are those that are listed, a number each.

    ``errors``: (function, GPU) → NVML's error number, GPU "*" for any; ``hangs``: function → event
    that ends the call.
    """

    def __init__(self) -> None:
        self.gpus = [0]
        self.errors: dict[tuple[str, int | str], int] = {}
        self.hangs: dict[str, threading.Event] = {}
        self.called: list[str] = []
        self.values: dict[str, dict[int, Any]] = {}
        self._generation = 0

    def functions(self) -> dict[str, Callable[..., Any]]:
        """What takes the place of pynvml's own."""
        of = self._of
        memory = lambda gpu: SimpleNamespace(  # noqa: E731
            used=of("used", gpu, 70 * GIB), free=of("free", gpu, 10 * GIB)
        )
        of_gpu: dict[str, Callable[[int], Any]] = {
            "nvmlDeviceGetUUID": lambda gpu: f"GPU-{gpu}",
            "nvmlDeviceGetName": lambda gpu: "Stand-in GPU",
            "nvmlDeviceGetPciInfo": lambda gpu: SimpleNamespace(busId=b"00000000:3B:00.0"),
            "nvmlDeviceGetMigMode": lambda gpu: [of("mig", gpu, 0)] * 2,
            "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=of("busy", gpu, 96)),
            "nvmlDeviceGetClockInfo": lambda gpu: 1980,
            "nvmlDeviceGetPowerUsage": lambda gpu: of("power", gpu, 402_500),
            "nvmlDeviceGetMemoryInfo": memory,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: of("reasons", gpu, 4),
        }
        whole: dict[str, Callable[..., Any]] = {
            "nvmlInit": self._start,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: len(self.gpus),
            "nvmlDeviceGetHandleByIndex": lambda index: (self.gpus[index], self._generation),
        }
        made = {name: self._function(name, call) for name, call in whole.items()}
        return made | {name: self._on_handle(name, call) for name, call in of_gpu.items()}

    def _of(self, name: str, gpu: int, usual: Any) -> Any:
        return self.values.get(name, {}).get(gpu, usual)

    def _start(self) -> None:
        self._generation += 1

    def _function(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def function(*arguments: Any) -> Any:
            gpu = self.gpus[arguments[0]] if arguments else "*"
            self._trouble(name, gpu)
            return call(*arguments)

        return function

    def _on_handle(self, name: str, call: Callable[[int], Any]) -> Callable[..., Any]:
        def function(handle: tuple[int, int], *more: Any) -> Any:
            gpu, generation = handle
            assert generation == self._generation, "a handle of before nvmlShutdown"
            self._trouble(name, gpu)
            return call(gpu)

        return function

    def _trouble(self, name: str, gpu: int | str) -> None:
        self.called.append(name)
        if name in self.hangs:
            self.hangs[name].wait(30)
        for key in ((name, gpu), (name, "*"), ("*", gpu)):
            if key in self.errors:
                raise pynvml.NVMLError(self.errors[key])


def collect(source: NvmlSource) -> Collected:
    return source.collect(NOW, NOW + timedelta(seconds=15))


def rows(found: Collected) -> dict[str, dict[str, Any]]:
    """UUID → row."""
    return {row["uuid"]: row for row in found.gpus.iter_rows(named=True)}


def why(row: dict[str, Any], column: str) -> str | None:
    assert row[column] is None
    reason = json.loads(row["reasons"]).get(column)
    assert reason is None or isinstance(reason, str)
    return reason
