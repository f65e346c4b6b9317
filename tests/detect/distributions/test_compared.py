"""Columns of histograms, as evidence rows carry them: groups of layouts, NULLs, words."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from histogram_cases import EDGES, Floats, azure_lengths, binned

from driftwatch.detect.distributions import STATISTICS, compared, js_and_w1
from driftwatch.simulate.vllm_buckets import request_tokens

LONGER = np.array([*request_tokens(131_072), np.inf])


def lists(rows: list[Floats | list[float] | None]) -> pl.Series:
    plain = [None if row is None else [float(x) for x in row] for row in rows]
    return pl.Series(plain, dtype=pl.List(pl.Float64))


def cumulative(values: Floats, edges: Floats = EDGES) -> Floats:
    return np.asarray(np.cumsum(binned(values, edges)[0]))


def test_every_row_is_compared_in_its_own_layout(shared_data: Path) -> None:
    conv = azure_lengths(shared_data, "conv", "ContextTokens")
    code = azure_lengths(shared_data, "code", "ContextTokens")
    layouts = [EDGES, LONGER, EDGES, LONGER, EDGES]
    of = [EDGES, EDGES, LONGER, LONGER, EDGES]
    sides = [code[i * 500 : (i + 1) * 500] for i in range(5)]
    found = compared(
        lists([cumulative(s, e) for s, e in zip(sides, layouts, strict=True)]),
        lists(list(layouts)),
        lists([cumulative(conv, e) for e in of]),
        lists(list(of)),
    )
    assert found.columns == list(STATISTICS)
    assert found.null_count().sum_horizontal()[0] == 0
    for row, side in enumerate(sides):
        expected = js_and_w1(binned(side), binned(conv), EDGES)[0][0]
        # in rows 1 and 2 the layouts differ above 5k tokens, where next to nothing lies
        assert found["js_distance"][row] == pytest.approx(expected, rel=0.05)
        assert found["w1_ratio"][row] > 1


def test_what_cannot_be_compared_is_null_and_nothing_else_is() -> None:
    ones = np.cumsum(np.ones(len(EDGES)))
    many = 10 * ones
    inf = float("inf")
    coarse = [1.0, inf]
    rows: list[tuple[object, object, object, object]] = [
        (many, EDGES, many, EDGES),
        (None, EDGES, many, EDGES),
        (many, EDGES, None, None),
        (many, EDGES[:-2], many, EDGES),  # counts without their edges
        (ones, EDGES, many, EDGES),  # 13 observations
        (0 * ones, EDGES, many, EDGES),
        (many[::-1], EDGES, many, EDGES),  # falls
        ([100.0, 120.0], coarse, [100.0, 120.0], coarse),  # a single edge, the same on both sides
        ([120.0], [inf], [120.0], [inf]),  # how many, and nothing of where
        ([100.0, 120.0], coarse, many, EDGES),
        (many[:3], EDGES[:3], many[:3], EDGES[:3]),  # no +Inf
        ([1e3, 2e3, 3e3], [5.0, 2.0, inf], [1e3, 2e3, 3e3], [5.0, 2.0, inf]),  # edges that fall
        ([50.0, 200.0, 300.0], [0.0, 2.0, inf], [0.0, 200.0, 300.0], [0.0, 2.0, inf]),
    ]
    found = compared(*(lists(list(column)) for column in zip(*rows, strict=True)), at_least=100)  # type: ignore[arg-type]
    known = found["js_distance"].is_not_null().to_list()
    assert [row for row, is_known in enumerate(known) if is_known] == [0, 7, 12]
    for name in STATISTICS:
        assert found[name].is_not_null().to_list() == known, name
    empty = compared(*(lists([]) for _ in range(4)))
    assert empty.schema == pl.Schema({**STATISTICS})


@pytest.mark.parametrize("module", ["distributions"])
def test_the_examples_in_docstrings_hold(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"driftwatch.detect.{module}"))
    assert found.failed == 0
    assert found.attempted > 0
