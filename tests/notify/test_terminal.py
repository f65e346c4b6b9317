"""The page in a terminal: 80 columns, an ASCII spelling, colour that only repeats a word."""

from __future__ import annotations

import re

import pytest
from page_cases import AT, BUDGET, CAP, CASES, UNDETERMINED

from driftwatch.model import Diagnosis, Limit, Step
from driftwatch.notify.layout import columns, wrap
from driftwatch.notify.sample import sample_page
from driftwatch.notify.terminal import render, render_limits, render_path

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
    diagnosis = BUDGET.finding.diagnosis
    assert diagnosis is not None
    assert render_path(diagnosis) == render_path(BUDGET.page()["diagnosis"])
    assert render_path(diagnosis) in render(BUDGET.page())


def test_an_answer_that_was_not_asked_prints_its_reason() -> None:
    step = Step(
        "slower", "Slower?", "not asked", {"speed_at_equal_load_ratio": None}, "not measured"
    )
    text = render_path(Diagnosis("t", "healthy", (step,)))
    assert text.splitlines()[1] == f" {'Slower?':<30} not asked not measured"


def test_an_unknown_value_is_not_blank() -> None:
    step = Step("wait", "Waiting?", "yes", {"waiting_requests": None, "running_requests": 3.0})
    text = render_path(Diagnosis("t", "healthy", (step,)))
    assert "waiting_requests: unknown; 3 running" in text


def test_the_path_beside_a_reference() -> None:
    step = Step("prompts_up", "Prompt tokens up?", "yes", {"prompt_tokens_mean": 1200.0})
    text = render_path(
        Diagnosis("t", "token_budget_binding", (step,), cause="prompts"),
        reference={"prompt_tokens_mean": 512.0},
    )
    assert text == (
        "path\n"
        " Prompt tokens up?              yes       prompt tokens 512 → 1,200\n"
        " leaf token_budget_binding, cause prompts"
    )


def test_an_undetermined_walk_names_what_is_missing() -> None:
    assert " leaf undetermined: missing binding_limit" in render(UNDETERMINED.page())


def test_the_limits_table() -> None:
    limits = (
        Limit("max_num_batched_tokens", 68.0, 68.0, 0.0, True),
        Limit("max_num_seqs", 256.0, 68.0, 0.734, False),
        Limit("kv_cache", None, None, None, None),
    )
    assert render_limits(limits, waiting=28.0) == (
        "limit           allows  in flight   margin\n"
        " token budget       68         68      0 %  BINDS, 28 waiting\n"
        " max_num_seqs      256         68     73 %\n"
        " KV cache      unknown    unknown  unknown  binds: unknown"
    )


def test_a_number_stays_beside_its_unit() -> None:
    assert wrap("requests deferred in 80 % of scrapes", 24) == [
        "requests deferred in",
        "80 % of scrapes",
    ]


@pytest.mark.parametrize("text", ["x" * 300, "界" * 100, "a " * 200, "", " ", "\t"])
def test_wrapping_ends_and_loses_no_word(text: str) -> None:
    for width in (1, 2, 7, 80):
        rows = wrap(text, max(width, 2), "   ")
        assert "".join("".join(rows).split()) == "".join(text.split())
