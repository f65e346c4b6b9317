"""Selectors, the query plan and the grid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.collect.prometheus.query import MAX_POINTS, grid, matchers, queries, select
from driftwatch.collect.registry import BY_COLUMN, REGISTRY
from driftwatch.errors import UsageError

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def test_values_are_escaped_never_pasted() -> None:
    assert matchers({"a": 'x",job="y'}) == 'a="x\\",job=\\"y"'
    assert matchers({"a": "back\\slash", "b": "two\nlines"}) == 'a="back\\\\slash",b="two\\nlines"'
    assert matchers({}) == ""


@pytest.mark.parametrize("name", ["", "1a", 'a="b",c', "__name__"])
def test_a_name_that_is_no_label(name: str) -> None:
    with pytest.raises(UsageError, match="is not a label that targets can be selected by"):
        matchers({name: "x"})


def test_a_value_that_is_no_text() -> None:
    with pytest.raises(UsageError, match="not valid text"):
        matchers({"a": "\ud800"})


def test_selectors() -> None:
    assert select(("up",), "") == "up"
    assert select(("up",), 'job="v"') == 'up{job="v"}'
    assert select(("a:b", "c"), "") == '{__name__=~"a:b|c"}'
    assert select(("a:b", "c"), 'job="v"') == '{__name__=~"a:b|c",job="v"}'


def test_every_column_of_the_registry_is_fed_by_one_query() -> None:
    plan = queries({"job": "v"})
    fed = [column for query in plan for column in query.columns]
    assert sorted(fed) == sorted(BY_COLUMN)
    assert all('job="v"' in query.text for query in plan)
    # one query a wire name: two columns of one family share it
    assert len(plan) == len({metric.wire_name for metric in REGISTRY})


def test_the_grid_is_half_open_and_reaches_the_end() -> None:
    times = grid(T0, T0 + timedelta(seconds=60), 15)
    assert times is not None
    start = round(T0.timestamp() * 1000)
    assert (times.first, times.last, times.step) == (start + 14_999, start + 59_999, 15_000)
    assert times.points == 4
    assert grid(T0, T0, 15) is None
    assert grid(T0, T0 - timedelta(seconds=1), 15) is None


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**9), st.integers(1, 10**5), st.integers(1, 10**4), st.integers(1, MAX_POINTS)
)
def test_chunks_are_the_grid_no_time_twice(
    offset: int, length: int, step_ms: int, points: int
) -> None:
    since = T0 + timedelta(microseconds=offset)
    until = since + timedelta(milliseconds=length)
    times = grid(since, until, step_ms / 1000)
    assert times is not None
    assert since.timestamp() * 1000 <= times.first + 0.001
    assert times.last < until.timestamp() * 1000 + 0.001
    assert times.first - times.step < since.timestamp() * 1000 + 0.001
    points = max(points, times.points // 100)  # at most about a hundred chunks
    chunks = list(times.chunks(points))
    assert sum(chunk.points for chunk in chunks) == times.points
    assert max(chunk.points for chunk in chunks) <= points
    assert chunks[0].first == times.first
    assert chunks[-1].last == times.last
    for before, after in pairwise(chunks):
        assert after.first == before.last + times.step


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**15), st.integers(1, 60))
def test_neighbouring_intervals_share_no_time(offset: int, seconds: int) -> None:
    since = T0 + timedelta(microseconds=offset)
    middle = since + timedelta(seconds=seconds)
    one, two = grid(since, middle, 1), grid(middle, middle + timedelta(seconds=seconds), 1)
    assert one is not None
    assert two is not None
    assert one.last < two.first
    assert two.first - one.last == 1000
