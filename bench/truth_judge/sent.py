"""What a server was really sent in a window, from its own counters: requests and their lengths.

The judge's own reading: of the counters of finished requests (``prompt_tokens``,
``generation_tokens``: sum and count), summed over the intervals between scrapes, a counter that
begins at 0 again counted from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

_STEMS = ("prompt_tokens", "generation_tokens")
_COLUMNS = [f"{stem}_{part}" for stem in _STEMS for part in ("sum", "count")]

# The leaves' own words (rules/trees): lengths ×1.5 or ×0.67 have moved, and a third of the requests
# is a drop. Within a tenth of a length's edge, and between a third and a half of the requests, two
# honest readers may differ: nobody is asked there.
MOVED_UP, MOVED_DOWN, NEAR = 1.5, 0.67, 1.1
DROPPED, USUAL = 1 / 3, 0.5


@dataclass(frozen=True, slots=True)
class Sent:
    """Finished requests of a server in a window."""

    requests: float
    per_second: float
    prompt_tokens: float
    generation_tokens: float


def lengths_of(folder: Path) -> pl.DataFrame:
    """The needed columns of a compact recording's scrapes."""
    parts = sorted(folder.glob("*.scrapes.parquet"))
    return pl.concat(
        pl.read_parquet(part, columns=["instance", "time", "ok", *_COLUMNS]) for part in parts
    ).sort("instance", "time")


def sent(scrapes: pl.DataFrame, instance: str, window: tuple[float, float]) -> Sent | None:
    """What was sent to a server; None where no request finished."""
    at = pl.col("time").dt.epoch("us") / 1e6
    rows = scrapes.filter(pl.col("ok") & (pl.col("instance") == instance) & at.is_between(*window))
    if len(rows) < 2:
        return None
    grown = rows.select(
        pl.when(pl.col(c).diff() < 0).then(pl.col(c)).otherwise(pl.col(c).diff()).sum().alias(c)
        for c in _COLUMNS
    ).row(0, named=True)
    count, answered = grown["prompt_tokens_count"], grown["generation_tokens_count"]
    if not count or not answered:
        return None
    return Sent(
        count,
        count / (window[1] - window[0]),
        grown["prompt_tokens_sum"] / count,
        grown["generation_tokens_sum"] / answered,
    )


def leaf_of_traffic(now: Sent, before: Sent) -> str | None:
    """Where a diagnosis of undisturbed traffic should end; None too near to an edge."""
    lengths = [
        _ratio(now.prompt_tokens, before.prompt_tokens),
        _ratio(now.generation_tokens, before.generation_tokens),
    ]
    rate = now.per_second / before.per_second
    if any(1 / NEAR < ratio / edge < NEAR for ratio in lengths for edge in (MOVED_UP, MOVED_DOWN)):
        return None
    if any(ratio > MOVED_UP or ratio < MOVED_DOWN for ratio in lengths):
        return "drifted_within_limits"
    if DROPPED < rate < USUAL:
        return None
    return "request_rate_drop" if rate <= DROPPED else "healthy"


def _ratio(now: float, before: float) -> float:
    """Of mean lengths; one that generates nothing (embeddings, prefill) has not moved."""
    if before:
        return now / before
    return 1.0 if not now else float("inf")
