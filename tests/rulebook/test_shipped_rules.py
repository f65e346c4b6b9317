"""What the shipped rules say, on rows written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from rule_rows import (
    COVERAGE,
    PAST,
    REFERENCE,
    says,
)

from driftwatch.installation import shipped
from driftwatch.rulebook.book import Rulebook


def test_the_shipped_rules(book: Rulebook) -> None:
    found = [(rule.id, rule.severity, rule.enabled, rule.tree) for rule in book.rules]
    tree = "batch-size-drift"
    assert found == [
        ("BatchDrift", "page", True, tree),
        ("BatchLimitBinding", "page", True, tree),
        ("CoverageLost", "ticket", True, None),
        ('DeferredAdmission{severity="ticket"}', "ticket", True, tree),
        ('DeferredAdmission{severity="page"}', "page", True, tree),
        ("EngineStuck", "page", True, tree),
        ("GpuLost", "page", True, None),
        ('LengthDrift{direction="longer", signal="prompt_tokens"}', "notice", True, tree),
        ('LengthDrift{direction="shorter", signal="prompt_tokens"}', "notice", True, tree),
        ('LengthDrift{direction="longer", signal="generation_tokens"}', "notice", True, tree),
        ('LengthDrift{direction="shorter", signal="generation_tokens"}', "notice", True, tree),
        ("AcceptanceFell", "ticket", True, None),
        ("PrefixHitsFell", "ticket", True, None),
        ('RequestsRejected{severity="page"}', "page", True, None),
        ('RequestsRejected{severity="ticket"}', "ticket", True, None),
        ("QueueSpike", "notice", True, tree),
        ("SlowerAtEqualLoad", "page", True, tree),
        ("ReplicaSlow", "page", True, tree),
        ("LatencyCreep", "ticket", True, None),
        ("ThroughputDown", "page", False, tree),
        ("TrafficShift", "notice", True, None),
        ("UnevenTraffic", "notice", True, None),
        ('PhaseMixShift{direction="prefill"}', "notice", True, tree),
        ('PhaseMixShift{direction="decode"}', "notice", True, tree),
        ("RetuneAdvised", "ticket", True, None),
    ]
    limit = next(rule for rule in book.rules if rule.id == "BatchLimitBinding")
    assert (limit.for_seconds, limit.keep_firing_for_seconds) == (0, 300)
    off = next(rule for rule in book.rules if not rule.enabled)
    assert off.reason is not None and "137–402 times per server-month" in off.reason


def test_every_rule_says_why_its_thresholds_are_so() -> None:
    for path in sorted(shipped("rules").glob("*.yaml")):
        head, *rules = path.read_text(encoding="utf-8").split("- alert:")
        for rule in rules:
            assert "# " in rule or "# " in head, f"{path.name}: {rule.splitlines()[0]}"


def test_nothing_is_true_of_a_quiet_server(book: Rulebook) -> None:
    for rule in book.rules:
        unknown = rule.when.columns & {*REFERENCE, *COVERAGE, *PAST} and rule.id != "BatchDrift"
        if rule.enabled:
            assert says(book, rule.id) is (None if unknown else False), rule.id
            assert says(book, rule.id, **REFERENCE, **COVERAGE, **PAST) is False, rule.id


def test_engine_stuck(book: Rulebook) -> None:
    assert says(book, "EngineStuck", seconds_since_last_token=119.0) is False
    assert says(book, "EngineStuck", seconds_since_last_token=120.0) is True
    assert says(book, "EngineStuck", seconds_since_last_token=None) is None


@pytest.mark.parametrize(
    ("lost", "expected"), [(0.0, False), (1.0, True), (8.0, True), (None, None)]
)
def test_gpu_lost(book: Rulebook, lost: float | None, expected: bool | None) -> None:
    assert says(book, "GpuLost", gpus_lost=lost) is expected


def test_deferred_admission(book: Rulebook) -> None:
    ticket, page = 'DeferredAdmission{severity="ticket"}', 'DeferredAdmission{severity="page"}'
    change: dict[str, Any] = {"waiting_deferred_share_10m_ratio": 0.5}
    assert (says(book, ticket, **change), says(book, page, **change)) == (True, False)
    # the decode side of a disaggregated pair waits for its KV cache: only a missed target is news
    decode = {**change, "engine_kind": "decode_only"}
    assert (says(book, ticket, **decode), says(book, page, **decode)) == (False, False)
    assert says(book, page, **decode, slo_missed=True) is True
    change["slo_missed"] = True
    assert (says(book, ticket, **change), says(book, page, **change)) == (True, True)
    change["observed_10m_seconds"] = 299.0
    assert (says(book, ticket, **change), says(book, page, **change)) == (None, None)


@pytest.mark.parametrize(
    ("seconds", "ratio", "targets", "expected"),
    [
        (900, 0.01, 1, True),
        (899, 0.01, 1, False),
        (300, 0.1, 2, True),
        (300, 1.0, 1, False),
        (299, 0.5, 9, False),
        (300, None, 1, False),
        (900, None, None, True),
        (None, None, None, None),
    ],
)
def test_coverage_lost(
    book: Rulebook, seconds: float, ratio: float, targets: float, expected: bool | None
) -> None:
    answer = says(
        book,
        "CoverageLost",
        coverage_missing_seconds=seconds,
        pool_coverage_missing_ratio=ratio,
        pool_coverage_missing_targets=targets,
    )
    assert answer is expected


@pytest.mark.parametrize("signal", ["prompt_tokens", "generation_tokens"])
def test_length_drift(book: Rulebook, signal: str) -> None:
    longer = f'LengthDrift{{direction="longer", signal="{signal}"}}'
    shorter = f'LengthDrift{{direction="shorter", signal="{signal}"}}'
    column, swings = f"{signal}_mean_10m_ratio", f"{signal}_usual_ratio"
    scores = f"{signal}_drift_score", f"{signal}_peer_score"

    def answers(rule: str, ratios: Sequence[float | None], **more: Any) -> list[bool | None]:
        told = {"observed_10m_seconds": 600.0, swings: 1.2, **more}
        return [says(book, rule, **told, **{column: r}) for r in ratios]

    assert answers(longer, (0.67, 1.49, 1.5, None)) == [False, False, True, None]
    assert answers(shorter, (1.5, 0.68, 0.67, None)) == [False, False, True, None]
    # not beyond what the baseline's own means lead to expect, and unknown where nobody knows that
    assert answers(longer, (2.9, 3.0), **{swings: 3.0}) == [False, True]
    assert answers(shorter, (0.34, 0.33), **{swings: 3.0}) == [False, True]
    assert answers(longer, (4.0,), **{swings: None}) == [None]
    assert answers(longer, (4.0,), observed_10m_seconds=300.0) == [None]  # just restarted
    assert answers(longer, (2.0,), **dict(zip(scores, (1.0, 1.2), strict=True))) == [True]
    # its hours do so by themselves; one of its pool, of which UnevenTraffic speaks
    assert answers(longer, (2.0,), **dict(zip(scores, (0.9, 1.2), strict=True))) == [False]
    assert answers(longer, (2.0,), **dict(zip(scores, (2.0, 1.3), strict=True))) == [False]
