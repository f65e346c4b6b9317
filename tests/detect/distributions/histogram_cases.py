"""Histograms of real requests, and of whatever hypothesis likes, for tests of the statistics."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from hypothesis import strategies as st

from driftwatch.simulate.vllm_buckets import request_tokens

Floats = npt.NDArray[np.float64]
EDGES = np.array([*request_tokens(8192), np.inf])


@cache
def azure_lengths(shared_data: Path, name: str, column: str) -> Floats:
    """Lengths of every request of an Azure trace, 1 to 8,000 tokens, in order of arrival."""
    frame = pl.read_csv(shared_data / "traces" / f"azure_2023_{name}.csv.gz")
    return frame[column].clip(1, 8000).to_numpy().astype(float)


def binned(values: Floats, edges: Floats = EDGES) -> Floats:
    """One row of counts by cell."""
    found = np.bincount(np.searchsorted(edges, values), minlength=len(edges))
    return found[None, :].astype(float)


def counts(cells: int = len(EDGES)) -> st.SearchStrategy[Floats]:
    """A row of counts that holds something."""
    return (
        st.lists(st.integers(0, 5000), min_size=cells, max_size=cells)
        .filter(any)
        .map(lambda row: np.array([row], dtype=float))
    )


def drawn_layouts() -> st.SearchStrategy[Floats]:
    """Upper edges in tokens, ``inf`` last."""
    return st.lists(st.integers(1, 200_000), min_size=2, max_size=25, unique=True).map(
        lambda edges: np.array([*sorted(edges), np.inf], dtype=float)
    )
