"""What doctor asks of a source beside the last five minutes: as much as a tick asks, timed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes.prometheus_api import PrometheusApi

from driftwatch.clock import ManualClock
from driftwatch.doctor.sources import read_sources
from driftwatch.settings import load_settings


@pytest.mark.parametrize("second", [1, 29])
def test_gpus_of_an_api_are_asked_for_twice_whatever_the_time(tmp_path: Path, second: int) -> None:
    """Half-minute readings: the last 15 s often hold none, and no question takes no time."""
    clock = ManualClock(datetime(2026, 1, 1, 12, 0, second, tzinfo=UTC))
    config = tmp_path / "driftwatch.yaml"
    with PrometheusApi([]) as api:
        config.write_text(f"interval: 15s\nsources: [{{prometheus: '{api.address}'}}]\n")
        read = read_sources(load_settings(config, environ={}), clock)
        queries = [one.get("query", "") for one in api.queries]
    utilization = [text for text in queries if "DCGM_FI_DEV_GPU_UTIL" in text]
    assert len(utilization) == 2
    (gpus,) = [source for source in read.sources if source.kind == "dcgm"]
    assert gpus.asked_seconds is not None and gpus.asked_seconds > 0
