"""What is asked of a stretch: when it is explained, which leaf and which advice was sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from truth_judge.commands import Case
from truth_judge.facts import Episode, Finding, Stretch
from truth_judge.figures import Verdict
from truth_judge.moments import SETTLED_SECONDS, moments_of
from truth_judge.running import advice, paged

A, B = "a:8000", "b:8000"
CAP = Episode(
    "cap", 1000.0, 5000.0, instances=frozenset({B}), pages=frozenset({"Limit"}), leaf="cap_binding"
)
CASE = Case("s", "seed 1", Path("s"), 0.0, 90_000.0, (A, B), (CAP,))
NOTICE = Finding(
    "firing", "Drift", "notice", 1200.0, 1100.0, frozenset({B}), "drifted", "max_num_seqs", 8, 16
)
PAGE = Finding(
    "firing", "Limit", "page", 1600.0, 1500.0, frozenset({B}), "cap_binding", "max_num_seqs", 8, 64
)


def test_an_episode_is_explained_at_its_end() -> None:
    (moment,) = moments_of(CASE, 5, 1)
    assert (moment.instance, moment.at_seconds, moment.leaf) == (B, 5000.0, "cap_binding")
    assert moment.window_seconds == 600.0
    assert moments_of(replace(CASE, episodes=(replace(CAP, leaf=None),)), 5, 1) == []
    (short,) = moments_of(replace(CASE, episodes=(replace(CAP, end_seconds=1150.0),)), 5, 1)
    assert short.window_seconds == 150.0  # what lies before the episode is not looked at


def test_where_nothing_is_wrong_moments_are_drawn() -> None:
    drawn = moments_of(replace(CASE, episodes=()), 5, 1)
    assert len({moment.at_seconds for moment in drawn}) == 5
    assert {moment.leaf for moment in drawn} == {"healthy"}
    assert all(SETTLED_SECONDS <= moment.at_seconds <= 90_000.0 for moment in drawn)


@pytest.mark.parametrize(
    ("said", "leaf"),
    [
        ((NOTICE, PAGE), "cap_binding"),
        ((replace(PAGE, severity="ticket", leaf=None),), "no verdict"),
        ((NOTICE,), None),
        ((replace(PAGE, instances=frozenset({A})),), None),
        ((replace(PAGE, at_seconds=900.0),), None),
        ((replace(PAGE, event="resolved"),), None),
    ],
)
def test_the_leaf_that_was_sent_is_of_the_first_page_or_ticket(
    said: tuple[Finding, ...], leaf: str | None
) -> None:
    expected = [] if leaf is None else [Verdict("cap_binding", leaf, (CASE.draw, 0))]
    assert paged(CASE.stretch(said)) == expected


@pytest.mark.parametrize(
    ("kind", "full", "leaf", "right"),
    [
        ("kv_pressure", "sequences", "kv_pressure", False),  # full before, and not then
        ("kv_pressure", "sequences", "concurrency_cap_binding", True),
        ("kv_pressure", None, "kv_pressure", True),  # nothing is known of those minutes
        ("prefix_cache_collapse", "kv", "prefix_cache_collapse", True),  # what filled it
        ("prefix_cache_collapse", "kv", "token_budget_binding", False),
    ],
)
def test_a_page_is_held_against_what_was_full_in_its_own_minutes(
    kind: str, full: str | None, leaf: str, right: bool
) -> None:
    minutes = [(3600.0 + 60 * m, frozenset({full} if full else ())) for m in range(10)]
    episode = Episode(
        "limit", 3600.0, 7200.0, pages=frozenset({"Limit"}), leaf=kind, waited={A: minutes}
    )
    page = Finding("firing", "Limit", "page", 4200.0, 4000.0, frozenset({A}), leaf=leaf)
    stretch = Stretch("x", "seed 1", 0.0, 86_400.0, (A,), (episode,), (page,))
    (verdict,) = paged(stretch)
    assert (verdict.true == verdict.said) is right


def test_the_advice_that_is_carried_out_is_of_a_page_or_ticket() -> None:
    assert advice([NOTICE, PAGE], CAP) == ("max_num_seqs", 64)
    assert advice([NOTICE], CAP) is None
    assert advice([replace(PAGE, knob=None), replace(PAGE, at_seconds=1700.0, after=32)], CAP) == (
        "max_num_seqs",
        32,
    )
    assert advice([replace(PAGE, instances=frozenset({A}))], CAP) is None
