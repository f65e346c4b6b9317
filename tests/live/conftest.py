from __future__ import annotations

import time
from pathlib import Path

import pytest
from fakes import prometheus_server
from fakes.exposition_server import read_pages
from fakes.prometheus_server import backfill


@pytest.fixture(scope="session")
def real_prometheus() -> None:
    """Skips where Debian's Prometheus is not on the machine."""
    if not prometheus_server.installed():
        pytest.skip(prometheus_server.NOT_INSTALLED)


@pytest.fixture
def blocks(shared_data: Path, real_prometheus: None, tmp_path: Path) -> Path:
    """A past that ends now, 12.5 minutes into run_cap: requests have queued for four minutes, its
    page has just fired, and the traffic has gone back.
    """
    pages = read_pages(shared_data / "vllm-0.32/run_cap/scrapes.jsonl.gz")
    until = pages[0][0] + 12.5 * 60
    shift = time.time() - 20 - until
    moved = [(at + shift, body) for at, body in pages if at <= until]
    backfill(moved, {"job": "vllm", "instance": "gpu-7:8000"}, tmp_path / "blocks")
    return tmp_path / "blocks"
