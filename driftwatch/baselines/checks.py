"""What no baseline can have, whoever wrote the file: a load model or lengths that no server shows.

A wrong number does not fail, it silences: a model that divides by 0 finds nobody slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf, isfinite

from driftwatch.detect.speed.load_model import LoadModel

# Seconds a step, or a step's part of one request or token, may take: an engine has 120 s to answer.
_LONGEST_SECONDS = 120.0
# Counts of stored minutes are rounded: cumulative ones may fall by so much.
_ROUNDED = 0.01
_KINDS = ("pin", "baseline")


def wrong_with_model(model: LoadModel) -> list[str]:
    """What is impossible of a load model, in words; nothing of one that may be."""
    problems = []
    if max(model.coefficients) > _LONGEST_SECONDS:
        problems.append(
            f"coefficients: at most {_LONGEST_SECONDS:g} s each, not {model.coefficients}"
        )
    if model.requests_range[0] > model.requests_range[1]:
        problems.append("requests_range: its end is below its beginning")
    if not 1.0 <= model.work_ratio < inf:
        problems.append(f"work_ratio: at least 1, not {model.work_ratio:g}")
    return problems


def wrong_with_reference(row: Mapping[str, object]) -> list[str]:
    """What is impossible of a reference row, in words.

    ``row``: of :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`, as it was read.
    """
    problems = []
    if row.get("kind") not in _KINDS:
        problems.append(f"kind: pin is wanted, not {row.get('kind')!r:.40}")
    for name, value in row.items():
        if isinstance(value, int | float) and (not isfinite(value) or value < 0):
            problems.append(f"{name}: at least 0, not {value:g}")
        if name == "reference_prompt_tokens_mean" and value == 0:
            problems.append(f"{name}: above 0")
        if isinstance(value, list) and name.endswith("_buckets"):
            edges = row.get(name.removesuffix("_buckets") + "_edges")
            problems += _wrong_cells(name, value, edges if isinstance(edges, list) else [])
    return problems


def _wrong_cells(name: str, counts: Sequence[float], edges: Sequence[float]) -> list[str]:
    problems = []
    if len(counts) != len(edges):
        problems.append(f"{name}: {len(counts)} counts for {len(edges)} edges")
    if any(late <= early for early, late in pairwise(edges)) or (edges and edges[-1] != inf):
        problems.append(f"{name.removesuffix('_buckets')}_edges: rising ones up to +Inf are wanted")
    falls = any(late < early * (1 - _ROUNDED) for early, late in pairwise(counts))
    if falls or any(one < 0 for one in counts):
        problems.append(f"{name}: cumulative counts do not fall")
    return problems
