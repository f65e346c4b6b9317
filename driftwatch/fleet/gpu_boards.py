"""Boards as dcgm-exporter tells of them: power, clocks, what they are called.

Power limits and boost clocks are those of NVIDIA's datasheets and of ``nvidia-smi -q`` on such
boards; idle power (a CUDA context open, nothing running) differs by tens of watts between boards
of one kind and stands here for its order of magnitude.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driftwatch.errors import UsageError


@dataclass(frozen=True, slots=True)
class Board:
    """One kind of GPU board."""

    model_name: str  # dcgm-exporter's modelName
    limit_watts: float  # power limit
    idle_watts: float  # drawn while no kernel runs
    sm_clock_mhz: float  # boost clock, kept while a CUDA context is open
    memory_clock_mhz: float  # memory clock
    framebuffer_mib: float  # FB_USED + FB_FREE + FB_RESERVED
    reserved_mib: float  # FB_RESERVED
    # where the driver lets the clocks fall while no kernel runs (P8 of ``nvidia-smi -q -d CLOCK``:
    # 210 on Ampere and Ada boards, 345 on Hopper)
    idle_sm_clock_mhz: float = 210.0


# by the name of the simulator's table of GPUs
BOARDS: Mapping[str, Board] = {
    "A10": Board("NVIDIA A10", 150.0, 25.0, 1695.0, 6251.0, 23028.0, 511.0),
    "A100-40GB": Board("NVIDIA A100-SXM4-40GB", 400.0, 60.0, 1410.0, 1215.0, 40960.0, 448.0),
    "A100-80GB": Board("NVIDIA A100-SXM4-80GB", 400.0, 65.0, 1410.0, 1593.0, 81920.0, 604.0),
    "H100-80GB": Board(
        "NVIDIA H100 80GB HBM3", 700.0, 115.0, 1980.0, 2619.0, 81559.0, 473.0, 345.0
    ),
    "H100-PCIE-80GB": Board("NVIDIA H100 PCIe", 350.0, 75.0, 1755.0, 1593.0, 81559.0, 473.0, 345.0),
    "H200-141GB": Board("NVIDIA H200", 700.0, 120.0, 1980.0, 3201.0, 143771.0, 600.0, 345.0),
    "B200": Board("NVIDIA B200", 1000.0, 140.0, 1965.0, 3996.0, 183359.0, 726.0, 345.0),
    "L4": Board("NVIDIA L4", 72.0, 17.0, 2040.0, 6251.0, 23034.0, 484.0),
    "L40S": Board("NVIDIA L40S", 350.0, 40.0, 2520.0, 9001.0, 46068.0, 597.0),
}


def board(name: str) -> Board:
    """The board of a GPU of the simulator's table.

    Raises:
        UsageError: dcgm-exporter's pages of it are not known here.
    """
    found = BOARDS.get(name)
    if found is None:
        raise UsageError(
            f"{name}: no board of dcgm-exporter is known for it",
            help_text=f"one of {', '.join(BOARDS)}",
        )
    return found
