"""The page in a terminal: 80 columns, an ASCII spelling, colour that only repeats a word."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from page_cases import AT, BUDGET, CAP, CASES, UNDETERMINED

from driftwatch.model import Diagnosis, Limit, Step
from driftwatch.notify.body import lines
from driftwatch.notify.layout import columns, wrap
from driftwatch.notify.path import render_path
from driftwatch.notify.sample import sample_page
from driftwatch.notify.terminal import render, render_limits

COMMAND = re.compile(r"^(ack|silence|next|runbook): ")


@pytest.mark.parametrize("width", [48, 63, 64, 80, 120])
@pytest.mark.parametrize("ascii", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_no_line_is_too_wide(name: str, ascii: bool, width: int) -> None:
    for page in (CASES[name].page(), CASES[name].resolved()):
        text = render(page, width=width, ascii=ascii)
        wide = [line for line in text.splitlines() if columns(line) > width]
        assert [line for line in wide if not COMMAND.match(line)] == []
        assert text.isascii() or not ascii
        assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("name", CASES)
def test_colour_only_repeats_a_word(name: str) -> None:
    page = CASES[name].page()
    painted = render(page, colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == render(page)
    assert painted != render(page)


def test_the_date_stands_on_a_page_once() -> None:
    for page in (CAP.page(), CAP.resolved()):
        shown = render(page, next_command="driftwatch doctor")
        assert shown.count("2026-11-18") == 1
        assert "Since    2026-11-18 02:45 UTC" in shown


def test_the_path_of_a_cap_is_short() -> None:
    shown = render(CAP.page())
    path = shown.split("\npath")[1].split("\n\n")[0]
    assert len(path.splitlines()) <= 16


def test_a_command_is_never_broken() -> None:
    long = "vllm-rag-8b-6f7c9d5b4-x2x9p.inference.svc.cluster.local:8000"
    page = CAP.page()
    page["links"]["silence"] = f"driftwatch silence alert=BatchLimitBinding instance={long}"
    assert f"silence: {page['links']['silence']}\n" in render(page)


def test_the_next_command_can_be_another() -> None:
    text = render(CAP.page(), next_command="driftwatch explain --recording FILE")
    assert "next:    driftwatch explain --recording FILE\n" in text
    assert "--at" not in text


def test_the_test_page() -> None:
    text = render(sample_page("oncall", AT))
    assert text.startswith("TEST driftwatch: a test page for oncall; nothing is wrong")
    assert "ack:" not in text


def test_the_path_of_a_diagnosis_and_of_a_page_are_one() -> None:
    diagnosis, reference = BUDGET.finding.diagnosis, BUDGET.finding.reference
    assert diagnosis is not None
    assert reference is not None
    assert render_path(diagnosis) == render_path(BUDGET.page()["diagnosis"])
    shown = render_path(diagnosis, reference=reference["values"], evidence=BUDGET.finding.evidence)
    assert shown in render(BUDGET.page())


def _walked(*steps: Step) -> list[str]:
    return render_path(Diagnosis("t", "healthy", steps)).splitlines()[1:-1]


def test_an_answer_that_was_not_asked_prints_its_reason_once() -> None:
    unknown = {"speed_at_equal_load_ratio": None}
    one = Step("slower", "Slower?", "not asked", unknown, "not measured")
    other = Step("slower", "Slower still?", "not asked", unknown, "not measured")
    assert _walked(one, other) == [
        f" {'Slower?':<28} not asked  not measured",
        f" {'Slower still?':<28} not asked",
    ]


def test_what_did_not_decide_is_not_printed() -> None:
    evidence = {
        "seconds_since_last_token": 0.0,
        "waiting_deferred_share_10m_ratio": 0.0,
        "speed_at_equal_load_ratio": None,
        "preemptions_per_second": 0.0,
    }
    assert _walked(Step("slow", "Slower?", "no", evidence, "not measured")) == [
        f" {'Slower?':<28} no   0 preemptions; not asked: not measured"
    ]


def test_a_missed_target_needs_no_other_cost() -> None:
    evidence = {
        "slo_missed": True,
        "batch_assembly_wait_10m_seconds": 0.01,
        "limit_binding_share_10m_ratio": 0.59,
        "requests_per_second": 9.49,
    }
    assert _walked(Step("down", "Lost?", "yes", evidence)) == [
        f" {'Lost?':<28} yes  target missed: yes; 9.49 requests/s completed"
    ]


def test_a_release_that_is_not_known_is_said_once() -> None:
    """It was: "the release is not compared: the release is not known; the release is not known"."""
    unknown = "the release is not known (no /version, no label of the target names it)"
    why = "the release is not compared: the release is not known"
    evidence = {"release_changed_since_pin": None, "release_comparison": unknown}
    (text,) = [
        " ".join(" ".join(_walked(Step("a", "Release?", "not asked", evidence, why))).split())
    ]
    assert text.count("not known") == 1
    assert text.endswith(f"not asked {unknown}")


def test_a_number_is_said_once() -> None:
    evidence = {"limit_binding_share_10m_ratio": 0.59, "waiting_requests": 3.0}
    one = Step("a", "One?", "yes", evidence)
    other = Step("b", "Other?", "yes", {**evidence, "kv_cache_usage_ratio": 0.5})
    assert _walked(one, other) == [
        f" {'One?':<28} yes  a limit binds in 59 % of scrapes; 3 waiting",
        f" {'Other?':<28} yes  KV 50 %",
    ]


def test_a_long_question_is_answered_right_behind_it() -> None:
    question = "Is the batch per pass below what the waiting demand would fill?"
    assert _walked(
        Step("b", question, "no", {"waiting_requests": 3.0, "running_requests": 2.0})
    ) == [
        f" {question} no  3 waiting;",
        "   2 running",
    ]


def test_the_path_beside_a_reference() -> None:
    steps = (
        Step(
            "prompts_up",
            "Prompt tokens up?",
            "yes",
            {
                "prompt_tokens_mean_ratio": 2.33,
                "prompt_tokens_mean": 128.2,
                "finished_requests": 5693.0,
            },
        ),
        Step(
            "rate",
            "Request rate down?",
            "yes",
            {"requests_per_second_ratio": 0.25, "requests_per_second": 3.44},
        ),
        Step("b", "Budget?", "no", {"max_num_batched_tokens": 1024.0, "itl_seconds_mean": 0.00515}),
    )
    text = render_path(
        Diagnosis("t", "token_budget_binding", steps, cause="prompts"),
        reference={
            "prompt_tokens_mean": 55.0,
            "requests_per_second": 13.7,
            "itl_seconds_mean": 0.00373,
        },
    )
    assert text == (
        "path\n"
        " Prompt tokens up?            yes  prompts ×2.33 (55.0 → 128), n 5,693\n"
        " Request rate down?           yes\n"
        "   completed requests -75 % (13.7 → 3.44 requests/s)\n"
        " Budget?                      no   max_num_batched_tokens 1024;\n"
        "   ITL 3.73 → 5.15 ms\n"
        " leaf token_budget_binding, cause prompts"
    )


def test_an_undetermined_walk_names_what_is_missing() -> None:
    assert " leaf undetermined: missing binding_limit" in render(UNDETERMINED.page())


def test_a_cap_that_was_full_at_times_is_not_called_full() -> None:
    """It was: "19 of 24 running while it bound" in one line, "full" in the other."""
    limits = [Limit("max_num_seqs", 24.0, 19.0, 0.0, True)]
    assert "at times  BINDS" in render_limits(limits, waiting=55.0)
    evidence = {**CAP.finding.evidence, "binding_running_requests": 6.2}
    page = replace(CAP, finding=replace(CAP.finding, evidence=evidence)).page()
    (text,) = (line.text for line in lines(page) if line.label == "Limit")
    assert text.startswith("max_num_seqs: full at times; of 8 (inferred) on average 6.2 running")


def test_the_limits_table() -> None:
    limits = (
        Limit("max_num_batched_tokens", 68.0, 68.0, 0.0, True),
        Limit("max_num_seqs", 256.0, 68.0, 0.734, False),
        Limit("kv_cache", None, None, None, None),
        Limit("max_num_seqs", None, 6.1, None, False, "max_num_seqs unknown"),
    )
    assert render_limits(limits, waiting=28.0, preempted=0.0) == (
        "limit           allows  in flight   margin\n"
        " token budget       68         68     full  BINDS, 28 waiting\n"
        " max_num_seqs      256         68     73 %\n"
        " KV cache      unknown    unknown  unknown  binds: unknown; 0 preemptions\n"
        " max_num_seqs  unknown        6.1  unknown  not in /metrics"
    )


def test_a_number_stays_beside_its_unit() -> None:
    assert wrap("requests deferred in 80 % of scrapes", 24) == [
        "requests deferred in",
        "80 % of scrapes",
    ]
    assert wrap("gone for 16 min; rules", 15) == ["gone for", "16 min; rules"]
    assert wrap("last 2 min, n 1,640", 12) == ["last 2 min,", "n 1,640"]


@pytest.mark.parametrize("text", ["x" * 300, "界" * 100, "a " * 200, "", " ", "\t"])
def test_wrapping_ends_and_loses_no_word(text: str) -> None:
    for width in (1, 2, 7, 80):
        rows = wrap(text, max(width, 2), "   ")
        assert "".join("".join(rows).split()) == "".join(text.split())
