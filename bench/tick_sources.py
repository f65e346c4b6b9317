"""Where a tick's scrapes come from: pages, a Prometheus API's answers, or tables at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
from canned_api import JOB, grown
from prometheus_client.parser import text_string_to_metric_families

from driftwatch.collect.pages.parser import PageParser
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.registry import COUNTERS, HISTOGRAMS
from driftwatch.collect.schema import SCRAPE_SCHEMA, TIME, Collected, Own
from driftwatch.model import Target, TargetKey

PAGE = Path(__file__).parents[2] / "shared/data/vllm-0.32/metrics_during_load.txt"
START = datetime(2026, 1, 4, 23, 40, tzinfo=UTC)  # a week ends soon: ISO's begin on a Monday
SCRAPE_SECONDS = 15
_VALUE = re.compile(rb"^(vllm:\S+(?:_total|_sum|_count|_bucket)\{[^}]*\}) (\S+)$", re.M)
_COUNTING = (*COUNTERS, *(f"{h}_{part}" for h in HISTOGRAMS for part in ("sum", "count")))


def instances(count: int) -> list[str]:
    return [f"host-{i}.example.internal:8000" for i in range(count)]


def scraped_at(scrape: int) -> datetime:
    return START + timedelta(seconds=SCRAPE_SECONDS * scrape)


class Tables:
    """Scrape tables as the pages would give them, without the pages."""

    def __init__(self, names: Sequence[str]) -> None:
        parsed = PageParser().parse_many([("host", START, PAGE.read_bytes())])
        self._one = parsed.frame.drop("instance")
        self._names = pl.DataFrame({"instance": sorted(names)})

    def at(self, scrape: int) -> pl.DataFrame:
        grows = [pl.col(c) * (1 + scrape / 100) for c in _COUNTING]
        buckets = [pl.col(f"{h}_buckets") * (1 + scrape / 100) for h in HISTOGRAMS]
        one = self._one.with_columns(*grows, *buckets, time=pl.lit(scraped_at(scrape), dtype=TIME))
        rows = self._names.join(one, how="cross")
        return rows.select(pl.col(c).cast(dtype) for c, dtype in SCRAPE_SCHEMA.items())


class Text:
    """Pages, parsed."""

    def __init__(self, names: Sequence[str], _: Path) -> None:
        self._names = list(names)
        self._parser = PageParser()
        self._template = PAGE.read_bytes()
        self._pages: list[tuple[datetime, bytes]] = []

    def prepare(self, names: Sequence[str], scrape: int, scrapes: int) -> dict[str, int]:
        self._names = list(names)
        self._pages = [(scraped_at(n), self._page(n)) for n in range(scrape, scrape + scrapes)]
        return {"bytes": sum(len(body) for _, body in self._pages) * len(names)}

    def _page(self, scrape: int) -> bytes:
        def moved(found: re.Match[bytes]) -> bytes:
            return found[1] + b" " + repr(grown(float(found[2]), scrape)).encode()

        return _VALUE.sub(moved, self._template)

    def collect(self, since: datetime, until: datetime) -> Collected:
        parsed = self._parser.parse_many(
            (instance, at, body) for at, body in self._pages for instance in self._names
        )
        keys = [TargetKey(instance, "0") for instance in self._names]
        targets = {key: Target(key, {"model_name": "m"}) for key in keys}
        return Collected(parsed.frame, targets, parsed.problems)

    def alternative(self) -> float:
        sample = min(len(self._names), 50)  # it is slow, and linear
        began = time.perf_counter()
        for _, body in self._pages:
            for _ in range(sample):
                for family in text_string_to_metric_families(body.decode()):
                    for _sample in family.samples:
                        pass
        return (time.perf_counter() - began) * len(self._names) / sample

    def close(self) -> None:
        """Nothing is open."""


class Json:
    """A Prometheus API's answers, fetched."""

    def __init__(self, names: Sequence[str], folder: Path, own: Own | None = None) -> None:
        self._own, self.namespaces = own, 0
        here = Path(__file__).parent / "canned_api.py"
        self._server = subprocess.Popen(
            [sys.executable, str(here), str(PAGE), str(folder)], stdout=subprocess.PIPE
        )
        assert self._server.stdout is not None
        self._url = f"http://127.0.0.1:{int(self._server.stdout.readline())}"
        self._source = PrometheusSource(
            PrometheusAsker(self._url, timeout_seconds=60.0),
            selector=JOB,
            step_seconds=SCRAPE_SECONDS,
            budget_seconds=300.0,
            name="bench",
        )

    def prepare(self, names: Sequence[str], scrape: int, scrapes: int) -> dict[str, int]:
        at = [scraped_at(n).timestamp() for n in range(scrape, scrape + scrapes)]
        asked = {
            "instances": list(names),
            "grid": [t + SCRAPE_SECONDS - 0.001 for t in at],
            "scraped_at": at,
            "scrape": scrape,
            "namespaces": self.namespaces,
        }
        return self._post("prepare", asked)

    def sent(self) -> dict[str, int]:
        """Questions that were answered so far, and the bytes of their answers."""
        return self._post("sent", {})

    def _post(self, path: str, document: object) -> dict[str, int]:
        request = urllib.request.Request(f"{self._url}/{path}", json.dumps(document).encode())
        with urllib.request.urlopen(request) as answer:
            told: dict[str, int] = json.load(answer)
        return told

    def collect(self, since: datetime, until: datetime) -> Collected:
        return self._source.collect(since, until, self._own)

    def close(self) -> None:
        self._source.close()
        self._server.terminate()
        self._server.wait()
