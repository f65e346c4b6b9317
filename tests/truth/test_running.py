"""What is asked of a stretch: when it is explained, which leaf and which advice was sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import truth
from truth_judge.commands import Case
from truth_judge.facts import Episode, Finding, Stretch
from truth_judge.figures import Verdict
from truth_judge.moments import SETTLED_SECONDS, moments_of
from truth_judge.running import Ran, advice, paged
from truth_judge.sets import Draw, detection_draws

A, B = "a:8000", "b:8000"
CAP = Episode(
    "cap", 1000.0, 5000.0, instances=frozenset({B}), pages=frozenset({"Limit"}), leaf="cap_binding"
)
CASE = Case("s", "seed 1", Path("s"), 0.0, 90_000.0, (A, B), (CAP,))
NOTICE = Finding("firing", "Drift", "notice", 1200.0, 1100.0, B, "drifted", "max_num_seqs", 8, 16)
PAGE = Finding("firing", "Limit", "page", 1600.0, 1500.0, B, "cap_binding", "max_num_seqs", 8, 64)


def test_an_episode_is_explained_at_its_end() -> None:
    (moment,) = moments_of(CASE, 5, 1)
    assert (moment.instance, moment.at_seconds, moment.leaf) == (B, 5000.0, "cap_binding")
    assert moment.window_seconds == 600.0
    assert moments_of(replace(CASE, episodes=(replace(CAP, leaf=None),)), 5, 1) == []
    (short,) = moments_of(replace(CASE, episodes=(replace(CAP, end_seconds=1150.0),)), 5, 1)
    assert short.window_seconds == 150.0  # what lies before the episode is not looked at


def test_of_many_episodes_some_are_explained() -> None:
    many = tuple(replace(CAP, end_seconds=5000.0 + k) for k in range(20))
    some = moments_of(replace(CASE, episodes=many), 5, 1)
    assert len({moment.at_seconds for moment in some}) == 5
    assert some == moments_of(replace(CASE, episodes=many), 5, 1)


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
        ((replace(PAGE, instance=A),), None),
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
    page = Finding("firing", "Limit", "page", 4200.0, 4000.0, A, leaf=leaf)
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
    assert advice([replace(PAGE, instance=A)], CAP) is None


def test_one_draw_of_several_can_be_judged_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged: list[tuple[Draw, Path]] = []

    def judge(draw: Draw, into: Path, **_: object) -> Ran:
        judged.append((draw, into))
        return Ran("grid", CASE.stretch([]))

    monkeypatch.setattr(truth, "run_draw", judge)
    second = [draw for draw in detection_draws("full", 7, None) if draw.name == "at-cap"][1]
    one = f"at-cap-{second.seed}"
    words = ["--seed", "7", "--detection", "--set", "full", "--keep", str(tmp_path)]
    assert truth.main([*words, "--only", one]) == 0
    assert [(draw.seed, into) for draw, into in judged] == [(second.seed, tmp_path / one)]
    with pytest.raises(SystemExit):
        truth.main([*words, "--only", "at-cap-1"])
    assert "is called at-cap-1; there are:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "explains", "whatifs"),
    [
        (["--set", "standard"], 8, 5),
        (["--set", "full"], 24, 24),
        (["--set", "standard", "--recommend-episodes", "3"], 8, 3),
        (["--set", "standard", "--explain-moments", "40", "--recommend-episodes", "0"], 40, 0),
        (["--set", "smoke", "--detection", "--only", "at-cap"], 0, 0),
        (["--set", "smoke", "--detection", "--only", "at-cap", "--explain-moments", "2"], 2, 0),
    ],
)
def test_how_many_are_asked_is_the_sets_or_what_was_said(
    words: list[str], explains: int, whatifs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def judge(draw: Draw, into: Path, *, explains: int, whatifs: int, keep: bool) -> Ran:
        asked.append((explains, whatifs))
        return Ran("grid", CASE.stretch([]))

    monkeypatch.setattr(truth, "run_draw", judge)
    only = [] if "--detection" in words else ["--only", "mixed-faults"]
    assert truth.main(["--seed", "7", *words, *only]) == 0
    assert set(asked) == {(explains, whatifs)}
