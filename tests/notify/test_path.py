"""The walk and the limits as `explain` prints them: golden, and what is left out."""

from __future__ import annotations

from collections.abc import Callable

from page_cases import BUDGET, CAP, UNDETERMINED

from driftwatch.model import Diagnosis, Limit, Step
from driftwatch.notify.path import render_limits, render_path


def _walked(*steps: Step) -> list[str]:
    return render_path(Diagnosis("t", "healthy", steps), reference={}, evidence={}).splitlines()


def test_paths_and_limits_read_as_recorded(golden: Callable[[str, str], None]) -> None:
    texts = []
    for case in (CAP, BUDGET, UNDETERMINED):
        found = case.finding
        assert found.diagnosis is not None
        values = found.reference["values"] if found.reference else {}
        texts.append(render_path(found.diagnosis, reference=values, evidence=found.evidence))
        texts.append(render_limits(found.diagnosis.limits, waiting=28.0, preempted=0.0))
    at_times = [
        Limit("max_num_seqs", 24.0, 19.0, 0.2, True),
        Limit("kv_cache", None, None, None, None),
    ]
    texts.append(render_limits(at_times, waiting=55.0))
    golden("notify/paths.txt", "\n\n".join(texts) + "\n")


def test_a_fact_is_printed_once() -> None:
    evidence = {"limit_binding_share_10m_ratio": 0.59, "waiting_requests": 3.0}
    one = Step("a", "One?", "yes", evidence)
    other = Step("b", "Other?", "yes", {**evidence, "kv_cache_usage_ratio": 0.5})
    lines = _walked(one, other)
    assert "3 waiting" in lines[1] and "3 waiting" not in lines[2]
    unknown = {"speed_at_equal_load_ratio": None}
    twice = [Step(n, f"{n}?", "not asked", unknown, "not measured") for n in "ab"]
    assert [line.count("not measured") for line in _walked(*twice)[1:3]] == [1, 0]


def test_what_is_at_rest_is_not_printed() -> None:
    evidence = {
        "seconds_since_last_token": 0.0,
        "waiting_deferred_share_10m_ratio": 0.0,
        "speed_at_equal_load_ratio": None,
    }
    (line,) = _walked(Step("slow", "Slower?", "no", evidence))[1:2]
    assert line.split() == ["Slower?", "no"]
