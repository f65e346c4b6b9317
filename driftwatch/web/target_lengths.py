"""Lengths of requests now, over the baseline's, and what moved in a sentence. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from driftwatch.model import Finding
from driftwatch.notify.numbers import count, is_as_before, times, tokens
from driftwatch.notify.shares import Shares, shares


@dataclass(frozen=True, slots=True)
class LengthShares:
    """How long requests are, over the baseline."""

    length: str  # prompt_tokens or generation_tokens
    text: str  # what moved, in a sentence
    edges_tokens: tuple[float | None, ...]  # upper edges; None = no upper edge
    share: tuple[float, ...]  # of requests in each cell, of 10 min
    baseline_share: tuple[float, ...] | None


STEMS = {"prompt_tokens": "Prompts", "generation_tokens": "Generations"}


def length_shares(finding: Finding) -> Iterator[LengthShares]:
    """Each length whose histogram is known."""
    for stem in STEMS:
        both = shares(finding.histograms, stem)
        alone = _cells(finding.histograms, stem) if both is None else None
        if both is None and alone is None:
            continue
        edges, now = alone or (both.edges, both.now)  # type: ignore[union-attr]
        yield LengthShares(
            length=stem,
            text=_text(finding, stem, both),
            edges_tokens=tuple(None if edge == inf else edge for edge in edges),
            share=now,
            baseline_share=None if both is None else both.before,
        )


_Cells = tuple[tuple[float, ...], tuple[float, ...]]


def _cells(histograms: Mapping[str, Sequence[float]], stem: str) -> _Cells | None:
    """Edges and shares of the window alone."""
    counts, edges = (histograms.get(f"{stem}_{part}") or () for part in ("buckets", "edges"))
    if len(edges) < 3 or len(counts) != len(edges) or not counts[-1]:
        return None
    now = tuple((b - a) / counts[-1] for a, b in pairwise([0.0, *counts]))
    return tuple(edges), now


def _text(finding: Finding, stem: str, both: Shares | None) -> str:
    """``Prompts ×2.3 longer than in the baseline: mean 512 → 1,200 tokens, n 87,000``."""
    who, now = STEMS[stem], finding.evidence.get(f"{stem}_mean")
    before = (finding.reference or {}).get("values", {}).get(f"{stem}_mean")
    if now is None:
        return f"{who}: mean unknown"
    if both is None or before is None:
        return f"{who}: mean {tokens(now)} tokens; no baseline to compare with"
    n = f"n {count(both.n_now)}"
    if is_as_before(now / before):
        return f"{who} as long as in the baseline: mean {tokens(now)} tokens, {n}"
    word = "longer than" if now > before else "as long as"
    moved = f"mean {tokens(before)} → {tokens(now)} tokens, {n}"
    return f"{who} {times(now / before)} {word} in the baseline: {moved}"
