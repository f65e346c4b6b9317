from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from advice_truth.asked import Result, folk_rule
from advice_truth.cases import Case
from advice_truth.counted import figures, helps, text
from advice_truth.truths import Truth
from truth_judge.bootstrap import exact

BENCH = Path(__file__).resolve().parents[2] / "bench"

BLANK = Result(
    seed=1,
    number=0,
    action="none",
    reason="",
    gate=None,
    knobs={},
    today=0.5,
    advised=0.5,
    best=0.5,
    folk=0.5,
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
        replace(BLANK, number=number, **change)  # type: ignore[arg-type]
        for number, change in enumerate(changes)
    ]


CASES = results(
    {"action": "change", "knobs": KNOB, "advised": 0.8, "best": 0.9, "folk": 0.4},
    {"action": "insufficient", "gate": "fit_itl", "best": 0.6},
    {"action": "change", "knobs": KNOB, "advised": 0.47},
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
    # an answer that was refused is none of those that captured anything
    assert found["gain_captured_where_answered_ratio"]["value"] == pytest.approx(0.3 / 0.4)
    assert found["capacity_changes_that_help_ratio"]["count"] == 1
    assert found["refused_by_gate"] == {"fit_itl": 1}
    assert found["seconds_max"] == 9.0
    said = text(found)
    assert "| changes that hurt by more than 2 points | ≤ 1 % | 33.3 %" in said
    assert "1 of 3" in said


def test_nothing_to_count_is_a_dash() -> None:
    assert "| attainable gain captured | ≥ 90 % | – | – |" in text(figures(results({})))
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


def test_a_truth_is_the_hidden_engine_with_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advice_truth.truths.LASTING", 120.0)
    monkeypatch.setattr("truth_judge.whatif.WARM_SECONDS", 10.0)
    monkeypatch.setattr("truth_judge.whatif.DRAIN_SECONDS", 30.0)
    truth = Truth(Case(SAID, 3, 2700.0, (1.0, 2.0, 1.0), True))
    today, wider = truth.share({}), truth.share({"max_num_seqs": 64.0})
    assert today is not None and wider is not None and wider > today + 0.1
    assert (truth.share({"max_num_seqs": 4096}) or 0.0) == 0.0  # above max_num_batched_tokens
    more = truth.share({}, 2.0)
    assert more is not None and more < today


def test_folk_doubles_what_grew() -> None:
    case = Case(SAID, 3, 2700.0, (1.0, 2.0, 1.0), True)
    assert folk_rule(case) == {"max_num_seqs": 4}
    assert folk_rule(replace(case, drift=(2.0, 2.0, 1.0))) == {"max_num_batched_tokens": 4096}
