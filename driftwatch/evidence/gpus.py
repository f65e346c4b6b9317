"""The target's GPUs, as DCGM or NVML read them."""

from __future__ import annotations

from driftwatch.evidence.schema import NO_REFERENCE, Column, column

_NO_GPU = "no DCGM or NVML reading of the target's GPUs"
_NO_COUNT = "gpus_per_replica not declared, and no GPU joined to the target"


def _gpu(name: str, unit: str, meaning: str, *alias: str) -> Column:
    """A mean over the target's GPUs, of what DCGM or NVML read in the window."""
    return column(
        name, unit, meaning, "DCGM", "NVML", off=_NO_GPU, alias=alias, needs=("gpu_reading",)
    )


GPUS: tuple[Column, ...] = (
    column(
        "gpu_count",
        "GPUs",
        "GPUs of this engine; a GPU that pods share counts by their shares",
        "DCGM",
        "NVML",
        off=_NO_COUNT,
        alias=("gpus_per_replica",),
        needs=("gpu_count",),
    ),
    column(
        "gpu_count_source",
        "1",
        "where the GPU count came from, and what contradicts it",
        "DCGM",
        "NVML",
        off=_NO_COUNT,
        dtype="string",
        needs=("gpu_count",),
    ),
    _gpu(
        "gpu_utilization_ratio",
        "1",
        "a kernel was resident; not work. Under MIG the share of time its engine was busy",
        "SM utilization",
        "GPU_UTIL",
    ),
    _gpu("gpu_tensor_active_ratio", "1", "tensor pipe active", "tensor cores"),
    _gpu("gpu_dram_active_ratio", "1", "memory interface active", "memory bandwidth"),
    _gpu("gpu_power_watts", "watts", "board power, mean of the target's GPUs", "power draw"),
    _gpu(
        "gpu_sm_clock_hertz",
        "hertz",
        "SM clock while the GPUs were busy: each minute's highest, mean of the target's GPUs",
        "throttling",
    ),
    column(
        "gpu_sm_clock_ratio",
        "1",
        "SM clock over the reference, both while the GPUs were busy",
        "DCGM",
        "NVML",
        off=NO_REFERENCE,
        needs=("baseline", "gpu_reading"),
    ),
    column(
        "gpu_clock_event_reasons",
        "1",
        "why the clocks are held down, in NVML's words",
        "DCGM",
        "NVML",
        off="clock events not collected",
        alias=("throttle reasons",),
        dtype="string",
        needs=("gpu_reading",),
    ),
    column(
        "gpus_lost",
        "GPUs",
        "GPUs of the target that fell off the bus (NVML GPU_IS_LOST, XID 79)",
        "DCGM",
        "NVML",
        off=_NO_GPU,
        alias=("XID 79", "GPU_IS_LOST"),
        needs=("gpu_reading",),
    ),
)
