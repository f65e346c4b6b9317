"""The walk and the limits as `explain` prints them, and what is left out."""

from __future__ import annotations

from driftwatch.model import Diagnosis, Limit, Step
from driftwatch.notify.path import limit_rows, render_limits, render_path


def _walked(*steps: Step) -> list[str]:
    return render_path(Diagnosis("t", "healthy", steps), reference={}, evidence={}).splitlines()


def test_a_limit_that_is_full_at_times_and_one_that_nobody_knows() -> None:
    at_times = [
        Limit("max_num_seqs", 24.0, 19.0, 0.2, True, "inferred"),
        Limit("kv_cache", None, None, None, None),
    ]
    (budget,) = limit_rows(
        [Limit("max_num_batched_tokens", 575.0, 575.0, 0.0, True)],
        {"limit_binding_share_10m_ratio": 0.7, "binding_waiting_requests": 28.0},
    )
    often = "full in 70 % of scrapes; 28 requests queue then"
    assert budget == ("token budget", "575", "575", "0 %", often)
    text = render_limits(at_times, {"waiting_requests": 55.0})
    assert [" ".join(line.split()) for line in text.splitlines()] == [
        "Limit room for in use left",
        "max_num_seqs 24 (inferred) 19 20 % full at times; 55 requests queue",
        "KV cache unknown unknown unknown unknown whether it is full",
    ]


def test_a_speed_that_is_not_judged_is_not_printed() -> None:
    evidence = {"speed_at_equal_load_ratio": 0.889, "slower": None, "waiting_requests": 3.0}
    assert "0.889" not in "".join(_walked(Step("a", "Lost?", "yes", evidence)))
    assert "0.889" in "".join(_walked(Step("a", "Lost?", "yes", evidence | {"slower": True})))


def test_a_fact_is_printed_once() -> None:
    evidence = {"limit_binding_share_10m_ratio": 0.59, "waiting_requests": 3.0}
    one = Step("a", "One?", "yes", evidence)
    other = Step("b", "Other?", "yes", {"kv_cache_usage_ratio": 0.5, **evidence})
    text = "\n".join(_walked(one, other))
    assert (text.count("3 waiting"), text.count("KV 50 %")) == (1, 1)


def test_the_baseline_stands_in_a_column_and_an_unknown_says_why() -> None:
    steps = (
        Step("a", "Longer?", "yes", {"prompt_tokens_mean": 1200.0, "waiting_requests": 28.0}),
        Step("b", "Slower?", "not asked", {"itl_seconds_mean": 0.01}, "no baseline (how to mend)"),
        Step("c", "Full?", "no", {"kv_cache_usage_ratio": 0.5, "waiting_requests": 3.0}),
    )
    path = render_path(
        Diagnosis("t", "healthy", steps, "prompts"),
        reference={"prompt_tokens_mean": 512.0},
        evidence={"duration_seconds": 600.0},
    )
    assert [" ".join(line.split()) for line in path.splitlines()] == [
        "How it was decided (last 10 min) baseline now",
        "Longer? yes 512 1,200 prompt tokens",
        "28 waiting",
        "Slower? unknown no baseline",
        "Full? no KV 50 %",
        "So: healthy, because prompts are longer",
    ]
