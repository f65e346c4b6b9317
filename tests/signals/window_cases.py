"""Histories for the tests of windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

COUNTER, GAUGE = "generation_tokens_total", "running_requests"


def _steady(n: int, every: float = 15.0) -> Iterator[dict[str, Any]]:
    for i in range(n):
        yield {"t": i * every, COUNTER: 100.0 * i, GAUGE: float(i % 3)}
