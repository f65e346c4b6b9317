"""Line 1 and the body where no golden page has the case."""

from __future__ import annotations

import doctest
import importlib
import re
from dataclasses import replace
from datetime import timedelta

import pytest
from made_incidents import with_values
from page_cases import (
    AT,
    BEGAN,
    BUDGET,
    CAP,
    CASES,
    COVERAGE_UNLISTED,
    FORMS,
    GPU_LOST_NAMED,
    STUCK,
    case,
)

from driftwatch.model import Diagnosis, KnobMove, TargetKey
from driftwatch.notify.headline import HEADLINE_LIMIT, current_line, headline, lines, marked
from driftwatch.notify.page import Acknowledgement, Page
from driftwatch.notify.terminal import render
from driftwatch.pipeline.build_page import build_page
from driftwatch.receivers.slack_blocks import blocks

MODULES = (
    "numbers",
    "notify.headline",
    "notify.columns",
    "notify.layout",
    "receivers.sender",
    "address_guard",
    "receivers.webhook",
    "receivers.slack_blocks",
    "notify.page",
    "notify.path",
)


def _lines(page: Page) -> dict[str, str]:
    return {line.label: line.text for line in lines(page)}


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"driftwatch.{module}"))
    assert found.failed == 0


def test_a_resolved_incident_that_never_sent_a_page() -> None:
    bare = replace(CAP, incident=with_values(CAP.incident, page=None))
    ended = with_values(bare.incident, resolved_at=BEGAN + timedelta(minutes=71))
    page = build_page(None, ended, "resolved", AT, form=FORMS["BatchLimitBinding"])
    assert headline(page).endswith("(02:45–02:56 UTC): requests no longer queue for long")
    assert _lines(page) == {"Began": "BatchLimitBinding is true"}


def test_what_to_do_is_whole_in_line_1() -> None:
    page, other = BUDGET.page(), KnobMove("max_num_seqs", 128.0, 64.0, None)
    assert page.advice is not None
    moves = (*page.advice.moves, other)
    page = page.model_copy(update={"advice": page.advice.model_copy(update={"moves": moves})})
    page = page.model_copy(update={"acknowledgement": Acknowledgement(by="Anastasia", at=AT)})
    do, line = "set max_num_batched_tokens 512 → 2048 and max_num_seqs 128 → 64", headline(page)
    assert line == f"ACKNOWLEDGED by Anastasia 02:56 UTC · host:8000: {do}"
    do = do.removeprefix("set ")
    assert current_line(page) == f"rag-8b host:8000: 99 % of requests miss TTFT 1 s. Set {do}"


def test_a_target_that_is_met_is_not_called_missed() -> None:
    evidence = {**BUDGET.finding.evidence, "tpot_in_target_10m_ratio": 0.4}
    evidence["ttft_in_target_10m_ratio"] = 0.97
    page = replace(BUDGET, finding=replace(BUDGET.finding, evidence=evidence)).page()
    assert "60 % of requests miss TPOT 50 ms" in page.summary


@pytest.mark.parametrize(
    "pool", ["default", "meta-llama/Llama-3.1-8B", "prod/meta-llama/Llama-3.1-8B"]
)
def test_a_pool_that_nobody_named_is_not_printed(pool: str) -> None:
    page = replace(BUDGET, incident=with_values(BUDGET.incident, pool=pool)).page()
    assert page.summary.startswith("FIRING host:8000: ")


@pytest.mark.parametrize(
    "instance",
    ["vllm-rag-8b-6f7c9d5b4-x2x9p.inference.svc.cluster.local:8000", "a\n\x1b[31m\u202e:8000"],
)
def test_a_long_or_hostile_name_costs_neither_the_imperative_nor_the_line(instance: str) -> None:
    finding = replace(BUDGET.finding, concerned=(TargetKey(instance, "0"),))
    incident = with_values(BUDGET.incident, pool="rag" * 20)
    page = replace(BUDGET, finding=finding, incident=incident).page()
    assert len(page.summary) <= HEADLINE_LIMIT and page.summary.isprintable()
    assert all(len(line) <= 80 or "driftwatch " in line for line in render(page).splitlines())
    assert page.summary.endswith("Set max_num_batched_tokens 512 → 2048")
    assert ":8000" in page.summary


def test_missing_evidence_is_said_with_its_reason() -> None:
    case_without = case(
        "BatchLimitBinding",
        "page",
        {"waiting_requests": 12.0},
        reasons={"kv_cache_usage_ratio": "not on the page"},
        diagnosis=Diagnosis(
            "batch-size-drift", "undetermined", (), missing=("kv_cache_usage_ratio",)
        ),
    )
    page = case_without.page()
    assert page.summary.endswith("No advice: the cause is not determined")
    text = " ".join(render(page).split())
    assert "has no answer: vllm:kv_cache_usage_perc is not on the page" in text
    assert "wait: driftwatch looks again every 10 min" in text
    assert page.evidence["running_requests"].value is None
    assert page.evidence["running_requests"].reason


def test_what_steps_contradict_is_named_and_who_finished_is_no_drift() -> None:
    shrunk = {"generation_tokens_mean_ratio": 0.5, "given_up_10m_low_ratio": 0.16}
    contradicted = {"max_num_batched_tokens": None, "max_num_batched_tokens_exceeded": True}
    finding = CASES["batch_drift"].finding
    evidence = {**finding.evidence, **shrunk, **contradicted}
    reasons = {"max_num_batched_tokens": "configured 512, but steps take 2,000 tokens"}
    made = replace(finding, evidence=evidence, reasons=reasons)
    text = render(replace(CASES["batch_drift"], finding=made).page())
    assert "generations" not in text
    assert "max_num_batched_tokens: configured 512, but steps take 2,000" in " ".join(text.split())
    evidence["given_up_10m_low_ratio"], evidence["slo_missed"] = 0.0, False
    page = replace(CASES["batch_drift"], finding=replace(made, evidence=evidence)).page()
    assert "generations shrank to ×0.5" in render(page)


def test_a_notice_asks_for_something_only_where_the_load_is_above_the_capacity() -> None:
    """It said "nothing to do" where `recommend` counted 105 % of the capacity."""
    finding = replace(
        CAP.finding,
        diagnosis=replace(CAP.finding.diagnosis, advice="Do not change a knob", limits=()),  # type: ignore[type-var]
    )
    evidence = {**finding.evidence, "prompt_tokens_mean_ratio": 2.8, "slo_missed": False}
    incident = with_values(CAP.incident, alert="LengthDrift", severity="notice")
    for offered, action, said in (
        (21.0, "change", ": the load is 5 % above what the server serves. Set max_num_seqs 8"),
        (
            10.0,
            "no_action",
            "as long. Nothing to do: load 50 % of capacity, all requests in target",
        ),
        (None, "no_action", "as long. All requests in target"),
    ):
        load = {"offered_requests_per_second": offered, "capacity_requests_per_second": 20.0}
        advice = finding.advice.model_copy(update={**load, "action": action})
        answered = replace(finding, evidence=evidence, advice=advice)
        case = replace(CAP, finding=answered, incident=incident)
        assert said in case.page().summary
        shown = render(case.page()) + str(blocks(case.page()))
        assert bool(re.search(r"Change|Cost|Undo", shown)) is (action == "change")
        assert "Do not" not in shown


def test_a_resolve_says_what_fired_and_that_nobody_saw_it_good() -> None:
    page = GPU_LOST_NAMED.resolved()
    told = _lines(page)
    assert told["Began"] == "1 of 8 GPUs lost"
    assert page.summary.startswith("CLOSED rag-8b host:8000: the server is gone")
    assert page.summary.endswith("no recovery was measured")
    assert marked(page, "").strip() != "✅"
    assert marked(STUCK.resolved(), "").strip() == "✅"


def test_a_pool_of_which_nothing_is_seen_says_why_and_no_names() -> None:
    found = replace(
        COVERAGE_UNLISTED.finding, reasons={"coverage_missing_inputs": "connection refused"}
    )
    page = replace(COVERAGE_UNLISTED, finding=found).page()
    assert "no metrics for 16 min (connection refused). Check" in page.summary
    assert "queue_seconds" not in page.summary
