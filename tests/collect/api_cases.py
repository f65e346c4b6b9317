"""Series of an API of vLLM servers, collected by minutes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fakes.prometheus_api import PrometheusApi, Series

from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import Collected

T0 = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
JOB = {"job": "vllm"}


def series(
    name: str, values: Sequence[float | str], *, first: float = 0, every: float = 10, **labels: str
) -> Series:
    """Scrapes of job ``vllm`` on ``a:1`` every 10 s; a series that ends is marked stale."""
    start = T0.timestamp() + first
    points = [(start + i * every, str(v)) for i, v in enumerate(values)]
    return Series({"__name__": name, "instance": "a:1", **JOB, **labels}, points, every)


UP = series("up", [1] * 6)
RUNNING = series("vllm:num_requests_running", range(6), engine="0", model_name="m")


def server(instance: str, first: int = 0, scrapes: int = 6, **labels: str) -> list[Series]:
    """An engine that is scraped every 10 s, from the ``first`` scrape on."""
    common = {"instance": instance, **labels}
    own = {"engine": "0", "model_name": "m", **common}
    length = "vllm:request_prompt_tokens"
    values: dict[str, tuple[float, dict[str, str]]] = {
        "up": (1, common),
        "vllm:num_requests_running": (3, own),
        f"{length}_bucket": (5, {"le": "+Inf", **own}),
        f"{length}_sum": (5, own),
        f"{length}_count": (5, own),
    }
    return [
        series(name, [value] * scrapes, first=10 * first, **more)
        for name, (value, more) in values.items()
    ]


def source_of(api: PrometheusApi, **options: Any) -> PrometheusSource:
    asker = PrometheusAsker(api.address, timeout_seconds=options.pop("timeout_seconds", 5))
    return PrometheusSource(asker, selector=options.pop("selector", JOB), **options)


def collected(api: PrometheusApi, **options: Any) -> Collected:
    """The first minute."""
    source = source_of(api, **options)
    found = source.collect(T0, T0 + MINUTE)
    source.close()
    return found


def collect(*held: Series, **options: Any) -> Collected:
    """The first minute of these series."""
    with PrometheusApi(held) as api:
        return collected(api, **options)


def minutes(held: Sequence[Series], count: int = 2) -> list[Collected]:
    """Minute after minute of these series."""
    with PrometheusApi(held) as api:
        source = source_of(api)
        found = [source.collect(T0 + i * MINUTE, T0 + (i + 1) * MINUTE) for i in range(count)]
        source.close()
    return found


def seconds(found: Collected) -> list[float]:
    return [(at - T0).total_seconds() for at in found.scrapes["time"]]


def names(found: Collected) -> set[str]:
    return {key.instance for key in found.targets}
