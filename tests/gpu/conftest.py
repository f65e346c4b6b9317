"""The checks of tests/nvml that hold for any GPU, against NVIDIA's own library."""

from __future__ import annotations

import ctypes

import pynvml
import pytest


@pytest.fixture(scope="session", autouse=True)
def driver() -> None:
    """Skips where there is no driver, or none that can be used."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
        pynvml.nvmlInit()
    except (OSError, pynvml.NVMLError):
        pytest.skip("no NVIDIA driver on this machine")
    pynvml.nvmlShutdown()
