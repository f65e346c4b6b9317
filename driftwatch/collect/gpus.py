"""The GPU table: what DCGM and NVML sources deliver, one row per (GPU, reading).

Gauges in base units, as read; NULL is "not read", with the reason in ``reasons``, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl

TIME = pl.Datetime("us", "UTC")


@dataclass(frozen=True, slots=True)
class GpuField:
    """One quantity of a GPU."""

    column: str  # its column in the GPU table, in its base unit
    dcgm_names: tuple[str, ...]  # dcgm-exporter's names for it, the preferred one first
    factor: float  # base units per unit of dcgm-exporter (MHz → 1e6 hertz)
    meaning: str  # one line
    absent: str = ""  # why dcgm-exporter may not export it
    # more than this cannot be, in the base unit: of a share what rounding adds
    most: float = 1.01
    why_most: str = "above 100 %"  # what is wrong with more, for reasons

    @property
    def is_share(self) -> bool:
        """A share of a whole, from 0 to 1."""
        return self.column.endswith("_ratio")


_MIB = 2.0**20

# Source: dcgm-exporter's etc/default-counters.csv and NVIDIA's DCGM field identifiers; NVML's
# reference (nvml.h). Units of DCGM: MHz, W, MiB, percent (DEV_*), 0–1 (PROF_*).
# fmt: off
GPU_FIELDS: tuple[GpuField, ...] = (
    GpuField("utilization_ratio", ("DCGM_FI_DEV_GPU_UTIL",),
        0.01, "a kernel was resident; not work"),
    GpuField("engine_active_ratio", ("DCGM_FI_PROF_GR_ENGINE_ACTIVE",),
        1.0, "the graphics or compute engine was busy",
        absent="the GPU or its driver gives no profiling fields, or a profiler has paused them"),
    GpuField("sm_clock_hertz", ("DCGM_FI_DEV_SM_CLOCK",),
        1e6, "SM clock",
        most=10e9, why_most="above 10 GHz, which no GPU clock reaches"),
    GpuField("power_watts", ("DCGM_FI_DEV_POWER_USAGE",),
        1.0, "board power",
        most=5e3, why_most="above 5 kW, which no board draws"),
    GpuField("framebuffer_used_bytes", ("DCGM_FI_DEV_FB_USED",),
        _MIB, "device memory in use; vLLM allocates ahead, so it says nothing of KV pressure",
        most=2.0**42, why_most="above 4 TiB, which no GPU has"),
    GpuField("xid_code", ("DCGM_FI_DEV_XID_ERRORS",),
        1.0, "the last XID error, 0 = none; 79 = the GPU has fallen off the bus",
        absent="some exporters write it only after the first XID",
        most=9999.0, why_most="above 9999, where no XID is"),
    GpuField("clock_event_reasons",
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"),
        1.0, "bit mask of why the clocks are what they are (nvml.h, nvmlClocksEventReason*)",
        absent="it is off in dcgm-exporter's shipped list of counters",
        most=2.0**53, why_most="above 2^53, where a float holds no mask"),
)
# fmt: on
# what NVML reads of a whole GPU
NVML_FIELDS = tuple(f for f in GPU_FIELDS if f.column not in ("engine_active_ratio", "xid_code"))

# dcgm-exporter writes this and above for a field that the GPU does not support (dcgm_fields.h,
# DCGM_INT64_BLANK 0x7ffffffffffffff0 and its neighbours, as a float).
BLANK_FROM = 9.22e18

# nvml.h, nvmlClocksEventReason*
GPU_IDLE = 0x1
_CLOCK_EVENTS: Mapping[int, str] = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}

GPU_SCHEMA: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "origin": pl.String,  # "DCGM" or "NVML"
    "exporter": pl.String,  # where it was read: host:port of the exporter, "nvml:<hostname>"
    "time": TIME,
    "hostname": pl.String,  # of the machine that holds the GPU, as the origin names it
    "cluster": pl.String,  # label of that name: of the Prometheus that scraped; NULL: none
    "own_host": pl.Boolean,  # read by NVML in this process
    "gpu": pl.String,  # index on its host
    "uuid": pl.String,  # of the physical GPU
    "gpu_model": pl.String,
    "namespace": pl.String,  # of the workload; NULL: not mapped to any
    "pod": pl.String,
    "lost": pl.Boolean,  # NVML answers GPU_IS_LOST, or XID 79 without readings
    "reasons": pl.String,  # JSON, column → why it is NULL; NULL where nothing is missing
    **{field.column: pl.Float64 for field in GPU_FIELDS},
}

_EMPTY = pl.DataFrame(schema=dict(GPU_SCHEMA))


def empty_gpus() -> pl.DataFrame:
    """A GPU table without rows."""
    return _EMPTY.clone()


def gpu_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows (missing columns are NULL) → a GPU table in schema order."""
    return pl.DataFrame(list(rows), schema=dict(GPU_SCHEMA), orient="row", strict=False)


def gpus_once(frames: Sequence[pl.DataFrame], since: datetime) -> pl.DataFrame:
    """Readings of several calls from ``since`` on, each (GPU, workload, time) once, in order."""
    keys = ["exporter", "uuid", "gpu", "namespace", "pod", "time"]
    every = pl.concat([_EMPTY, *frames])
    if every.is_empty():
        return every
    every = every.filter(pl.col("time") >= since)
    return every.unique(keys, keep="first", maintain_order=True).sort(
        keys, nulls_last=False, maintain_order=True
    )


def clock_events(mask: int) -> str:
    """The reasons in a bit mask that hold the clocks down; ``none`` without one.

    An idle GPU clocks down by itself: that is no hold-down.

    >>> clock_events(0x24), clock_events(0x1), clock_events(0x200)
    ('sw_power_cap, sw_thermal_slowdown', 'none', 'unknown bits 0x200')
    """
    words = [word for bit, word in _CLOCK_EVENTS.items() if mask & bit]
    if rest := mask & ~(GPU_IDLE | sum(_CLOCK_EVENTS)):
        words.append(f"unknown bits {rest:#x}")
    return ", ".join(words) or "none"
