"""Line 1: where, how bad, do what; at most 120 characters; only words that are meant."""

from __future__ import annotations

import doctest
import importlib
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from page_cases import (
    AT,
    BEGAN,
    BUDGET,
    CAP,
    CASES,
    COVERAGE,
    COVERAGE_UNLISTED,
    DRIFT,
    GPU_LOST_NAMED,
    STUCK,
    UNDETERMINED,
    Case,
    case,
)

from driftwatch.model import Diagnosis, Reason, Recommendation, Slo
from driftwatch.notify.body import evidence_text, lines
from driftwatch.notify.slack import blocks
from driftwatch.notify.terminal import render
from driftwatch.notify.wording import HEADLINE_LIMIT, complaints, headline, lead, marked

MODULES = (
    "numbers",
    "wording",
    "body",
    "layout",
    "delivery",
    "guard",
    "webhook",
    "slack",
    "page",
    "path",
)

NEVER = re.compile(
    r"anomal|degraded|\bscore|optimal|confidence|throughput fell|\bok\b|\bnan\b|\bnone\b",
    re.IGNORECASE,
)


def test_a_missing_kv_metric_is_named_and_not_the_settings() -> None:
    finding = UNDETERMINED.finding
    without_kv = case(
        "BatchLimitBinding",
        "page",
        {**finding.evidence, "kv_cache_usage_ratio": None},
        diagnosis=finding.diagnosis,
        recommendation=finding.recommendation,
    )
    assert "No verdict: kv_cache_usage_ratio unknown" in headline(without_kv.page())


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"driftwatch.notify.{module}"))
    assert found.failed == 0


EXACT = {
    "drain": "FIRING chat-8b-5:8000: 19 % slower at equal load. Do not change a knob; drain it",
    "slow_pool": "FIRING chat-8b 5/8: at least 28 % slower at equal demand. Do not change a knob",
    "replica": "FIRING chat-8b-5:8000: 16 % slower than its twins at equal load. "
    "Do not change a knob; drain it",
    "shift": "NOTICE rag-8b: traffic changed 02:45 UTC: prompts ×2.3, generations as before",
    "uneven": "NOTICE rag-8b-3:8000: prompts ×2.0 of its twins', generations as theirs",
    "stale": "TICKET chat-8b: tune is stale: generations 211 → 338 tokens (×1.6). "
    "No hurry: tune for these lengths, then pin",
    "creep": "TICKET chat-8b-5:8000: speed at equal load -4.2 % in 14 days. Do not change a knob",
    "batch_drift": "FIRING rag-8b 8/8: 99 % of requests miss TTFT 1.0 s. "
    "Set max_num_batched_tokens 512 → 2048",
    "cap": "FIRING host:8000: requests wait 1.7 of 1.7 s TTFT. Set max_num_seqs 8 (inferred) → 40",
    "budget": "FIRING rag-8b host:8000: 99 % of requests miss TTFT 1.0 s. "
    "Set max_num_batched_tokens 512 → 2048",
    "kv": "FIRING host:8000/1: requests wait 1.7 of 1.7 s TTFT. "
    "Do not change a knob; add a replica or free KV",
    "no_knob": "FIRING host:8000/1: requests wait 1.7 of 1.7 s TTFT. No knob helps: +2 replicas",
    "kv_refused": "FIRING host:8000/1: requests wait 1.7 of 1.7 s TTFT. "
    "Do not change a knob; add a replica or free KV",
    "refused": "FIRING host:8000: requests wait 1.7 of 1.7 s TTFT. "
    "No verdict: replayed TTFT 3.1 s, observed 1.8 s (+69 %, gate 15 %)",
    "fine": "FIRING rag-8b host:8000: requests wait 1.7 of 1.7 s TTFT. No action",
    "retune": "TICKET chat-8b: tune is stale: generations 211 → 338 tokens (×1.6). "
    "Set max_num_seqs 64 → 128",
    "undetermined": "FIRING host:8000: requests wait 1.7 of 1.7 s TTFT. "
    "No verdict: max_num_seqs and max_num_batched_tokens unknown",
    "stuck": "FIRING host:8000: no token for 3 min, 12 requests present. "
    "Do not change a knob; drain it, keep its logs, restart it",
    "deferred_ticket": "TICKET host:8000: 5 requests deferred in 80 % of scrapes. "
    "Do not change a knob; see LoRA slots, KV transfer, grammar",
    "deferred_page": "FIRING host:8000: 19–62 % of requests miss TTFT 1.2 s. "
    "Do not change a knob; see LoRA slots, KV transfer, grammar",
    "coverage": "TICKET host:8000: inputs gone for 16 min: queue_seconds and 2 more. "
    "Check the server and its scrape",
    "coverage_pool": "TICKET rag-8b 7/8: inputs gone for 16 min: queue_seconds and 2 more. "
    "Check service discovery and the servers",
    "coverage_one": "TICKET chat:8000/1: inputs gone for 16 min: queue_seconds and 2 more. "
    "Check the server and its scrape",
    "retired": "FIRING host:8000: requests wait 1.7 of 1.7 s TTFT. "
    "Set max_num_seqs 8 (inferred) → 40",
    "drift": "NOTICE rag-8b: traffic changed 02:41 UTC: prompts ×2.3, generations as before",
    "slow": "FIRING host:8000: 19 % slower at equal load. Do not change a knob; drain it",
    "slow_gpu": "FIRING host:8000: 19 % slower at equal load. Do not change a knob; drain it",
    "stuck_gpu": "FIRING host:8000: no token for 3 min, 12 requests present. "
    "Do not change a knob; drain it, keep its logs, restart it",
    "gpu_lost": "FIRING host:8000: 1 GPU lost. Do not change a knob; drain it, reset the GPU",
    "gpu_lost_named": "FIRING rag-8b host:8000: 1 of 8 GPUs lost. "
    "Do not change a knob; drain it, reset the GPU",
    "coverage_unlisted": "TICKET rag-8b 7/8: no longer listed by prometheus 0 for 16 min. "
    "Check service discovery and the servers",
    "cap_held": "FIRING host:8000: requests wait 1.7 of 1.7 s TTFT. Do not raise max_num_seqs",
    "cap_unknown": "FIRING host:8000: requests wait 1.7 of 1.7 s TTFT. "
    "No verdict: max_num_seqs unknown",
    "drift_generations": "NOTICE host:8000: traffic changed 02:45 UTC: "
    "generations ×2.1, prompts ×1.4",
    "rate_drop": "NOTICE host:8000: traffic changed 02:45 UTC: completed requests -77 %, "
    "prompts as before, generations as before",
}


@pytest.mark.parametrize("name", CASES)
def test_headline_comes_out_exactly(name: str) -> None:
    assert CASES[name].page()["summary"] == EXACT[name]


def test_a_queue_that_next_to_nothing_is_served_from_has_no_wait_in_days() -> None:
    assert evidence_text("queue_wait_estimate_10m_seconds", 205_200.0) == (
        "the queue alone over 10 min"
    )
    assert evidence_text("queue_wait_estimate_10m_seconds", 54.06) == "the queue alone 54.1 s"


def test_what_time_may_cure_is_no_verdict_yet() -> None:
    page = CAP.page()
    few = {
        **page["recommendation"],
        "action": "insufficient",
        "basis": None,
        "reason": "8 busy minutes (gate 10)",
        "instead": [],
    }
    page = {**page, "recommendation": few}
    said = "requests wait 1.7 of 1.7 s TTFT. No verdict{}: 8 busy minutes (gate 10)"
    assert headline(page).endswith(said.format(""))
    again = {**page, "asked_again_at": "2026-11-18T03:10:00Z"}
    assert headline(again).endswith(said.format(" yet"))


def test_a_mean_beside_a_ratio_is_of_the_same_window() -> None:
    since = lines(CASES["drift_generations"].page())[0].text
    assert since.startswith("generations ×2.13 (mean 62.8 → 134, n 8,160); prompts ×1.37")


def test_a_notice_says_what_it_will_not_do() -> None:
    assert lead(DRIFT.page()) == (
        "NOTICE rag-8b: traffic changed 02:41 UTC: prompts ×2.3, generations as before. "
        "No page unless a limit binds and a target is missed"
    )
    page = DRIFT.page()
    page["diagnosis"] = {**BUDGET.page()["diagnosis"], "leaf": page["diagnosis"]["leaf"]}
    assert lead(page) == (
        "NOTICE rag-8b: traffic changed 02:41 UTC: prompts ×2.3, generations as before"
    )


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("cap", "RESOLVED host:8000 after 71 min (02:45–03:56 UTC): requests had waited"),
        ("budget", "RESOLVED rag-8b host:8000 after 71 min (02:45–03:56 UTC): 99 % of requests"),
        ("stuck", "RESOLVED host:8000 after 71 min (02:45–03:56 UTC): no token had come for"),
        ("coverage", "RESOLVED host:8000 after 71 min (02:45–03:56 UTC): inputs were gone:"),
        ("coverage_pool", "RESOLVED rag-8b 7/8 after 71 min (02:45–03:56 UTC): inputs were"),
        ("retired", "RESOLVED host:8000 after 71 min (02:45–03:56 UTC): the target is gone"),
        ("drift", "RESOLVED rag-8b after 75 min (02:41–03:56 UTC): traffic had changed:"),
    ],
)
def test_a_resolved_page_says_how_long_it_lasted(name: str, start: str) -> None:
    assert CASES[name].resolved()["summary"].startswith(start)


def test_the_duration_is_the_difference_of_the_printed_minutes() -> None:
    early = replace(CAP, incident=replace(CAP.incident, started_at=BEGAN.replace(second=50)))
    page = early.resolved(timedelta(minutes=16, seconds=20))
    assert "after 16 min (02:45–03:01 UTC)" in page["summary"]
    short = early.resolved(timedelta(seconds=55))
    assert "after 5 s (02:45–02:45 UTC)" in short["summary"]


def test_a_long_incident_names_both_days() -> None:
    summary = CAP.resolved(timedelta(hours=25))["summary"]
    assert "after 25 h (2026-11-18 02:45 – 2026-11-19 03:45 UTC)" in summary


def test_a_resolved_incident_that_never_sent_a_page() -> None:
    bare = replace(CAP, incident=replace(CAP.incident, page=None))
    page = bare.resolved()
    page |= {"evidence": {}, "diagnosis": None}
    assert headline(page).endswith("(02:45–03:56 UTC): BatchLimitBinding was true")


def test_the_range_of_a_share_whose_target_lies_inside_a_bucket() -> None:
    page = CASES["deferred_page"].page()
    share = page["evidence"]["ttft_in_target_10m_ratio"]
    assert (share["value"], share["upper"]) == (0.38, 0.81)
    assert "inside a bucket" in share["reason"]


def test_a_target_that_is_met_is_not_called_missed() -> None:
    evidence = {**BUDGET.finding.evidence, "tpot_in_target_10m_ratio": 0.4}
    evidence["ttft_in_target_10m_ratio"] = 0.97
    page = replace(BUDGET, finding=replace(BUDGET.finding, evidence=evidence)).page()
    assert "60 % of requests miss TPOT 50 ms" in page["summary"]


@pytest.mark.parametrize(
    "pool", ["default", "meta-llama/Llama-3.1-8B", "prod/meta-llama/Llama-3.1-8B"]
)
def test_a_pool_that_nobody_named_is_not_printed(pool: str) -> None:
    target = {**BUDGET.incident.target, "pool": pool}
    page = replace(BUDGET, incident=replace(BUDGET.incident, target=target)).page()
    assert page["summary"].startswith("FIRING host:8000: ")


def test_unknown_value_of_today_is_said() -> None:
    advised = replace(BUDGET.finding.recommendation, from_value=None, from_provenance=None)  # type: ignore[type-var]
    page = replace(BUDGET, finding=replace(BUDGET.finding, recommendation=advised)).page()
    assert page["summary"].endswith("Set max_num_batched_tokens (now unknown) → 2048")


def _long(instance: str, pool: str) -> Case:
    target = {"instance": instance, "engine": "0", "pool": pool}
    return replace(BUDGET, incident=replace(BUDGET.incident, target=target))


def test_a_long_name_never_costs_the_imperative() -> None:
    page = _long("vllm-rag-8b-6f7c9d5b4-x2x9p.inference.svc.cluster.local:8000", "rag" * 20).page()
    assert len(page["summary"]) <= HEADLINE_LIMIT
    assert page["summary"].endswith("Set max_num_batched_tokens 512 → 2048")
    assert "local:8000" in page["summary"]


def test_the_count_goes_before_the_imperative() -> None:
    target = {"instance": "vllm-rag-8b-6f7c9d5b4-x2x9p:8000", "engine": "0"}
    page = replace(STUCK, incident=replace(STUCK.incident, target=target)).page()
    assert "requests present" not in page["summary"]
    assert "Do not change a knob; drain it" in page["summary"]


texts = st.text(max_size=300)
ratios = st.none() | st.floats(0, 1) | st.floats(0, 1e12)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    st.sampled_from(sorted(CASES)),
    texts.filter(bool),
    texts,
    st.dictionaries(
        st.sampled_from(
            (
                "batch_assembly_wait_10m_seconds",
                "ttft_10m_seconds",
                "waiting_requests",
                "running_requests",
                "seconds_since_last_token",
                "coverage_missing_seconds",
                "waiting_deferred_requests",
                "waiting_deferred_share_10m_ratio",
                "prompt_tokens_mean_2m_ratio",
                "kv_cache_usage_ratio",
                "ttft_in_target_10m_ratio",
            )
        ),
        ratios,
    ),
    texts,
)
def test_any_label_and_number_makes_a_page(
    name: str, instance: str, pool: str, changed: dict[str, Any], advice: str
) -> None:
    chosen = CASES[name]
    finding = replace(chosen.finding, evidence={**chosen.finding.evidence, **changed})
    if finding.diagnosis is not None:
        finding = replace(finding, diagnosis=replace(finding.diagnosis, advice=advice or None))
    target = {"instance": instance, "engine": "0", "pool": pool}
    page = replace(chosen, finding=finding, incident=replace(chosen.incident, target=target)).page()
    assert 0 < len(page["summary"]) <= HEADLINE_LIMIT
    assert page["summary"].isprintable()
    shown = render(page)
    assert all(len(line) <= 80 or "driftwatch " in line for line in shown.splitlines())
    body = [b for b in blocks(page)["blocks"][1:] if b["type"] != "actions"]
    told = [b["text"]["text"] if "text" in b else b["elements"][0]["text"] for b in body]
    assert sum(map(len, told)) <= 1200


def _said(page: dict[str, Any]) -> str:
    message = blocks(page)
    shown = [message["text"], *(str(b) for b in message["blocks"])]
    shown += [f"{line.label} {line.text}" for line in lines(page)]
    plain = " ".join([*shown, render(page), render(page, ascii=True), page["summary"]])
    # keys and values of the payload's own syntax are not said to anybody
    return plain.replace("'type':", "")


@pytest.mark.parametrize("name", CASES)
def test_words_that_are_never_said(name: str) -> None:
    assert NEVER.search(_said(CASES[name].page())) is None
    assert NEVER.search(_said(CASES[name].resolved())) is None


def test_the_search_for_forbidden_words_finds_them() -> None:
    for word in ("Anomaly", "degraded", "score 3", "optimal", "confidence 87 %", "ok", "nan"):
        assert NEVER.search(f"x {word} y")


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
    assert "No verdict: kv_cache_usage_ratio unknown" in page["summary"]
    assert "kv_cache_usage_ratio: not on the page" in render(page)
    assert page["evidence"]["running_requests"]["value"] is None
    assert page["evidence"]["running_requests"]["reason"]


def test_coverage_names_every_input_that_is_gone() -> None:
    shown = " ".join(render(COVERAGE.page()).split())
    assert "queue_seconds, ttft_seconds, waiting_capacity_requests, gone for 16 min" in shown


def test_slo_given_by_the_caller_wins_over_the_row() -> None:
    evidence = {**BUDGET.finding.evidence, "slo_ttft_seconds": 5.0, "slo_share": 0.5}
    page = replace(BUDGET, finding=replace(BUDGET.finding, evidence=evidence)).page()
    assert page["slo"] == {"ttft_seconds": 1.0, "tpot_seconds": 0.05, "share": 0.95}
    row = replace(BUDGET, finding=replace(BUDGET.finding, evidence=evidence), slo=None).page()
    assert row["slo"] == {"ttft_seconds": 5.0, "tpot_seconds": None, "share": 0.5}
    assert replace(BUDGET, slo=Slo()).page()["slo"] is None


def test_a_rule_of_a_user_speaks_in_its_own_words() -> None:
    own = case(
        "QueueTooLong",
        "ticket",
        {"waiting_requests": 40.0},
        annotations={"summary": "the queue is long"},
        recommendation=Recommendation("none", reason=Reason("other", "the rule advises nothing")),
    )
    assert own.page()["summary"] == "TICKET host:8000: the queue is long. Do not change a knob"


def test_times_carry_their_zone() -> None:
    for name in CASES:
        for page in (CASES[name].page(), CASES[name].resolved()):
            for clock in re.finditer(r"\b\d\d:\d\d\b(?!:)", render(page)):
                rest = render(page)[clock.end() : clock.end() + 25]
                assert re.match(r" UTC|Z|–\d\d:\d\d UTC| – ", rest), (name, clock[0], rest)
    assert AT > BEGAN


def test_a_notice_never_carries_an_order() -> None:
    finding = replace(
        CAP.finding,
        diagnosis=replace(CAP.finding.diagnosis, advice="Do not change a knob"),  # type: ignore[type-var]
    )
    evidence = {**finding.evidence, "prompt_tokens_mean_ratio": 2.8}
    incident = replace(CAP.incident, alert="LengthDrift", severity="notice")
    told = replace(CAP, finding=replace(finding, evidence=evidence), incident=incident)
    page = told.page()
    assert page["recommendation"]["action"] == "none"
    assert page["recommendation"]["reason"]
    assert page["diagnosis"]["path"]
    for shown in (render(page), str(blocks(page)), render(told.resolved())):
        assert not re.search(r"Set max|→ 40|do:|Limit|Why|Price|Wrong if|path|Do not", shown)
    assert "No page" not in lead(page)  # a limit binds here: a page may be out


def test_one_window_on_a_notice() -> None:
    evidence = {
        **DRIFT.finding.evidence,
        "requests_per_second_ratio": 0.25,
        "duration_seconds": 180.0,
    }
    page = replace(DRIFT, finding=replace(DRIFT.finding, evidence=evidence)).page()
    assert lines(page)[0].text == (
        "prompts ×2.34 (mean 512 → 1,200, n 8,200); generations as before (×0.98); "
        "completed requests -75 %"
    )


def test_a_window_that_was_not_seen_whole_says_so() -> None:
    evidence = {**CAP.finding.evidence, "observed_10m_seconds": 180.0}
    evidence |= {"binding_running_requests": None, "binding_waiting_requests": None}
    shown = " ".join(
        render(replace(CAP, finding=replace(CAP.finding, evidence=evidence)).page()).split()
    )
    assert "mean wait 1.66 of 1.70 s TTFT (97 %), last 3 min" in shown
    assert (
        "6.1 of 8 (inferred) running, 25 waiting (means of the last 3 min; bound in 96 % of "
        in shown
    )
    assert "10 min" not in shown.split("path")[0]


def test_the_limit_line_is_of_the_scrapes_in_which_it_bound() -> None:
    shown = " ".join(render(CAP.page()).split())
    assert (
        "Limit max_num_seqs: 7.8 of 8 (inferred) running, 28 waiting while it bound "
        "(96 % of 120 scrapes)" in shown
    )


def _lines(page: dict[str, Any]) -> dict[str, str]:
    return {line.label: line.text for line in lines(page)}


def test_a_lost_gpu_says_which_and_its_requests_have_units_and_a_span() -> None:
    told = _lines(GPU_LOST_NAMED.page())
    assert told["GPU"] == "2 on node-1, GPU-6f1c"
    assert told["Seen"] == "5.2 requests running, 2 waiting (mean of the last 10 min)"


def test_a_resolve_says_what_fired_and_that_nobody_saw_it_good() -> None:
    page = GPU_LOST_NAMED.resolved()
    told = _lines(page)
    assert told["Was"] == "1 of 8 GPUs was lost (GpuLost); not seen good"
    assert told["GPU"] == "2 on node-1, GPU-6f1c"
    assert "the target is gone" in page["summary"]
    assert marked(page, "").strip() != "✅"
    assert marked(STUCK.resolved(), "").strip() == "✅"


@pytest.mark.parametrize("name", CASES)
def test_every_resolve_says_what_it_was(name: str) -> None:
    page = CASES[name].resolved()
    text = " ".join((page["summary"], *(line.text for line in lines(page))))
    assert any(bad in text for bad in complaints(page, True))


def test_a_lost_gpu_is_advised_on_where_the_diagnosis_is_open() -> None:
    evidence = {**UNDETERMINED.finding.evidence, "gpus_lost": 1.0}
    advised = Recommendation("none", reason=Reason("engine", "1 GPU is lost"))
    found = replace(UNDETERMINED.finding, evidence=evidence, recommendation=advised)
    page = replace(UNDETERMINED, finding=found).page()
    assert page["summary"].endswith(". Do not change a knob: 1 GPU is lost")


def test_a_pool_of_which_nothing_is_seen_says_why_and_no_names() -> None:
    told = _lines(COVERAGE_UNLISTED.page())
    assert told["Missing"].startswith("everything (3 inputs): not listed by prometheus 0, gone for")
    assert "queue_seconds" not in told["Missing"]
    found = replace(
        COVERAGE_UNLISTED.finding, reasons={"coverage_missing_inputs": "connection refused"}
    )
    page = replace(COVERAGE_UNLISTED, finding=found).page()
    assert "no input for 16 min: connection refused. Check" in page["summary"]
