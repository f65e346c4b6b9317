"""The readings of dcgm-exporter for the GPUs of a simulated server, consistent with its load.

GR_ENGINE_ACTIVE is the busy share of the time between two scrapes. GPU_UTIL is the share of time in
which any kernel was resident (NVML's definition); kernels of neighbouring steps overlap its
sampling, so it saturates long before the work does: 0.98 · (1 − (1 − busy)^4), an assumption. A
busy GPU draws 0.75 of what lies between its idle power and its limit: prefill reaches the limit,
decode stays near 0.6 of it (Patel et al., "Characterizing Power Management Opportunities for LLMs
in the Cloud", ASPLOS 2024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.dcgm import SAMPLE_SCHEMA, GpuSamples
from driftwatch.collect.dcgm import Gpu as Row
from driftwatch.errors import UsageError

Floats = npt.NDArray[np.float64]

_RESIDENT_RATIO = 0.98  # GPU_UTIL of an engine that is always busy
_RESIDENT_POWER = 4
_WEDGED_RATIO = 0.96  # a kernel that spins
_POWER_OF_BUSY = 0.75
_RESTING_POWER_RATIO = 0.6  # of the idle power, once clocks have fallen
_CONTEXT_MIB = 600.0  # of a CUDA context, beside what vLLM allocates
_MEMORY_RATIO = 0.92  # that vLLM allocates, ``--gpu-memory-utilization``


# digits after the point that dcgm-exporter writes for these; others are whole numbers
_DIGITS = 6
_EXACT = ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE")


@dataclass(frozen=True, slots=True, eq=False)
class GpuLoad:
    """One GPU at each scrape."""

    micros: npt.NDArray[np.int64]  # (scrapes,) unix microseconds
    # DCGM family → (scrapes,) in its own unit, rounded as the exporter does
    values: dict[str, Floats]


def gpu_load(
    board: Board,
    epoch: datetime,
    times: Floats,
    busy_seconds: Floats,
    *,
    loaded: bool = True,
    wedged: npt.NDArray[np.bool_] | None = None,
    clock_ratio: Floats | None = None,
    idle: Floats | None = None,
) -> GpuLoad:
    """One GPU of an engine, from how long the engine's steps took.

    Args:
        epoch: wall time of second 0 of the simulation.
        times: (scrapes + 1,) seconds of the simulation: when the time of the first reading begins,
            then of each scrape, at least one.
        busy_seconds: (scrapes + 1,) in steps up to each of them.
        loaded: a server holds its memory.
        wedged: (scrapes,) the engine hangs in a kernel that spins.
        clock_ratio: (scrapes,) SM clock over the usual one (throttling).
        idle: (scrapes,) uniform draws in 0–1: where one is above the busy share, the moment of the
            reading fell between two steps. None = the boost clock stays while a context is open.
    """
    count = len(times) - 1
    hangs = np.zeros(count, dtype=np.bool_) if wedged is None else wedged
    clock = np.ones(count) if clock_ratio is None else clock_ratio
    busy = np.where(hangs, 0.0, np.clip(np.diff(busy_seconds) / np.diff(times), 0.0, 1.0))
    dynamic = board.limit_watts - board.idle_watts
    power = board.idle_watts + dynamic * _POWER_OF_BUSY * busy * clock
    resident = _RESIDENT_RATIO * (1.0 - (1.0 - busy) ** _RESIDENT_POWER)
    active = np.where(hangs, _WEDGED_RATIO, busy)
    used = (_MEMORY_RATIO if loaded else 0.0) * board.framebuffer_mib + _CONTEXT_MIB
    sm_clock = board.sm_clock_mhz * clock
    if idle is not None:
        sm_clock, power = _resting(board, (idle > resident) & ~hangs, sm_clock, power)
    values = {
        "DCGM_FI_DEV_SM_CLOCK": sm_clock,
        "DCGM_FI_DEV_POWER_USAGE": power,
        "DCGM_FI_DEV_GPU_UTIL": 100.0 * np.where(hangs, _WEDGED_RATIO, resident),
        "DCGM_FI_DEV_XID_ERRORS": np.zeros(count),
        "DCGM_FI_DEV_FB_USED": np.full(count, used),
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": active,
    }
    epoch_micros = round(epoch.astimezone(UTC).timestamp() * 1e6)
    return GpuLoad(
        epoch_micros + np.rint(times[1:] * 1e6).astype(np.int64),
        {
            name: np.round(series, _DIGITS if name in _EXACT else 0)
            for name, series in values.items()
        },
    )


def _resting(
    board: Board, between: npt.NDArray[np.bool_], sm_clock: Floats, power: Floats
) -> tuple[Floats, Floats]:
    """Clock and power; lower where a reading falls between two kernels and clocks have fallen."""
    low = np.minimum(board.idle_sm_clock_mhz, sm_clock)
    resting_watts = board.idle_watts * _RESTING_POWER_RATIO
    return np.where(between, low, sm_clock), np.where(between, resting_watts, power)


def gpu_rows(
    load: GpuLoad, uuids: Sequence[str], model_name: str, exporter: str, hostname: str
) -> pl.DataFrame:
    """The GPU table of one exporter whose GPUs are all at this load; ``uuids``: by index."""
    samples = GpuSamples()
    for index, uuid in enumerate(uuids):
        gpu = Row(exporter, hostname, str(index), uuid, model_name)
        number = samples.number(gpu)
        for name, values in load.values.items():
            columns = {"time": load.micros, "value": values}
            named = pl.DataFrame(columns).with_columns(gpu=pl.lit(number), name=pl.lit(name))
            samples.add(named.select(pl.col(c).cast(kind) for c, kind in SAMPLE_SCHEMA.items()))
    return samples.table()


@dataclass(frozen=True, slots=True)
class Board:
    """One kind of GPU board."""

    model_name: str  # dcgm-exporter's modelName
    limit_watts: float  # power limit
    idle_watts: float  # drawn while no kernel runs
    sm_clock_mhz: float  # boost clock, kept while a CUDA context is open
    framebuffer_mib: float  # all of it
    # clock while no kernel runs, if the driver lowers it (P8 of ``nvidia-smi -q -d CLOCK``: 210 on
    # Ampere and Ada boards, 345 on Hopper)
    idle_sm_clock_mhz: float = 210.0


# by the name of the simulator's table of GPUs
BOARDS: Mapping[str, Board] = {
    "A10": Board("NVIDIA A10", 150.0, 25.0, 1695.0, 23028.0),
    "A100-40GB": Board("NVIDIA A100-SXM4-40GB", 400.0, 60.0, 1410.0, 40960.0),
    "A100-80GB": Board("NVIDIA A100-SXM4-80GB", 400.0, 65.0, 1410.0, 81920.0),
    "H100-80GB": Board("NVIDIA H100 80GB HBM3", 700.0, 115.0, 1980.0, 81559.0, 345.0),
    "H100-PCIE-80GB": Board("NVIDIA H100 PCIe", 350.0, 75.0, 1755.0, 81559.0, 345.0),
    "H200-141GB": Board("NVIDIA H200", 700.0, 120.0, 1980.0, 143771.0, 345.0),
    "B200": Board("NVIDIA B200", 1000.0, 140.0, 1965.0, 183359.0, 345.0),
    "L4": Board("NVIDIA L4", 72.0, 17.0, 2040.0, 23034.0),
    "L40S": Board("NVIDIA L40S", 350.0, 40.0, 2520.0, 46068.0),
}


def board(name: str) -> Board:
    """The board of a GPU of the simulator's table.

    Raises UsageError: this table has no such board.
    """
    entry = BOARDS.get(name)
    if entry is None:
        raise UsageError(
            f"{name}: driftwatch knows no such board of dcgm-exporter",
            help_text=f"one of {', '.join(BOARDS)}",
        )
    return entry
