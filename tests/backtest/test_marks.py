"""Pages against what on-call marked."""

from __future__ import annotations

from datetime import timedelta

from past_page_cases import END, page

from driftwatch.backtest.marks import Marked, score_of_marks, useful_lost


def test_marks() -> None:
    useful, noise = page("Slow", "a", 10, 60, began=2), page("Slow", "b", 10, 60)
    lost = page("Slow", "c", 10, 60)
    marks = [Marked(useful, True), Marked(noise, False), Marked(lost, True)]
    pages = [page("Slow", "a", 15, 60), page("Slow", "b", 10, 60), page("Slow", "z", 10, 60)]
    score = score_of_marks(pages, marks, [], END)
    assert (score.useful, score.noise, score.unjudged) == ((pages[0],), (pages[1],), (pages[2],))
    assert score.missed == ("Slow c:8000 at 2026-11-16 08:10 UTC",)
    assert score.delays == (timedelta(minutes=13),)
    assert list(useful_lost([lost, noise], marks, [], END)) == [lost]
