"""Series of an API, as the tests of its table give them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from fakes.prometheus_api import Series

from driftwatch.collect.schema import Collected

T0 = datetime(2026, 1, 1, tzinfo=UTC)
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


def seconds(found: Collected) -> list[float]:
    return [(at - T0).total_seconds() for at in found.scrapes["time"]]


def histogram(edges: dict[str, Sequence[float | str]], count: float, **labels: str) -> list[Series]:
    name = "vllm:time_to_first_token_seconds"
    return [
        *(series(f"{name}_bucket", v, le=le, engine="0", **labels) for le, v in edges.items()),
        series(f"{name}_sum", [1.5] * 6, engine="0", **labels),
        series(f"{name}_count", [count] * 6, engine="0", **labels),
    ]
