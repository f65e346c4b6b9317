"""The walk and the limits as `explain` prints them, and what is left out."""

from __future__ import annotations

from driftwatch.model import Diagnosis, Limit, Step
from driftwatch.notify.path import limit_row, render_limits, render_path


def _walked(*steps: Step) -> list[str]:
    return render_path(Diagnosis("t", "healthy", steps), evidence={}).splitlines()


def test_a_limit_that_is_full_at_times_and_one_that_nobody_knows() -> None:
    at_times = [
        Limit("max_num_seqs", 24.0, 19.0, 0.2, True, "inferred", None, 55.0),
        Limit("kv_cache", None, None, None, None),
    ]
    budget = Limit("max_num_batched_tokens", 575.0, 575.0, 0.0, True, None, 0.7, 28.0)
    often = "full in 70 % of scrapes; 28 requests queue then"
    assert limit_row(budget) == ("token budget", "575", "575", "0 %", often)
    pressed = Limit("kv_cache", 9.0, 9.0, 0.0, True, None, 1.0, 2.0, 0.88, 0.0)
    held = "full at 88 % in use; 2 requests queue; no preemptions"
    assert limit_row(pressed).remark == held
    text = render_limits(at_times)
    assert [" ".join(line.split()) for line in text.splitlines()] == [
        "Limit room for in use left",
        "max_num_seqs 24 (inferred) 19 20 % full at times; 55 requests queue",
        "KV cache unknown unknown unknown unknown whether it is full",
    ]


def test_a_speed_that_is_not_judged_is_not_printed() -> None:
    evidence = {"speed_at_equal_load_ratio": 0.889, "slower": None, "waiting_requests": 3.0}
    assert "-11 %" not in "".join(_walked(Step("a", "Lost?", "yes", evidence)))
    assert "-11 %" in "".join(_walked(Step("a", "Lost?", "yes", evidence | {"slower": True})))


def test_a_fact_is_printed_once() -> None:
    evidence = {"limit_binding_share_10m_ratio": 0.59, "waiting_requests": 3.0}
    one = Step("a", "One?", "yes", evidence)
    other = Step("b", "Other?", "yes", {"kv_cache_usage_ratio": 0.5, **evidence})
    text = "\n".join(_walked(one, other))
    assert (text.count("3 waiting"), text.count("KV 50 %")) == (1, 1)


def test_the_baseline_stands_in_a_column_and_an_unknown_says_why() -> None:
    steps = (
        Step("a", "Longer?", "yes", {"prompt_tokens_mean": 1200.0, "waiting_requests": 28.0},
             before={"prompt_tokens_mean": 512.0}),
        Step("b", "Slower?", "not asked", {"itl_seconds_mean": 0.01}, "no baseline (how to mend)"),
        Step("c", "Full?", "no", {"kv_cache_usage_ratio": 0.5, "waiting_requests": 3.0}),
        Step("d", "And full?", "no", {"kv_cache_usage_ratio": 0.5}),
        Step("e", "Hits?", "no", {"kv_cache_usage_ratio": 0.7, "prefix_hits_lost": False}),
    )  # fmt: skip
    path = render_path(
        Diagnosis("t", "healthy", steps, "prompts"), evidence={"duration_seconds": 600.0}
    )
    assert [" ".join(line.split()) for line in path.splitlines()] == [
        "How it was decided (last 10 min) baseline now",
        "Longer? yes 512 1,200 prompt tokens",
        "28 waiting",
        "Slower? unknown no baseline",
        "Full? no KV 50 %",
        "Hits? no prefix hits as in the baseline",
        "So: healthy, because prompts are longer",
    ]


def test_demand_is_the_cause_only_where_more_requests_come_and_no_length_moved() -> None:
    full, came = Diagnosis("t", "full", (), "demand"), {"requests_per_second_ratio": 1.3}
    for evidence, cause in (
        (came, ", because more requests come"),
        (came | {"prompt_tokens_mean_ratio": 1.4}, ", because prompts are ×1.4 as long"),
        ({"requests_per_second_ratio": 0.86}, ""),
        ({}, ""),
    ):
        said = render_path(full, evidence=evidence).splitlines()[-1]
        assert said == f" So: full{cause}"
