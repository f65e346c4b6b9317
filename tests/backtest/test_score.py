"""Pages against truth files and against what on-call marked."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from past_page_cases import END, START, page

from driftwatch.backtest.score import (
    Marked,
    Truth,
    read_truth,
    score_of_marks,
    score_of_truth,
    useful_lost,
)
from driftwatch.errors import UsageError
from driftwatch.fleet.scenario.file import scenario_named
from driftwatch.fleet.truth import truth_of

SLOW = {
    "what": "a is 20 % slower",
    "start_seconds": START.timestamp(),
    "end_seconds": START.timestamp() + 3600,
    "grace_seconds": 600,
    "instances": ["a:8000"],
    "pages": ["Slow", "Replica"],
}


def truth(*effects: object) -> Truth:
    return Truth.model_validate({"effects": effects})


def test_right_wrong_missed_and_late() -> None:
    pages = [page("Slow", "a", 12, 60), page("Slow", "b", 12, 60), page("Slow", "a", 80, 90)]
    hang = {**SLOW, "what": "c hangs", "instances": ["c:8000"], "pages": ["Stuck"]}
    score = score_of_truth(pages, truth(SLOW, hang), ("page", "ticket"))
    assert score.right == (pages[0],)
    assert score.wrong == (pages[1], pages[2])  # the last one is after the grace
    assert score.missed == ("c hangs",)
    assert score.median_delay == timedelta(minutes=12)


def test_another_rule_in_an_episode_is_not_judged() -> None:
    pages = [page("Batch", "a", 12, 60), page("Slow", "a", 20, 60)]
    score = score_of_truth(pages, truth(SLOW), ("page",))
    assert (score.unjudged, score.right, score.wrong) == ((pages[0],), (pages[1],), ())


def test_where_nobody_must_be_told_every_page_is_wrong() -> None:
    quiet = {**SLOW, "pages": []}
    score = score_of_truth([page("Slow", "a", 12, 60)], truth(quiet), ("page",))
    assert (len(score.wrong), score.missed) == (1, ())


def test_a_ticket_is_due_only_where_tickets_are_counted() -> None:
    ticket = {**SLOW, "pages": [], "tickets": ["Retune"]}
    assert score_of_truth([], truth(ticket), ("page", "ticket")).missed == ("a is 20 % slower",)
    assert score_of_truth([], truth(ticket), ("page",)).missed == ()


def test_the_truth_of_a_scenario_is_read(tmp_path: Path) -> None:
    document = truth_of(scenario_named("slower-20"), 1)
    (tmp_path / "truth.json").write_text(json.dumps(document))
    read = read_truth(tmp_path)
    assert read == read_truth(tmp_path / "truth.json")
    (effect,) = (one for one in read.effects if one.pages)
    assert "SlowerAtEqualLoad" in effect.pages
    assert effect.grace_seconds > 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no truth file: "),
        ("{}", "no truth file: effects: Field required"),
        ('{"effects": [{"start_seconds": "now"}]}', "no truth file: effects.0.start_seconds: "),
    ],
)
def test_what_is_no_truth_file(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "truth.json"
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        read_truth(file)
    assert error.value.message.startswith(f"{file}: {why}")
    assert "effects" in (error.value.help_text or "")


def test_marks() -> None:
    useful, noise = page("Slow", "a", 10, 60, began=2), page("Slow", "b", 10, 60)
    lost = page("Slow", "c", 10, 60)
    marks = [Marked(useful, True), Marked(noise, False), Marked(lost, True)]
    pages = [page("Slow", "a", 15, 60), page("Slow", "b", 10, 60), page("Slow", "z", 10, 60)]
    score = score_of_marks(pages, marks, [], END)
    assert (score.right, score.wrong, score.unjudged) == ((pages[0],), (pages[1],), (pages[2],))
    assert score.missed == ("Slow c:8000 at 2026-11-16 08:10 UTC",)
    assert score.delays == (timedelta(minutes=13),)
    assert list(useful_lost([lost, noise], marks, [], END)) == [lost]


def test_what_happened_outside_of_the_span_is_not_missed() -> None:
    day = timedelta(days=1).total_seconds()
    before = {**SLOW, "what": "before"}
    during = {**SLOW, "what": "during", "start_seconds": START.timestamp() + day - 60,
              "end_seconds": START.timestamp() + day + 60}  # fmt: skip
    after = {**SLOW, "what": "after", "start_seconds": START.timestamp() + 3 * day,
             "end_seconds": START.timestamp() + 3 * day + 60}  # fmt: skip
    span = (START + timedelta(days=1), START + timedelta(days=2))
    within = truth(before, during, after).within(span)
    assert score_of_truth([], within, ("page",)).missed == ("during",)
