"""Where a tick's scrapes come from: a Prometheus API's answers, or tables at once."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
from canned_api import JOB

from driftwatch.collect.pages import PageParser
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.registry import BUCKETED, COUNTERS, HISTOGRAMS
from driftwatch.collect.schema import SCRAPE_SCHEMA, TIME, Collected

PAGE = Path(__file__).parents[2] / "shared/data/vllm-0.32/metrics_during_load.txt"
START = datetime(2026, 1, 4, 23, 40, tzinfo=UTC)  # a week ends soon: ISO's begin on a Monday
SCRAPE_SECONDS = 15
_COUNTING = (*COUNTERS, *(f"{h}_{part}" for h in HISTOGRAMS for part in ("sum", "count")))


def instances(count: int) -> list[str]:
    return [f"host-{i}.example.internal:8000" for i in range(count)]


def scraped_at(scrape: int) -> datetime:
    return START + timedelta(seconds=SCRAPE_SECONDS * scrape)


class Tables:
    """Scrape tables as the pages would give them, without the pages."""

    def __init__(self, names: Sequence[str]) -> None:
        parsed = PageParser().parse_many([("host", START, PAGE.read_bytes())])
        self._one = parsed.scrapes.drop("instance")
        self._names = pl.DataFrame({"instance": sorted(names)})

    def at(self, scrape: int) -> pl.DataFrame:
        grows = [pl.col(c) * (1 + scrape / 100) for c in _COUNTING]
        buckets = [pl.col(f"{h}_buckets") * (1 + scrape / 100) for h in BUCKETED]
        one = self._one.with_columns(*grows, *buckets, time=pl.lit(scraped_at(scrape), dtype=TIME))
        rows = self._names.join(one, how="cross")
        return rows.select(pl.col(c).cast(dtype) for c, dtype in SCRAPE_SCHEMA.items())


class Json:
    """A Prometheus API's answers, fetched."""

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        here = Path(__file__).parent / "canned_api.py"
        self._server = subprocess.Popen(
            [sys.executable, str(here), str(PAGE), str(folder)], stdout=subprocess.PIPE
        )
        assert self._server.stdout is not None
        self._url = f"http://127.0.0.1:{int(self._server.stdout.readline())}"
        self._source = PrometheusSource(
            PrometheusAsker(self._url, timeout_seconds=60.0),
            selector=JOB,
            budget_seconds=300.0,
            name="bench",
        )

    def prepare(self, names: Sequence[str], scrape: int, scrapes: int) -> dict[str, int]:
        at = [scraped_at(n).timestamp() for n in range(scrape, scrape + scrapes)]
        asked = {
            "instances": list(names),
            "scraped_at": at,
            "scrape": scrape,
        }
        request = urllib.request.Request(f"{self._url}/prepare", json.dumps(asked).encode())
        with urllib.request.urlopen(request) as answer:
            told: dict[str, int] = json.load(answer)
        return told

    def collect(self, since: datetime, until: datetime) -> Collected:
        return self._source.collect(since, until)

    def close(self) -> None:
        self._source.close()
        self._server.terminate()
        self._server.wait()
