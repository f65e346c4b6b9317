"""An API of one server, collected for a minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fakes.prometheus_api import PrometheusApi, Series

from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import Collected

T0 = datetime(2026, 1, 1, tzinfo=UTC)
JOB = {"job": "vllm"}
MINUTE = timedelta(seconds=60)


def series(name: str, first: float = 0.0) -> Series:
    points = [(T0.timestamp() + 10 * i, str(first + i)) for i in range(12)]
    if name == "up":
        points = [(at, "1") for at, _ in points]
    return Series({"__name__": name, "instance": "a:1", "engine": "0", **JOB}, points, 10)


def source_of(api: PrometheusApi, **options: float) -> PrometheusSource:
    asker = PrometheusAsker(api.address, timeout_seconds=options.pop("timeout_seconds", 5))
    return PrometheusSource(asker, selector=JOB, **options)


def collected(api: PrometheusApi, **options: float) -> Collected:
    source = source_of(api, **options)
    found = source.collect(T0, T0 + MINUTE)
    source.close()
    return found
