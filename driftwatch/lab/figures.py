"""What a run gave over its steady part: one definition for every way of batching and every load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from driftwatch.arrays import Flags, Floats, Integers

_NEEDED: Mapping[float, int] = {0.5: 2, 0.99: 100}  # requests behind a quantile


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """What a run did: an entry a request, in the order of the input.

    The ratios are None where no request waits for the longest of its batch.
    """

    arrival_seconds: Floats
    first_token_seconds: Floats  # NaN where there was none
    end_seconds: Floats  # the same
    generated_tokens: Integers
    finished: Flags  # the others were rejected
    batch_efficiency_ratio: float | None = None  # Σ generated / Σ (batch × longest), 0 … 1
    prompt_padding_waste_ratio: float | None = None  # of the prompt tokens computed


@dataclass(frozen=True, slots=True)
class Figures:
    """Requests that finished in a steady part; None: too few for it (p50 needs 2, p99 100)."""

    requests: int
    seconds: float  # of the steady part
    requests_per_second: float = 0.0
    generation_tokens_per_second: float = 0.0
    ttft_seconds_p50: float | None = None
    ttft_seconds_p99: float | None = None
    itl_seconds_mean: float | None = None  # over tokens, not over requests
    e2e_seconds_mean: float | None = None
    e2e_seconds_p50: float | None = None
    e2e_seconds_p99: float | None = None


def figures(served: Served, since: float, until: float) -> Figures:
    """The figures of what finished after ``since`` and until ``until``, in seconds of the run."""
    end, seconds = served.end_seconds, max(0.0, until - since)
    inside = served.finished & (end > since) & (end <= until)
    count = int(inside.sum())
    if not count or not seconds:
        return Figures(count, seconds)
    arrival, tokens = served.arrival_seconds[inside], served.generated_tokens[inside]
    ttft, e2e = served.first_token_seconds[inside] - arrival, end[inside] - arrival
    later = tokens[tokens > 1] - 1
    itl = (e2e - ttft)[tokens > 1].sum() / later.sum() if len(later) else None
    return Figures(
        requests=count,
        seconds=seconds,
        requests_per_second=count / seconds,
        generation_tokens_per_second=float(tokens.sum()) / seconds,
        ttft_seconds_p50=_quantile(ttft, 0.5),
        ttft_seconds_p99=_quantile(ttft, 0.99),
        itl_seconds_mean=None if itl is None else float(itl),
        e2e_seconds_mean=float(e2e.mean()),
        e2e_seconds_p50=_quantile(e2e, 0.5),
        e2e_seconds_p99=_quantile(e2e, 0.99),
    )


def _quantile(values: Floats, q: float) -> float | None:
    return float(np.quantile(values, q)) if len(values) >= _NEEDED[q] else None
