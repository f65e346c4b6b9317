"""Which NVML call fills which column of the GPU table, and in what unit it answers.

The names of the calls are in :data:`driftwatch.collect.gpus.GPU_FIELDS`; here stand what they
are asked with and how their answers become base units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pynvml

from driftwatch.collect.gpus import BLANK_FROM, GPU_FIELD_BY_COLUMN, GPU_FIELDS, SHARE_OVER
from driftwatch.collect.nvml.calls import Unread, of_code

# Asks one call: NVML's function and what it takes after the handle. Raises Unread.
Ask = Callable[[str, Sequence[Any]], Any]

# Names of before, for drivers (or bindings) that do not have the one in GPU_FIELDS. A first
# attempt that asks for more comes before it: version 2 tells used memory from reserved memory,
# which "used" of version 1 includes.
_ATTEMPTS: Final[Mapping[str, tuple[tuple[str, tuple[Any, ...]], ...]]] = {
    "nvmlDeviceGetCurrentClocksEventReasons": (
        ("nvmlDeviceGetCurrentClocksEventReasons", ()),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", ()),
    ),
    "nvmlDeviceGetMemoryInfo": (
        ("nvmlDeviceGetMemoryInfo", (pynvml.nvmlMemory_v2,)),
        ("nvmlDeviceGetMemoryInfo", ()),
    ),
    "nvmlDeviceGetTemperature": (
        ("nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU,)),
        ("nvmlDeviceGetTemperatureV", (pynvml.NVML_TEMPERATURE_GPU,)),
    ),
}
# Errors that say the driver does not know this form of the question.
_OLD_DRIVER: Final = frozenset(
    {pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH}
)


@dataclass(frozen=True, slots=True)
class _Conversion:
    """How a column is taken from its call's answer."""

    value: Callable[[Any], float]  # the answer in the column's unit
    arguments: tuple[Any, ...] = ()  # what the call takes after the handle
    of_instance: bool = False  # a MIG instance has its own; all else is the board's


_CONVERSIONS: Final[Mapping[str, _Conversion]] = {
    "utilization_ratio": _Conversion(lambda rates: rates.gpu / 100, of_instance=True),
    "memory_copy_utilization_ratio": _Conversion(
        lambda rates: rates.memory / 100, of_instance=True
    ),
    "sm_clock_hertz": _Conversion(lambda megahertz: megahertz * 1e6, (pynvml.NVML_CLOCK_SM,)),
    "memory_clock_hertz": _Conversion(lambda megahertz: megahertz * 1e6, (pynvml.NVML_CLOCK_MEM,)),
    "power_watts": _Conversion(lambda milliwatts: milliwatts / 1e3),
    "energy_joules_total": _Conversion(lambda millijoules: millijoules / 1e3),
    "temperature_celsius": _Conversion(float),
    "framebuffer_used_bytes": _Conversion(lambda memory: float(memory.used), of_instance=True),
    "framebuffer_free_bytes": _Conversion(lambda memory: float(memory.free), of_instance=True),
    "clock_event_reasons": _Conversion(float),
}


@dataclass(slots=True)
class Reading:
    """What was read of one GPU or MIG instance."""

    values: dict[str, float] = field(default_factory=dict)  # column → value in its unit
    reasons: dict[str, str] = field(default_factory=dict)  # column → why it is NULL
    codes: set[int] = field(default_factory=set)  # NVML's error numbers met

    def leave(self, column: str, why: Unread) -> None:
        """The column stays NULL."""
        self.reasons[column] = f"n/a: {why.reason}"
        if why.code is not None:
            self.codes.add(why.code)


def read_fields(reading: Reading, ask: Ask, *, of_instance: bool) -> None:
    """Fill the columns that single calls give; a call that serves two columns is made once.

    ``ask``: makes a call on the GPU, or on the MIG instance; ``of_instance``: the columns that a
    MIG instance has of its own, else those of the board.
    """
    answers: dict[tuple[str, tuple[Any, ...]], Any] = {}
    for column in GPU_FIELDS:
        conversion = _CONVERSIONS.get(column.column)
        if conversion is None or conversion.of_instance != of_instance:
            continue
        key = (column.nvml_call, conversion.arguments)
        if key not in answers:
            answers[key] = _answer(ask, column.nvml_call, conversion.arguments)
        answer = answers[key]
        if isinstance(answer, Unread):
            reading.leave(column.column, answer)
        else:
            take(reading, column.column, conversion.value(answer))


def take(reading: Reading, column: str, value: float) -> None:
    """The value, unless it is none: a blank of the driver, or more than can be."""
    field = GPU_FIELD_BY_COLUMN[column]
    if not math.isfinite(value) or value >= BLANK_FROM:
        reading.leave(column, Unread(f"{value:g} is no value"))
    elif not column.endswith("_ratio"):
        if value > field.most:
            reading.leave(column, Unread(f"{value:.12g} is {field.why_most}"))
        else:
            reading.values[column] = value
    elif 0 <= value <= 1 + SHARE_OVER:
        reading.values[column] = min(value, 1.0)
    else:
        reading.leave(column, Unread(f"{100 * value:.12g} % is no share"))


def _answer(ask: Ask, name: str, arguments: tuple[Any, ...]) -> Any:
    """The answer of the call, or of its older form; an Unread where there is none."""
    why = Unread("")
    for attempt, with_arguments in _ATTEMPTS.get(name, ((name, arguments),)):
        try:
            return ask(attempt, with_arguments)
        except Unread as error:
            why = error
            if error.code not in _OLD_DRIVER:
                return why
    return why


def leave_all(reading: Reading, columns: Iterable[str], why: Unread) -> None:
    """None of these columns could be read."""
    for column in columns:
        reading.leave(column, why)


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
        for instance in self._last.keys() - set(instances):
            self._spare.append(self._last.pop(instance))

    def free(self) -> None:
        """Give NVML its samples back, as far as it takes them."""
        for sample in (*self._spare, *self._last.values()):
            with suppress(Unread):
                self._ask("nvmlGpmSampleFree", sample)
        self._spare, self._last = [], {}

    def shares(self, device: Any, instance: int | None) -> Any:
        """What happened since the last call, for :func:`take_gpm`; an Unread where unknown.

        ``instance``: number of the GPU instance, None = the whole GPU.
        """
        try:
            return self._between(device, instance)
        except Unread as why:
            return why

    def _between(self, device: Any, instance: int | None) -> Any:
        if self._supported is None:
            support = self._ask("nvmlGpmQueryDeviceSupport", device)
            self._supported = support.isSupportedDevice == 1
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
            metrics = self._ask("nvmlGpmMetricsGet", _question(before, after), key=key)
        except Unread as why:
            self._put_back(before, why)
            if why.hangs:
                del self._last[instance]
            raise
        self._spare.append(before)
        return metrics

    def _put_back(self, sample: Any, why: Unread) -> None:
        if not why.hangs:
            self._spare.append(sample)


def _question(before: Any, after: Any) -> Any:
    """What ``nvmlGpmMetricsGet`` is asked: the metrics between two samples."""
    question = pynvml.c_nvmlGpmMetricsGet_t()
    question.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    question.numMetrics = len(GPM_METRICS)
    question.sample1, question.sample2 = before, after
    for place, metric in enumerate(GPM_METRICS.values()):
        question.metrics[place].metricId = metric
    return question


def take_gpm(reading: Reading, answer: Any) -> None:
    """Fill the columns that GPM gives; each metric has a result of its own."""
    for place, column in enumerate(GPM_METRICS):
        metric = answer.metrics[place]
        if metric.nvmlReturn != pynvml.NVML_SUCCESS:
            reading.leave(column, of_code(metric.nvmlReturn))
        else:
            take(reading, column, metric.value / 100)
