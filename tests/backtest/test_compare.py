"""Which pages of two rule sets are the same."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from past_page_cases import END, page

from driftwatch.backtest.compare import Comparison, compare
from driftwatch.backtest.pages import PastPage
from driftwatch.condition import parse_condition
from driftwatch.rulebook.rules import Rule

RULES = [
    Rule(name, name, group, "page", parse_condition("slower_at_equal_load"))
    for name, group in (("Drift", "limits"), ("Binding", "limits"), ("Slow", "speed"))
]


def matched(before: Sequence[PastPage], now: Sequence[PastPage]) -> Comparison:
    return compare(before, now, RULES, END)


def test_a_page_that_fires_later_is_the_same_page() -> None:
    result = matched([page("Slow", "a", 10, 60)], [page("Slow", "a", 15, 60)])
    (pair,) = result.pairs
    assert (result.dropped, result.new) == ((), ())
    assert result.moved == (pair,)
    assert pair.changes == ("5 min later",)


def test_another_pool_time_or_group_is_another_page() -> None:
    before = [page("Slow", "a", 10, 20), page("Slow", "b", 10, 20), page("Slow", "c", 10, 20)]
    now = [page("Slow", "z", 10, 20), page("Slow", "b", 30, 40), page("Drift", "c", 10, 20)]
    result = matched(before, now)
    assert (len(result.dropped), len(result.new), result.pairs) == (3, 3, ())


def test_a_rule_of_the_same_group_takes_its_place() -> None:
    result = matched([page("Drift", "a", 10, 60)], [page("Binding", "a", 12, 70, leaf="kv")])
    assert result.pairs[0].changes == ("2 min later", "rule was Drift", "leaf was none")


def test_the_same_rule_goes_before_another_of_its_group() -> None:
    before = [page("Drift", "a", 10, 60), page("Binding", "a", 11, 60)]
    result = matched(before, before[::-1])
    assert all(pair.before == pair.now for pair in result.pairs)
    assert len(result.pairs) == 2


def test_one_page_that_became_two_is_one_and_a_new_one() -> None:
    now = [page("Slow", "a", 10, 20), page("Slow", "a", 30, 60)]
    result = matched([page("Slow", "a", 10, 60)], now)
    assert [pair.now for pair in result.pairs] == [now[1]]  # the longer one
    assert result.new == (now[0],)


@pytest.mark.parametrize(("began", "same"), [(18, True), (25, False)])
def test_what_began_before_the_other_ended_is_the_same(began: int, same: bool) -> None:
    # `for` of 15 minutes more: it fires when the other page is over, and began while it was open
    later = page("Slow", "a", 35, 60, began=began)
    assert bool(matched([page("Slow", "a", 10, 20)], [later]).pairs) is same


def test_the_same_rule_comes_before_one_of_its_group_that_overlaps_longer() -> None:
    before = [page("Drift", "a", 10, 20)]
    result = matched(before, [page("Binding", "a", 5, 60), page("Drift", "a", 18, 60)])
    assert [pair.now.rule for pair in result.pairs] == ["Drift"]
