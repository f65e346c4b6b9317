"""GPM: shares of a GPU's units between two samples (NVML, Hopper and later)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import pynvml

from driftwatch.collect.nvml.calls import Unread, of_code
from driftwatch.collect.nvml.fields import Reading, take

GPM_METRICS: Final[Mapping[str, int]] = {
    "engine_active_ratio": pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    "sm_active_ratio": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "tensor_active_ratio": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram_active_ratio": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
}


class AskNvml(Protocol):
    """Calls NVML's function of that name with a deadline; raises Unread."""

    def __call__(self, name: str, *arguments: Any, key: str = "") -> Any:
        """Its answer; ``key`` tells what it is asked of."""


class GpmSamples:
    """The last sample of a GPU, or of each of its GPU instances, kept until the next reading.

    A sample that a hanging call may still write to is neither freed nor used again.
    """

    def __init__(self, ask: AskNvml) -> None:
        self._ask = ask
        self._supported: bool | None = None
        self._last: dict[int | None, Any] = {}
        self._spare: list[Any] = []

    def keep(self, instances: Collection[int | None]) -> None:
        """Forget the samples of GPU instances that are not there any more."""
        for gone in self._last.keys() - set(instances):
            self._spare.append(self._last.pop(gone))

    def free(self) -> None:
        """Give NVML its samples back, as far as it takes them."""
        for sample in (*self._spare, *self._last.values()):
            with suppress(Unread):
                self._ask("nvmlGpmSampleFree", sample)
        self._spare, self._last = [], {}

    def shares(self, device: Any, instance: int | None) -> Any:
        """What happened since the last call, for :func:`take_gpm`; an Unread where unknown.

        Args:
            instance: number of the GPU instance, None = the whole GPU.
        """
        try:
            return self._between(device, instance)
        except Unread as why:
            return why

    def _between(self, device: Any, instance: int | None) -> Any:
        if self._supported is None:
            told = self._ask("nvmlGpmQueryDeviceSupport", device)
            self._supported = told.isSupportedDevice == 1
        if not self._supported:
            raise Unread("NotSupported")
        key = "" if instance is None else f"mig {instance}"
        before = self._last.get(instance)
        after = self._spare.pop() if self._spare else self._ask("nvmlGpmSampleAlloc")
        try:
            if instance is None:
                self._ask("nvmlGpmSampleGet", device, after)
            else:
                self._ask("nvmlGpmMigSampleGet", device, instance, after, key=key)
        except Unread as why:
            self._put_back(after, why)
            raise
        self._last[instance] = after
        if before is None:
            raise Unread("needs two readings")
        try:
            told = self._ask("nvmlGpmMetricsGet", _question(before, after), key=key)
        except Unread as why:
            self._put_back(before, why)
            if why.hangs:
                del self._last[instance]
            raise
        self._spare.append(before)
        return told

    def _put_back(self, sample: Any, why: Unread) -> None:
        if not why.hangs:
            self._spare.append(sample)


def _question(before: Any, after: Any) -> Any:
    """What ``nvmlGpmMetricsGet`` is asked: the metrics between two samples."""
    asked = pynvml.c_nvmlGpmMetricsGet_t()
    asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    asked.numMetrics = len(GPM_METRICS)
    asked.sample1, asked.sample2 = before, after
    for place, metric in enumerate(GPM_METRICS.values()):
        asked.metrics[place].metricId = metric
    return asked


def take_gpm(reading: Reading, told: Any) -> None:
    """Fill the columns that GPM gives; each metric has a result of its own."""
    for place, column in enumerate(GPM_METRICS):
        metric = told.metrics[place]
        if metric.nvmlReturn != pynvml.NVML_SUCCESS:
            reading.leave(column, of_code(metric.nvmlReturn))
        else:
            take(reading, column, metric.value / 100)
