"""Which pages of two rule sets are the same, and what on-call's marks say of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from driftwatch.backtest.report import Marked, PastPage, compare, score_of_marks
from driftwatch.rulebook.rules import Rule

START = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)
END = START + timedelta(days=1)
RULES = [
    Rule.model_construct(id=name, alert=name, group=group, severity="page")
    for name, group in (("Drift", "limits"), ("Binding", "limits"), ("Slow", "speed"))
]


def page(rule: str, pool: str, fires: int, ends: int, began: int | None = None) -> PastPage:
    """Minutes after START."""
    began, fired, resolved = (
        START + timedelta(minutes=m) for m in (fires if began is None else began, fires, ends)
    )
    names = {"id": f"{rule}-{pool}-{fires}", "rule": rule, "alert": rule, "severity": "page"}
    where: dict[str, Any] = {"pool": pool, "where": f"{pool}:8000"}
    times = {"started_at": began, "fired_at": fired, "resolved_at": resolved}
    return PastPage.model_validate({**names, **where, **times})


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        # fires later: the same page
        ([("Slow", "a", 10, 60)], [("Slow", "a", 15, 60)], {0: 0}),
        # another pool, time or group: another page
        (
            [("Slow", "a", 10, 20), ("Slow", "b", 10, 20), ("Slow", "c", 10, 20)],
            [("Slow", "z", 10, 20), ("Slow", "b", 30, 40), ("Drift", "c", 10, 20)],
            {},
        ),
        # a rule of the same group takes its place; its own goes before, however short they overlap
        ([("Drift", "a", 10, 60)], [("Binding", "a", 12, 70)], {0: 0}),
        ([("Drift", "a", 10, 20)], [("Binding", "a", 5, 60), ("Drift", "a", 18, 60)], {0: 1}),
        # one page that became two is the earlier one, and a new one
        ([("Slow", "a", 10, 60)], [("Slow", "a", 10, 20), ("Slow", "a", 30, 60)], {0: 0}),
        # it fires when the other is over, and began while that was open
        ([("Slow", "a", 10, 20)], [("Slow", "a", 35, 60, 18)], {0: 0}),
        ([("Slow", "a", 10, 20)], [("Slow", "a", 35, 60, 25)], {}),
    ],
)
def test_which_pages_are_the_same(before: list[Any], now: list[Any], same: dict[int, int]) -> None:
    old, new = ([page(*one) for one in pages] for pages in (before, now))
    result = compare(old, new, RULES, END)
    assert result.pairs == tuple((old[i], new[k]) for i, k in same.items())
    assert result.gone == tuple(one for i, one in enumerate(old) if i not in same)
    assert result.new == tuple(one for k, one in enumerate(new) if k not in same.values())


def test_what_changed_stands_in_words() -> None:
    later = page("Binding", "a", 12, 70).model_copy(update={"leaf": "kv"})
    (one,) = compare([page("Drift", "a", 10, 60)], [later], RULES, END).listed
    assert one.changes == ("2 min later", "rule was Drift", "leaf was none")


def test_marks() -> None:
    useful, noise = page("Slow", "a", 10, 60, 2), page("Slow", "b", 10, 60)
    lost = page("Slow", "c", 10, 60)
    marks = [Marked(useful, True), Marked(noise, False), Marked(lost, True)]
    pages = [page("Slow", "a", 15, 60), noise, page("Slow", "z", 10, 60)]
    score = score_of_marks(pages, marks, [], END)
    assert (score.useful, score.not_useful, score.unjudged) == (1, 1, 1)
    assert score.missed == ("Slow c:8000 at 2026-11-16 08:10 UTC",)
    assert score.delay_median_seconds == 13 * 60
