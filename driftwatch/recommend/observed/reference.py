"""Today's arrivals with the lengths of the reference: what the server was sized for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from driftwatch.recommend.observed.traffic import Observed
from driftwatch.simulate.requests import NO_GROUP, Requests
from driftwatch.simulate.workload.histograms import LengthHistogram, sample_lengths

Integers = npt.NDArray[np.int64]
_NEXT_EDGE = 2.5
_NAMES = ("prompt_tokens", "generation_tokens")


def reference_requests(
    observed: Observed, reference: Mapping[str, Any], *, seed: int = 0
) -> Requests | None:
    """The requests of a window with the lengths of the reference.

    Where the reference has a histogram, lengths are drawn from it, with its mean; where it has a
    mean alone (``tuned_for``), today's lengths are scaled to it; what it does not have stays as it
    is today. Those that were there at the start, half done, are left out. Prefix hits keep their
    share of the prompt.

    Args:
        observed: the window.
        reference: ``reference_*`` columns; ``reference_prompt_tokens_buckets`` are cumulative
            counts by ``reference_prompt_tokens_edges``, +Inf last.
        seed: of what is drawn.

    Returns:
        None where the reference has no length at all.
    """
    arrived = observed.requests.take(slice(observed.carried_requests, None))
    if not len(arrived):
        return None
    rng = np.random.default_rng([seed, 1])
    found: dict[str, Integers] = {}
    for name in _NAMES:
        today: Integers = getattr(arrived, name)
        lengths = _lengths(reference, name, today, rng)
        if lengths is not None:
            found[name] = lengths
    if not found:
        return None
    prompt = found.get("prompt_tokens", arrived.prompt_tokens)
    given = arrived.cached_tokens >= 0
    share = np.where(given, arrived.cached_tokens, 0) / arrived.prompt_tokens
    cached = np.minimum(np.rint(prompt * share).astype(np.int64), prompt - 1)
    shared = np.minimum(arrived.shared_prefix_tokens, prompt)
    return replace(
        arrived,
        prompt_tokens=prompt,
        generation_tokens=found.get("generation_tokens", arrived.generation_tokens),
        cached_tokens=np.where(given, cached, arrived.cached_tokens),
        shared_prefix_tokens=np.where(arrived.prefix_group == NO_GROUP, 0, shared),
    )


def _lengths(
    reference: Mapping[str, Any], name: str, today: Integers, rng: np.random.Generator
) -> Integers | None:
    """As many lengths of the reference as there are today; None where it has none."""
    mean = reference.get(f"reference_{name}_mean")
    shape = _histogram(reference, name, mean)
    if shape is not None:
        # above the last edge: the next one of vLLM's 1-2-5 series, or what is seen today
        edge = _NEXT_EDGE * shape.edges[-1] if len(shape.edges) else 1.0
        longest = int(max(edge, today.max(), mean or 1))
        return np.maximum(sample_lengths(shape, len(today), rng, longest=longest), 1)
    if mean is None or not mean > 0:
        return None
    scaled = today * (float(mean) / float(today.mean()))
    return np.maximum(np.floor(scaled + rng.random(len(today))).astype(np.int64), 1)


def _histogram(
    reference: Mapping[str, Any], name: str, mean: float | None
) -> LengthHistogram | None:
    buckets = reference.get(f"reference_{name}_buckets")
    edges = reference.get(f"reference_{name}_edges")
    if buckets is None or edges is None or mean is None or len(buckets) != len(edges):
        return None
    counts = np.rint(np.diff(np.asarray(list(buckets), dtype=np.float64), prepend=0.0))
    whole = np.maximum(counts, 0).astype(np.int64)
    if not whole.sum():
        return None
    finite = np.asarray(list(edges)[:-1], dtype=np.float64)
    return LengthHistogram(finite, whole, float(mean) * float(whole.sum()))
