"""What a Prometheus API would answer for a synthetic fleet, as bytes, without a server.

The bodies are prepared before the clock starts; :class:`CannedApi` hands them to the session in
place of its HTTP adapter, so that everything above the socket (reading, JSON, checks, tables)
runs as in production.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qs

import orjson
import requests
from prometheus_client.parser import text_string_to_metric_families
from requests.adapters import HTTPAdapter

from driftwatch.collect.prometheus_query import matchers, queries, select

JOB = {"job": "vllm"}


class CannedApi(HTTPAdapter):
    """Answers the queries of a source with ``selector=JOB``, one prepared interval at a time.

    Args:
        page: a real ``/metrics`` page; the fleet's series are its series.
        instances: every one of them serves that page.
        value: (the page's value, scrape number) → the value at that scrape, for counters.
    """

    def __init__(
        self, page: str, instances: Sequence[str], value: Callable[[float, int], float]
    ) -> None:
        super().__init__()
        self._value = value
        self._bodies: dict[str, bytes] = {}
        self._served: list[str] = []
        samples = [
            sample for family in text_string_to_metric_families(page) for sample in family.samples
        ]
        up = select(("up",), matchers(JOB))
        self.up, self.timestamp = up, f"timestamp({up})"
        self._heads: dict[str, list[tuple[list[bytes], float | None, bool]]] = {
            up: [(_heads({"__name__": "up"}, instances), None, False)],
            self.timestamp: [(_heads({}, instances), None, False)],
        }
        for query in queries(JOB):
            ours = [s for s in samples if s.name in query.ranks]
            # the API sorts series by their labels
            ours.sort(key=lambda s: (s.name, sorted(s.labels.items())))
            self._heads[query.text] = [
                (
                    _heads({"__name__": s.name, **s.labels}, instances),
                    float(s.value),
                    s.name.endswith(("_total", "_sum", "_count", "_bucket")),
                )
                for s in ours
            ]

    @property
    def bodies(self) -> list[bytes]:
        """The answers of the prepared interval, as they are served."""
        return list(self._bodies.values())

    @property
    def series(self) -> int:
        """How many series all the answers together have."""
        return sum(len(heads) for found in self._heads.values() for heads, _, _ in found)

    def prepare(self, grid: Sequence[float], scraped_at: Sequence[float], scrape: int) -> None:
        """The next interval: grid times, when the scrapes were, number of the first one."""

        def values(texts: Sequence[str]) -> bytes:
            points = zip(grid, texts, strict=True)
            listed = ",".join(f'[{at:.3f},"{text}"]' for at, text in points)
            return f',"values":[{listed}]}}'.encode()

        for text, found in self._heads.items():
            parts: list[bytes] = []
            for heads, start, grows in found:
                if text == self.timestamp:
                    tail = values([f"{at:.3f}" for at in scraped_at])
                elif start is None:
                    tail = values(["1"] * len(grid))
                else:
                    at = [self._value(start, scrape + i) if grows else start for i in _n(grid)]
                    tail = values([repr(v).removesuffix(".0") for v in at])
                parts.extend(head + tail for head in heads)
            self._bodies[text] = (
                b'{"status":"success","data":{"resultType":"matrix","result":['
                + b",".join(parts)
                + b"]}}"
            )
        self._served.clear()

    def send(self, request: requests.PreparedRequest, **_: Any) -> requests.Response:
        """One query's answer; asking twice for the same would not be a steady tick."""
        (text,) = parse_qs(str(request.body))["query"]
        assert text not in self._served, text
        self._served.append(text)
        response = requests.Response()
        response.status_code = 200
        response.headers["Content-Length"] = str(len(self._bodies[text]))
        response.raw = io.BytesIO(self._bodies[text])
        response.url = str(request.url)
        response.request = request
        return response


def _n(grid: Sequence[float]) -> range:
    return range(len(grid))


def _heads(labels: dict[str, str], instances: Sequence[str]) -> list[bytes]:
    return [
        b'{"metric":' + orjson.dumps({**labels, **JOB, "instance": i}, option=orjson.OPT_SORT_KEYS)
        for i in sorted(instances)
    ]
