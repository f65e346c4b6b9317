"""pynvml without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pynvml
import pytest
from fakes.manual_clock import ManualClock
from nvml_cases import NOW, StandIn

from driftwatch.collect.nvml import NvmlSource


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    made = StandIn()
    for name, function in made.functions().items():
        monkeypatch.setattr(pynvml, name, function)
    yield made
    for event in made.hangs.values():
        event.set()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def source(stand_in: StandIn, clock: ManualClock) -> Iterator[NvmlSource]:
    made = NvmlSource(clock, hostname="gpu-host")
    yield made
    made.close()
