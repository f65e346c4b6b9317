"""Minutes of an engine whose law is known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from driftwatch.signals.minutes import MINUTE_SCHEMA

TRUE = (7e-3, 6e-5, 2e-9, 3e-5)


def made(
    speed: np.ndarray, requests: np.ndarray, seed: int = 2, instance: str = "host:8000"
) -> pl.DataFrame:
    """Minutes of an engine that follows a law exactly, times 1 / speed."""
    rng = np.random.default_rng(seed)
    count = len(speed)
    usage = requests * 700.0 / 400_000.0
    prefill = requests * rng.uniform(4.0, 8.0, count)
    itl = (TRUE[0] + TRUE[1] * requests + TRUE[2] * usage * 400_000 + TRUE[3] * prefill) / speed
    passes = 60.0 / itl  # it never rests
    start = datetime(2026, 11, 16, 8, 1, tzinfo=UTC)
    rows = {
        "instance": [instance] * count,
        "engine": ["0"] * count,
        "pool": ["chat"] * count,
        "end": [start + k * timedelta(minutes=1) for k in range(count)],
        "scrapes": np.full(count, 2.0),
        "duration_seconds": np.full(count, 60.0),
        "forward_passes": passes,
        "itl_seconds_sum": requests * passes * itl,
        "itl_seconds_count": requests * passes,
        "ttft_seconds_count": np.zeros(count),
        "prompt_tokens_computed_total": prefill * passes,
        "kv_cache_usage_ratio": usage,
        "kv_cache_tokens": np.full(count, 400_000.0),
    }
    return pl.DataFrame(rows).select(
        pl.col(name).cast(dtype) if name in rows else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in MINUTE_SCHEMA.items()
    )
