"""Distances of lengths by bucket: those of scipy, on real requests."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.stats import wasserstein_distance

from driftwatch.fleet.server import request_tokens
from driftwatch.notify.shares import LengthShares, shares

EDGES = [*map(float, request_tokens(8192)), math.inf]


def _blocks(shared_data: Path) -> list[np.ndarray]:
    """Prompt lengths of both Azure traces, 500 consecutive requests each."""
    return [
        block
        for name in ("conv", "code")
        for block in np.array_split(
            pl.read_csv(shared_data / "traces" / f"azure_2023_{name}.csv.gz")["ContextTokens"]
            .clip(1, 8000)
            .to_numpy()[:4000],
            8,
        )
    ]


def _shares(before: np.ndarray, now: np.ndarray) -> LengthShares:
    counts = [[float((side <= edge).sum()) for edge in EDGES] for side in (before, now)]
    names = ("reference_prompt_tokens_buckets", "prompt_tokens_buckets")
    of = dict(zip(names, counts, strict=True))
    edges = {name.replace("buckets", "edges"): EDGES for name in names}
    found = shares({**of, **edges}, "prompt_tokens")
    assert found is not None
    return found


def test_distances_are_those_of_scipy(shared_data: Path) -> None:
    off = []
    for before, now in pairwise(_blocks(shared_data)):
        found = _shares(before, now)
        expected = jensenshannon(found.baseline_share, found.share, base=2)
        assert found.js_distance == pytest.approx(expected, abs=1e-9)
        exact = wasserstein_distance(np.log(before), np.log(now))
        off.append(abs(math.log(found.w1_ratio) - exact))
    assert np.median(off) < 0.03  # of lengths that are known by their bucket alone
