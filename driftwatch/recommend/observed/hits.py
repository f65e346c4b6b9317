"""Prefix hits: how many of a prompt's tokens a server found cached, as its counters tell."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from driftwatch.recommend.observed.clean import Clean, Floats

Integers = npt.NDArray[np.int64]


def whole_hit_ratio(stretch: Clean) -> float | None:
    """Prefix hits over queries of the whole stretch; None = unknown."""
    queries, hits = _queries_and_hits(stretch)
    known = ~(np.isnan(queries) | np.isnan(hits))
    asked = float(queries[known].sum())
    return float(hits[known].sum()) / asked if asked > 0 else None


def _queries_and_hits(stretch: Clean) -> tuple[Floats, Floats]:
    queries = stretch.column("prefix_cache_queries_total")
    hits = stretch.column("prefix_cache_hits_total")
    if not np.isnan(queries).all():
        return queries, hits
    # what was not computed had been cached
    prompts = stretch.column("prompt_tokens_total")
    return prompts, prompts - stretch.column("prompt_tokens_computed_total")


def hit_ratios(stretch: Clean) -> tuple[Floats, str | None]:
    """The hit ratio of each row, the stretch's where a row has none; 0 where it is unknown."""
    whole = whole_hit_ratio(stretch)
    if whole is None:
        return np.zeros(len(stretch.rows)), "prefix hits: not on the page, taken as none"
    queries, hits = _queries_and_hits(stretch)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(queries > 0, hits / queries, whole)
    note = None
    if whole > 0:
        note = "which request hit the prefix cache: each hits its minute's ratio"
    return np.clip(np.where(np.isnan(ratio), whole, ratio), 0.0, 1.0), note


def cached_tokens(
    prompt: Integers, ratio: Floats, block: int, rng: np.random.Generator
) -> Integers:
    """Cached tokens of each prompt in whole blocks; hits over queries is the ratio on average."""
    blocks = prompt * ratio / block
    drawn = np.floor(blocks + rng.random(len(prompt))).astype(np.int64)
    found: Integers = np.minimum(drawn, (prompt - 1) // block) * block
    return found
