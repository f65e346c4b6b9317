"""What a condition can be: by logic, and by the ranges of columns, which recorded servers keep."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline_cases import KEY, evidence, grid, recording, serving

from driftwatch.condition import parse_condition
from driftwatch.detect.reference import baseline_of_minutes
from driftwatch.evidence import BY_NAME
from driftwatch.rulebook.truths import possible
from driftwatch.signals.minutes import minutes

A, B, BIT, WORD = "waiting_requests", "running_requests", "slo_missed", "binding_limit"


@pytest.mark.parametrize(
    ("text", "can_hold", "can_fail"),
    [
        (f"{A} > 3 AND NOT {A} > 2", False, True),
        (f"{A} > 3 OR {A} <= 3", True, False),
        (f"{A} < 0", False, True),
        (f"{A} > {B} AND {B} >= {A}", False, True),
        (f"{A} + {B} > 3 AND {A} < 1", True, True),
        (f"{A} > 2 * {B} AND {A} < 3", True, True),
        (f"{WORD} = 'kv_cache' AND {WORD} IN ('none', 'deferred')", False, True),
        (f"({BIT} = true) <> ({BIT} OR {A} > 3) AND {A} < 3", False, True),
        (f"({A} > 3) IS NULL AND {A} IS NOT NULL", False, True),
        (" AND ".join(f"{A} * {n} > {n}" for n in range(14)), True, True),  # too many to try
    ],
)
def test_what_comparisons_allow_together(text: str, can_hold: bool, can_fail: bool) -> None:
    predicate = parse_condition(text).predicate
    assert (possible((predicate, True)), possible((predicate, False))) == (can_hold, can_fail)


COMPARISONS = st.one_of(
    st.tuples(
        st.sampled_from([A, B, "3", f"({A} + 1)"]),
        st.sampled_from(["<", "<=", "=", "<>", ">=", ">"]),
        st.sampled_from([B, "2", "3.5", "-1", f"{A} * 2"]),
    ).map(" ".join),
    st.sampled_from([BIT, f"{BIT} = false", f"{A} IS NULL", f"{A} BETWEEN 1 AND 3"]),
    st.sampled_from([f"{WORD} IN ('none', 'kv_cache')", f"{WORD} <> 'none'", f"{A} NOT IN (2, 3)"]),
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        inner.map(lambda one: f"NOT ({one})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda c: f"({' '.join(c)})"),
    ),
    max_leaves=5,
)
NUMBERS = (None, 0.0, 1.0, 2.0, 3.0, 3.25, 5.0, 9.0)
WORDS = (None, "none", "kv_cache", "deferred")
ROWS = pl.DataFrame(
    list(product(NUMBERS, NUMBERS[::2], (None, True, False), WORDS)),
    schema={A: pl.Float64, B: pl.Float64, BIT: pl.Boolean, WORD: pl.String},
    orient="row",
)


@given(text=CONDITIONS)
def test_what_a_row_shows_is_possible(text: str) -> None:
    condition = parse_condition(text)
    seen = ROWS.select(condition.expression.alias("truth"))["truth"].unique().to_list()
    for truth in (True, False):
        assert truth not in seen or possible((condition.predicate, truth))


SETTINGS = {
    "max_num_seqs": 64.0,
    "max_num_batched_tokens": 2048.0,
    "slo_ttft_seconds": 0.5,
    "slo_tpot_seconds": 0.05,
}


def test_every_recorded_value_lies_in_its_range(shared_data: Path) -> None:
    frame = recording(shared_data / "vllm-0.32" / "run_cap")
    asked = grid(frame)
    settings = serving(frame, **SETTINGS)
    before = asked.slice(0, len(asked) // 3)
    before = before.group_by(KEY).agg(pl.col("start").min(), pl.col("end").max())
    before_it = evidence(frame, before.select(asked.columns), settings)
    reference = baseline_of_minutes(minutes(before_it))
    rows = evidence(frame, asked, settings, reference=reference)
    compared = 0
    for name in rows.columns:
        column = BY_NAME.get(name)
        values = rows[name].drop_nulls() if column is not None else pl.Series()
        if column is None or values.is_empty():
            continue
        if column.dtype == "float":
            values = values.cast(pl.Float64)
            values = values.filter(values.is_finite())
            low = -math.inf if column.low is None else column.low
            high = math.inf if column.high is None else column.high
            outside = values.filter((values < low) | (values > high))
            assert outside.is_empty(), (name, outside.to_list())
            compared += column.low is not None
        elif column.words:
            assert set(values) <= set(column.words), name
    assert compared > 40
