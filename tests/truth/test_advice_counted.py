from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from advice_truth.asked import Answer, Result, folk_rule
from advice_truth.cases import Case
from advice_truth.counted import figures, text
from advice_truth.truths import Truth
from truth_judge.bootstrap import exact

KNOB = {"max_num_seqs": 64.0}


def result(number: int, *, ours: Answer | None = None, folk: float = 0.5, **said: Any) -> Result:
    today = said.get("today", 0.5)
    defaults: dict[str, Any] = {
        "seed": 1,
        "number": number,
        "today": today,
        "best": max(0.5, today),
        "best_knobs": {},
        "answers": {"driftwatch": ours or Answer({}, today), "folk rule": Answer(KNOB, folk)},
        "more_today": None,
        "action": "none" if ours is None else "change",
        "reason": "",
        "gate": None,
        "gain": None,
        "seconds": 1.0,
        "requests": 900,
        "known": True,
        "about": "",
    }
    return Result(**{**defaults, **said})


CASES = [
    result(0, ours=Answer(KNOB, 0.8), best=0.9, folk=0.4, gain=(0.3, 0.2, 0.4)),
    result(1, action="insufficient", gate="fit_itl", best=0.6),
    result(2, ours=Answer(KNOB, 0.47), gain=(0.1, 0.04, 0.2)),
    result(3),
    result(4, today=0.97, action="no_action", seconds=9.0),
    result(5, ours=Answer(KNOB, 0.97, more_share=0.9), today=0.96, more_today=0.6),
]


def test_what_the_figures_count() -> None:
    found = figures(CASES)
    assert (found["cases"], found["some_knob_helps"], found["target_missed"]) == (6, 2, 4)
    ours, folk = found["advisers"]["driftwatch"], found["advisers"]["folk rule"]
    assert ours["advised"] == 3
    assert ours["gain_captured_ratio"]["value"] == pytest.approx(0.3 / 0.5)
    assert (ours["hurt_ratio"]["count"], ours["hurt_ratio"]["of"]) == (1, 3)
    assert (ours["in_vain_ratio"]["count"], ours["in_vain_ratio"]["of"]) == (1, 2)
    # of four where none helps today, one change was in vain: the other pays at more demand
    every = ours["in_vain_at_more_ratio"]
    assert (every["count"], every["of"]) == (1, 4)
    assert (folk["hurt_ratio"]["count"], folk["hurt_ratio"]["of"]) == (3, 6)
    assert folk["gain_captured_ratio"]["value"] == pytest.approx(-0.1 / 0.5)
    held = found["interval_holds_ratio"]
    assert (held["count"], held["of"]) == (1, 2)
    assert found["refused_by_gate"] == {"fit_itl": 1}
    assert found["seconds_max"] == 9.0
    said = text(found)
    assert "| changes that hurt by more than 2 points | ≤ 1 % | 33.3 %" in said
    assert "1 of 3" in said


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
