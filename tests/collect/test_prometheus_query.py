"""Selectors and what is asked."""

from __future__ import annotations

import pytest

from driftwatch.collect.prometheus.query import matchers, questions, select
from driftwatch.collect.registry import BY_COLUMN
from driftwatch.errors import UsageError


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


def test_every_column_of_the_registry_is_fed_by_one_question() -> None:
    fed = [column for question in questions() for column in question.columns]
    assert sorted(fed) == sorted(BY_COLUMN)
