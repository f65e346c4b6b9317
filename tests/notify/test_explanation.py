"""What explain answers: the state, and what to do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from page_cases import CAP, CASES

from driftwatch.model import Diagnosis, Finding, Target, TargetKey
from driftwatch.notify.explanation import (
    Explanation,
    explanation,
    fact_texts,
    is_healthy,
    now_text,
    render_explained,
    state_text,
    what_to_do,
)

AT = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
CALM = {"slo_missed": False, "target_missed": False, "limit_full": "none", "binding_limit": "none"}
SAME = {"prompt_tokens_drift": "none", "generation_tokens_drift": "none"}
GREW = {"requests_per_second_ratio": 1.9}
SPEED = {"speed_at_equal_load_ratio": 1.0, "speed_smallest_detectable_loss_ratio": 0.09}
TUNED = {"kind": "tuned_for", "values": {"prompt_tokens_mean": 512.0}}
BASELINE = {"kind": "baseline", "from": AT, "to": AT + timedelta(hours=2), "values": {}}


def _finding(
    evidence: dict[str, Any], leaf: str = "healthy", missing: tuple[str, ...] = (), **rest: Any
) -> Finding:
    diagnosis = Diagnosis("batch-size-drift", leaf, (), missing=missing)
    target = Target(TargetKey("a:1", "0"), {})
    return Finding("explain", target, AT, evidence, diagnosis=diagnosis, **rest)


@pytest.mark.parametrize(
    ("evidence", "reference", "said"),
    [
        (
            {**CALM, **SAME, **SPEED},
            BASELINE,
            "In target, no limit full, lengths as in the baseline; a loss of 9 % or more would "
            "show",
        ),
        (
            {**CALM, **SAME, **SPEED, "prompt_tokens_mean_ratio": 1.3, **GREW},
            BASELINE,
            "In target, no limit full, prompts ×1.3 of what they were in the baseline, requests "
            "grew ×1.9; a loss of 9 % or more would show",
        ),
        (
            {**CALM, "slo_missed": None, "speed_unknown_reason": "not judged yet: 5 of 20 minutes"},
            None,
            "No latency target (slo of its pool), no limit full, lengths not compared (no "
            "baseline); speed: not judged yet: 5 of 20 minutes",
        ),
        (
            {**CALM, **SAME, "prompt_tokens_drift": "longer", "prompt_tokens_mean_ratio": 2.3},
            TUNED,
            "In target, no limit full, prompts ×2.3 of what they were tuned for; speed: no "
            "baseline in use yet (driftwatch baseline list)",
        ),
    ],
)
def test_a_healthy_server_says_what_holds(
    evidence: dict[str, Any], reference: dict[str, Any] | None, said: str
) -> None:
    """Also where tuned_for lacks a rate, so that the walk cannot compare it."""
    finding = _finding(
        evidence, "undetermined", ("requests_per_second_ratio",), reference=reference
    )
    assert is_healthy(finding)
    assert state_text(finding) == said
    assert what_to_do(finding) == ()
    why = {"slo_missed": "TPOT: 84 % to 100 % of requests met it"}
    finding = replace(finding, evidence={**evidence, "slo_missed": None}, reasons=why)
    assert state_text(finding).startswith(f"Unknown whether in target ({why['slo_missed']}), ")


@pytest.mark.parametrize(
    "bad",
    [{"slo_missed": True}, {"limit_full": "kv_cache"}, {"binding_limit": None}, {"gpus_lost": 1.0}],
)
def test_what_is_not_healthy_says_its_cause(bad: dict[str, Any]) -> None:
    why = {"requests_per_second_ratio": "tuned_for does not say requests_per_second (its rate)"}
    missing = ("requests_per_second_ratio",)
    finding = _finding({**CALM, **bad}, "undetermined", missing, reasons=why)
    bad_first = "1 GPU lost" if "gpus_lost" in bad else "No advice: the cause is not determined"
    assert state_text(finding).endswith(bad_first)
    cause, *do = what_to_do(finding)
    assert cause.text.endswith("has no answer: tuned_for does not say requests_per_second")
    assert [line.text for line in do] == ["give its rate"] * ("gpus_lost" not in bad)


def test_what_users_feel_now_stands_beside_an_old_page() -> None:
    missed = {**CALM, "slo_missed": True, "slo_ttft_seconds": 1.0, "ttft_in_target_10m_ratio": 0.02}
    assert now_text(_finding(missed, "healthy")) == "98 % of requests miss TTFT 1 s"
    assert now_text(_finding(CALM, "healthy")) == "all requests in target"
    lines = what_to_do(_finding({**missed, **GREW}, "healthy", reference=BASELINE))
    assert ("Moved", "requests grew ×1.9") in [(one.label, one.text) for one in lines]
    restarted = replace(_finding(CALM, "healthy"), recent_change="restarted 06:00 UTC")
    assert dict(fact_texts(restarted))["changed"] == "restarted 06:00 UTC"


def test_an_open_page_is_said_first_and_nothing_is_cut_in_a_pipe() -> None:
    page = CASES["batch_drift"].page()
    start = AT - timedelta(minutes=10)
    text = render_explained(CAP.finding, start, AT, page=page, piped=True)
    assert text.splitlines()[0] == page.summary
    assert all(line.text in text for line in page.lines)
    assert max(map(len, text.splitlines())) > 120
    terminal = render_explained(CAP.finding, start, AT, page=page)
    assert max(map(len, terminal.splitlines())) <= 80


def test_an_explanation_is_a_document() -> None:
    one = explanation(CAP.finding, AT - timedelta(minutes=10), AT)
    assert Explanation.read(one.text()) == one
    assert one.evidence["slo_missed"].reason == "no slo in the configuration"
