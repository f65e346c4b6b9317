"""What doctor asks of a source beside the last five minutes: as much as a tick asks, timed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from driftwatch.clock import ManualClock, SystemClock
from driftwatch.doctor.sources import read_sources
from driftwatch.settings import load_settings
from driftwatch.testing import prometheus_server
from driftwatch.testing.exposition_server import ReplayedExposition
from driftwatch.testing.prometheus_api import PrometheusApi
from driftwatch.testing.prometheus_server import PrometheusServer


@pytest.mark.parametrize("second", [1, 16, 29, 31, 59])
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


@pytest.mark.prometheus
@pytest.mark.skipif(not prometheus_server.installed(), reason=prometheus_server.NOT_INSTALLED)
def test_who_is_listed_now_is_known_beside_who_was_scraped(
    tmp_path: Path, shared_data: Path
) -> None:
    page = (shared_data / "vllm-0.32/metrics_during_load.txt").read_text()
    with (
        ReplayedExposition([(0.0, page)], clock=lambda: 0.0) as stays,
        ReplayedExposition([(0.0, page)], clock=lambda: 0.0) as leaves,
    ):
        both = [stays.instance, leaves.instance]
        discovery = tmp_path / "targets.json"
        discovery.write_text(json.dumps([{"targets": both}]))
        files = {"files": [str(discovery)], "refresh_interval": "1s"}
        job = {"job_name": "vllm", "scrape_interval": "1s", "file_sd_configs": [files]}
        config = tmp_path / "driftwatch.yaml"
        with PrometheusServer({"scrape_configs": [job]}) as server:
            _until(lambda: len(server.query("count_over_time(up[1m]) > 2")) == 2)
            discovery.write_text(json.dumps([{"targets": both[:1]}]))
            _until(lambda: len(server.query("up")) == 1)
            config.write_text(
                f"interval: 15s\nsources: [{{prometheus: '{server.url}', step: 1s}}]\n"
            )
            read = read_sources(load_settings(config, environ={}), SystemClock())
    (source,) = [source for source in read.sources if source.kind == "prometheus"]
    assert source.problems == ()
    assert source.instances == set(both)
    assert source.listed == {stays.instance}


def _until(is_so: Callable[[], bool]) -> None:
    for _ in range(300):
        if is_so():
            return
        time.sleep(0.1)
    raise AssertionError("it never came about")
