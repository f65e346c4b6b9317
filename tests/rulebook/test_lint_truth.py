"""What a condition is claimed to be never, or always, it is on no row, or on every one."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from driftwatch.condition import parse_condition
from driftwatch.evidence import BY_NAME
from driftwatch.rulebook.lint_ranges import Box, Interval
from driftwatch.rulebook.lint_truth import boxes_where, can_be_unknown, rows_of

SHARE, COUNT, ANY = "kv_cache_usage_ratio", "waiting_requests", "speed_slope_14d_ratio"
WORD, FREE, BOOL = "binding_limit", "speed_calibration", "slo_missed"
NUMBERS = (SHARE, COUNT, ANY)
COLUMNS = (*NUMBERS, WORD, FREE, BOOL)
DTYPES = {"float": pl.Float64, "bool": pl.Boolean, "string": pl.String}

literals = st.sampled_from(["0", "0.1", "0.3", "0.5", "1", "2", "3", "90", "1e-3", "-1", "-0.5"])
operands = st.recursive(
    st.sampled_from(NUMBERS) | literals,
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    ),
    max_leaves=4,
)
comparisons = st.one_of(
    st.tuples(operands, st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), operands).map(" ".join),
    st.tuples(operands, st.sampled_from(["", "NOT "]), operands, operands).map(
        lambda p: f"{p[0]} {p[1]}BETWEEN {p[2]} AND {p[3]}"
    ),
    st.tuples(operands, st.sampled_from(["", "NOT "]), literals, literals).map(
        lambda p: f"{p[0]} {p[1]}IN ({p[2]}, {p[3]})"
    ),
    st.tuples(st.sampled_from(COLUMNS), st.sampled_from(["", "NOT "])).map(
        lambda p: f"{p[0]} IS {p[1]}NULL"
    ),
    st.tuples(
        st.sampled_from((WORD, FREE)),
        st.sampled_from(("=", "<>")),
        st.sampled_from(("kv_cache", "none", "kvcache", "own")),
    ).map(lambda p: f"{p[0]} {p[1]} '{p[2]}'"),
    st.just(f"{WORD} IN ('kv_cache', 'nothing')"),
    st.sampled_from((BOOL, f"{BOOL} = TRUE", f"{BOOL} <> FALSE", "TRUE", "FALSE")),
    operands.map(lambda one: f"({one} > 1) IS NULL"),
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from((" AND ", " OR ")), inner).map(
            lambda p: f"({p[0]}{p[1]}{p[2]})"
        ),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=6,
)
positive = st.sampled_from([0.0, 1e-3, 0.1, 0.3, 0.5, 0.99, 1.0, 2.0, 3.0, 90.0, 1e9])
rows = st.fixed_dictionaries(
    {
        SHARE: st.none() | positive.filter(lambda x: x <= 1) | st.floats(0, 1),
        COUNT: st.none() | positive | st.floats(0, 1e300),
        ANY: st.none() | positive | positive.map(lambda x: -x) | st.floats(-1e300, 1e300),
        WORD: st.none() | st.sampled_from(BY_NAME[WORD].words),
        FREE: st.none() | st.sampled_from(("own", "pool", "kvcache")),
        BOOL: st.none() | st.booleans(),
    }
)


def holds(row: dict[str, Any], box: Box) -> bool:
    """Whether the box holds the row."""
    for name, domain in box.items():
        value = row[name]
        if value is None:
            inside = domain.may_be_null
        elif isinstance(domain.values, Interval):
            inside = domain.values.low <= value <= domain.values.high
        else:
            only, without = domain.values.only, domain.values.without
            inside = (only is None or value in only) and value not in without
        if not inside:
            return False
    return True


@settings(max_examples=400, deadline=None)
@given(conditions, st.lists(rows, min_size=1, max_size=12), st.sampled_from(((), (SHARE, BOOL))))
@example(f"({COUNT} * 2 > {COUNT}) OR {SHARE} >= 0", [dict.fromkeys(COLUMNS)], ())
def test_no_row_contradicts_a_claim(
    text: str, some: list[dict[str, Any]], lenient: tuple[str, ...]
) -> None:
    condition = parse_condition(text, false_when_unknown=lenient)
    schema = {name: DTYPES[BY_NAME[name].dtype] for name in COLUMNS}
    answers = pl.DataFrame(some, schema=schema).select(condition.expression).to_series().to_list()
    every = [rows_of(condition.columns)]
    for row, answer in zip(some, answers, strict=True):
        if answer is None:
            assert can_be_unknown(condition, every), row
        else:
            boxes = boxes_where(condition, answer, every)
            assert any(holds(row, box) for box in boxes), row


NEVER = [
    "kv_cache_usage_ratio > 90",
    "waiting_requests > 5 AND waiting_requests < 3",
    "binding_limit = 'kvcache'",
    "binding_limit IN ('kvcache', 'KV')",
    "NOT kv_cache_usage_ratio <= 1",
    "kv_cache_usage_ratio * 100 > 120",
    "1 - kv_cache_usage_ratio < 0",
    "waiting_requests + running_requests < 0",
    "waiting_requests < running_requests AND running_requests < 3 AND waiting_requests > 4",
    "kv_cache_usage_ratio BETWEEN 0.9 AND 0.8",
    "slo_missed AND NOT slo_missed",
    "slo_missed IS NULL AND slo_missed",
    "(waiting_requests > 5 OR slo_missed) AND waiting_requests < 3 AND NOT slo_missed",
    "waiting_requests = 3 AND waiting_requests <> 3",
    "running_requests > 3 * waiting_requests AND running_requests < 6 AND waiting_requests >= 2",
    "binding_limit = 'none' AND binding_limit = 'deferred'",
]
ALWAYS = [
    "kv_cache_usage_ratio >= 0",
    "kv_cache_usage_ratio < 80",
    "waiting_requests > 5 OR waiting_requests <= 5",
    "binding_limit <> 'kvcache'",
    "waiting_requests IS NULL OR waiting_requests >= 0",
    "kv_cache_usage_ratio * 100 <= 100",
]
NEITHER = [
    "kv_cache_usage_ratio > 0.9",
    "speed_slope_14d_ratio < -0.03",
    "waiting_requests - running_requests < 0",
    "running_requests / waiting_requests < 0.5",
    "speed_calibration = 'whatever'",
    "waiting_requests <> 0",
]


def outcome(text: str) -> tuple[bool, bool]:
    condition = parse_condition(text)
    every = [rows_of(condition.columns)]
    return bool(boxes_where(condition, True, every)), bool(boxes_where(condition, False, every))


@pytest.mark.parametrize("text", NEVER)
def test_never(text: str) -> None:
    assert outcome(text) == (False, True)


@pytest.mark.parametrize("text", ALWAYS)
def test_always(text: str) -> None:
    assert outcome(text) == (True, False)


@pytest.mark.parametrize("text", NEITHER)
def test_neither(text: str) -> None:
    assert outcome(text) == (True, True)


def test_many_alternatives_are_no_claim() -> None:
    text = " AND ".join(f"waiting_requests <> {n}" for n in range(9))
    text += " AND (running_requests <> 1 OR finished_requests <> 2)"
    assert outcome(text) == (True, True)
    assert BY_NAME["waiting_requests"].high is None
