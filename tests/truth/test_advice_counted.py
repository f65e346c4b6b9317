from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from advice_truth.asked import Result, folk_rule
from advice_truth.cases import Case
from advice_truth.counted import compared, comparison_text, figures, helps, text
from advice_truth.kept import before, merged, written
from advice_truth.truths import Truths, named
from truth_judge.bootstrap import exact

BENCH = Path(__file__).resolve().parents[2] / "bench"

BLANK = Result(
    seed=1,
    number=0,
    case="a",
    action="none",
    reason="",
    gate=None,
    knobs={},
    today=0.5,
    advised=0.5,
    best=0.5,
    folk=0.5,
    formula=0.5,
    formula_knobs={},
    forecast=None,
    replayed=None,
    seconds=1.0,
    requests=900,
    known=True,
    best_knobs={},
    more_today=None,
    more_advised=None,
    about="",
)
KNOB = {"max_num_seqs": 64.0}


def results(*changes: dict[str, object]) -> list[Result]:
    return [
        replace(BLANK, number=number, case=str(number), **change)  # type: ignore[arg-type]
        for number, change in enumerate(changes)
    ]


CASES = results(
    {"action": "change", "knobs": KNOB, "advised": 0.8, "best": 0.9, "folk": 0.4},
    {"action": "insufficient", "gate": "fit_itl", "best": 0.6},
    {"action": "change", "knobs": KNOB, "advised": 0.47, "formula_knobs": {"max_num_seqs": 2}},
    {},
    {"today": 0.97, "advised": 0.97, "best": 0.98, "action": "no_action", "seconds": 9.0},
    {
        "action": "change",
        "knobs": KNOB,
        "today": 0.96,
        "advised": 0.97,
        "best": 0.98,
        "more_today": 0.6,
        "more_advised": 0.9,
    },
)


def test_what_the_figures_count() -> None:
    found = figures(CASES)
    assert (found["cases"], found["some_knob_helps"], found["target_missed"]) == (6, 2, 4)
    ours, folk = found["advisers"]["driftwatch"], found["advisers"]["folk rule"]
    assert ours["advised"] == 3
    assert ours["gain_captured_ratio"]["value"] == pytest.approx(0.3 / 0.5)
    assert (ours["hurt_ratio"]["count"], ours["hurt_ratio"]["of"]) == (1, 3)
    pages = ours["knob_pages_where_none_helps_ratio"]
    assert (pages["count"], pages["of"]) == (1, 2)
    every = ours["knob_where_none_helps_ratio"]
    assert (every["count"], every["of"]) == (2, 4)  # of healthy servers one was advised a knob
    assert (folk["hurt_ratio"]["count"], folk["hurt_ratio"]["of"]) == (3, 6)
    assert folk["gain_captured_ratio"]["value"] == pytest.approx(-0.1 / 0.5)
    assert found["advisers"]["closed form"]["hurt_ratio"]["of"] == 1
    # an answer that was refused is none of those that captured anything
    assert found["gain_captured_where_answered_ratio"]["value"] == pytest.approx(0.3 / 0.4)
    assert found["capacity_changes_that_help_ratio"]["count"] == 1
    assert found["refused_by_gate"] == {"fit_itl": 1}
    assert found["seconds_max"] == 9.0
    said = text(found)
    assert "| changes that hurt by more than 2 points | ≤ 1 % | 33.3 %" in said
    assert "1 of 3" in said


def test_nothing_to_count_is_a_dash() -> None:
    assert "| attainable gain captured | ≥ 90 % | – | – | – |" in text(figures(results({})))
    assert "–, –, –" in text(figures([]))


def test_three_points_are_what_helps() -> None:
    assert helps(replace(BLANK, best=0.531)) and not helps(replace(BLANK, best=0.529))


def test_the_exact_interval() -> None:
    # Clopper and Pearson: closed at 0 and n, else the quantiles of a beta law
    assert exact(0, 25).high == pytest.approx(1 - 0.025 ** (1 / 25))
    assert exact(25, 25).low == pytest.approx(0.025 ** (1 / 25))
    one = exact(1, 5)
    assert one.value == 0.2
    assert one.low == pytest.approx(0.00505, abs=1e-5)
    assert one.high == pytest.approx(0.71642, abs=1e-5)
    assert exact(0, 0).value is None


def test_two_versions_are_compared_on_the_cases_of_both() -> None:
    later = [
        replace(CASES[0], advised=0.9),
        replace(CASES[1], action="change", knobs=KNOB, advised=0.6),
        replace(CASES[2], knobs={}, action="none", advised=0.5),
        replace(CASES[3], knobs=KNOB, advised=0.4),
        replace(CASES[4], case="another server"),
    ]
    found = compared(CASES, later)
    assert (found["cases"], found["others"]) == (4, 3)
    assert found["answers_changed"] == 3
    assert (found["better"], found["worse"]) == (3, 1)
    assert found["gained_points"]["value"] == pytest.approx(100 * (0.1 + 0.1 + 0.03 - 0.1) / 4)
    assert found["before"]["advisers"]["driftwatch"]["hurt_ratio"]["of"] == 2
    assert "4 cases in both, 3 in one alone" in comparison_text(found)


SAID = {
    "name": "small",
    "title": "a cap far too small",
    "duration": "80m",
    "pool": {
        "replicas": 1,
        "serving": {"max_num_seqs": 2, "max_num_batched_tokens": 2048},
        "slo": {"ttft_seconds": 1.0, "tpot_seconds": 0.05},
    },
    "traffic": {"requests_per_second": 0.4, "changes": [{"at": "30m", "generation_factor": 2.0}]},
    "truth": {},
}


def test_a_truth_is_asked_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advice_truth.truths.LASTING", 120.0)
    monkeypatch.setattr("truth_judge.whatif.WARM_SECONDS", 10.0)
    monkeypatch.setattr("truth_judge.whatif.DRAIN_SECONDS", 30.0)
    case = Case(SAID, 3, 2700.0, (1.0, 2.0, 1.0), True)
    first = Truths(tmp_path).of(case)
    today, wider = first.share({}), first.share({"max_num_seqs": 64.0})
    assert today is not None and wider is not None and wider > today + 0.1
    assert (first.share({"max_num_seqs": 4096}) or 0.0) == 0.0  # above max_num_batched_tokens
    more = first.share({}, 2.0)
    assert more is not None and more < today
    (kept,) = tmp_path.rglob("*.json")
    assert len(json.loads(kept.read_text())) == 4

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the hidden engine was asked again")

    monkeypatch.setattr("truth_judge.whatif.simulate", never)
    again = Truths(tmp_path).of(case)
    assert (again.share({}), again.share({"max_num_seqs": 64})) == (today, wider)
    later = replace(case, asked_at=3000.0)  # another question of the same server
    assert named(later) != named(case) and Truths(tmp_path).of(later).share({}) == today
    with pytest.raises(AssertionError, match="asked again"):
        Truths(tmp_path).of(replace(case, seed=4)).share({})  # another server


def test_folk_doubles_what_grew() -> None:
    case = Case(SAID, 3, 2700.0, (1.0, 2.0, 1.0), True)
    assert folk_rule(case) == {"max_num_seqs": 4}
    assert folk_rule(replace(case, drift=(2.0, 2.0, 1.0))) == {"max_num_batched_tokens": 4096}


def saved(path: Path, results: list[Result], *, seed: int = 1) -> Path:
    written(path, results, {"seed": seed, "code": "abc", "unjudged": [7]})
    return path


def test_a_run_goes_on_where_it_was_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    assert before(None, 1, "abc") == before(out, 1, "abc") == ([], [])
    saved(out, CASES)
    assert before(out, 1, "abc") == (CASES, [7])
    assert before(out, 2, "abc") == ([], [])
    assert before(out, 1, "changed since") == before(out, 1, "abc", 5) == ([], [])
    assert capsys.readouterr().err.count("begun again") == 3


def test_no_case_counts_twice(tmp_path: Path) -> None:
    one, other = saved(tmp_path / "1.json", CASES[:4]), saved(tmp_path / "2.json", CASES[4:])
    assert merged([one, other]) == CASES
    with pytest.raises(ValueError, match="case 0 of seed 1 is in two files"):
        merged([one, other, saved(tmp_path / "3.json", CASES[:1])])


def test_runs_are_put_together_and_compared_by_the_command(tmp_path: Path) -> None:
    whole, some = saved(tmp_path / "1.json", CASES), saved(tmp_path / "2.json", CASES[:2])
    words = ("--merge", whole, "--against", some, "--out", tmp_path / "out.json")
    ran = subprocess.run(
        [sys.executable, BENCH / "recommend.py", *words], capture_output=True, text=True, check=True
    )
    assert "6 cases; a target is missed in 4" in ran.stdout
    assert "2 cases in both, 4 in one alone" in ran.stdout
    assert json.loads((tmp_path / "out.json").read_text())["figures"] == figures(CASES)
