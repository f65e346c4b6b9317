"""doctor: every input of every rule, and the line that fixes what is missing."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from service_cases import shipped_plan

from driftwatch.collect.pages.parser import PageParser
from driftwatch.doctor.checks import Check, Checkup
from driftwatch.doctor.checkup import Inputs, checkup, receiver_checks
from driftwatch.model import Serving, Setting, Slo, Target, TargetKey
from driftwatch.pipeline.plan import Plan, Pool, TunedFor

KEY = TargetKey("host:8000", "0")
COMPLETE = Pool(
    "chat",
    serving=Serving(
        max_num_seqs=Setting(64, "config"), max_num_batched_tokens=Setting(1024, "config")
    ),
    slo=Slo(ttft_seconds=1.0, tpot_seconds=0.05),
    tuned_for=TunedFor(128, 64),
)


LENGTH_DRIFT = tuple(
    f'LengthDrift{{direction="{direction}", signal="{signal}"}}'
    for signal in ("prompt_tokens", "generation_tokens")
    for direction in ("longer", "shorter")
)


def _page(shared_data: Path, change: str = "", by: str = "") -> pl.DataFrame:
    text = (shared_data / "vllm-0.32/metrics_during_load.txt").read_text()
    if change:
        assert re.search(change, text, flags=re.M)
        text = re.sub(change, by, text, flags=re.M)
    return PageParser().parse("host:8000", datetime(2026, 1, 5, tzinfo=UTC), text.encode()).scrapes


def _checked(frame: pl.DataFrame, pool: Pool = COMPLETE, baseline: bool = False) -> Checkup:
    plan: Plan = replace(shipped_plan(), pools=(pool,))
    targets = plan.assign({KEY: Target(KEY, {"model_name": "m"})})
    return checkup(frame, targets, plan, Inputs(has_baseline=baseline))


def _trouble(found: Checkup) -> list[Check]:
    return [c for c in found.checks if c.status in ("MISSING", "WARNING")]


OF_BASELINES = ("QueueSpike",)
PHASE_MIX = tuple(f'PhaseMixShift{{direction="{phase}"}}' for phase in ("prefill", "decode"))


def test_a_complete_configuration_is_ready(shared_data: Path) -> None:
    found = _checked(_page(shared_data))
    assert _trouble(found) == []
    assert found.ready
    later = {"SlowerAtEqualLoad", "LatencyCreep", "RetuneAdvised", *OF_BASELINES}
    assert (found.learning, found.off) == (later, {"AcceptanceFell", "ReplicaSlow"})
    assert {rule for rule, able in found.rules.items() if not able} == found.learning | found.off


def test_what_waits_says_for_what(shared_data: Path) -> None:
    frame, plan = _page(shared_data), replace(shipped_plan(), pools=(COMPLETE,))
    targets = plan.assign({KEY: Target(KEY, {"model_name": "m"})})
    told = "15 of 20 minutes, load spread 2.1x of 3x, not before 11:34 UTC"
    found = checkup(frame, targets, plan, Inputs(waits={KEY: told}))
    later = {(c.status, c.what): c.disables for c in found.checks}
    assert later["LEARNING", told] == (
        *OF_BASELINES,
        "SlowerAtEqualLoad",
    )
    drafts = "drafts no tokens (speculative decoding)"
    assert later["OFF", drafts] == ("AcceptanceFell",)
    assert later["OFF", "has 1 server, a comparison needs 3"] == ("ReplicaSlow",)
    assert later["LEARNING", "needs 7 days of history"] == ("LatencyCreep",)
    armed = checkup(frame, targets, plan, Inputs(waits={KEY: ""}))
    assert "SlowerAtEqualLoad" not in armed.learning
    assert armed.rules["SlowerAtEqualLoad"]


@pytest.mark.parametrize(
    ("family", "rule"),
    [
        ("num_requests_waiting(_by_reason)?", "BatchLimitBinding"),
        (
            "request_generation_tokens",
            'LengthDrift{direction="longer", signal="generation_tokens"}',
        ),
    ],
)
def test_a_family_that_is_gone_disables_its_rules(
    shared_data: Path, family: str, rule: str
) -> None:
    found = _checked(_page(shared_data, rf"^vllm:{family}(_bucket|_sum|_count|_created)?\{{.*\n"))
    assert not found.ready
    assert found.rules[rule] is False
    missing = [c for c in found.checks if c.status == "MISSING"]
    name = f"vllm:{family}".partition("(")[0]
    assert any(name in c.what and rule in c.disables for c in missing)


def test_without_the_waiting_gauge_a_stuck_engine_is_still_seen(shared_data: Path) -> None:
    found = _checked(_page(shared_data, r"^vllm:num_requests_waiting\{.*\n"))
    (check,) = _trouble(found)
    # the limits' rules ask whether tokens still come, and say nothing of recovery without it
    rules = ("BatchDrift", "BatchLimitBinding", "EngineSilent", "EngineStuck")
    parts = tuple(f"a part of {rule}" for rule in rules)
    assert (check.status, check.disables) == ("WARNING", parts)
    assert found.ready


def test_no_reference_disables_length_drift_and_a_baseline_enables_it(shared_data: Path) -> None:
    pool = replace(COMPLETE, tuned_for=TunedFor())
    without = _checked(_page(shared_data), pool)
    assert [
        r for r, can in without.rules.items() if not can and r not in without.learning | without.off
    ] == [
        "BatchDrift",
        *LENGTH_DRIFT,
        *PHASE_MIX,
    ]
    assert _checked(_page(shared_data), pool, baseline=True).ready


def test_unknown_settings_are_warned_of(shared_data: Path) -> None:
    found = _checked(_page(shared_data), replace(COMPLETE, serving=Serving(), slo=Slo()))
    assert found.ready  # the rules can fire, with less to say
    texts = " ".join(c.what for c in _trouble(found))
    assert "max_num_seqs" in texts
    assert "max_num_batched_tokens" in texts
    assert "no slo" in texts
    assert {c.pool for c in _trouble(found)} == {"chat"}


def test_a_target_between_bucket_edges_is_warned_of(shared_data: Path) -> None:
    slo = Slo(ttft_seconds=0.8, tpot_seconds=0.06)
    ttft, tpot = _trouble(_checked(_page(shared_data), replace(COMPLETE, slo=slo)))
    assert "slo.ttft_seconds 0.8 is no bucket edge" in ttft.what
    assert ttft.fix == "slo.ttft_seconds: 0.75 or 1"
    assert "slo.tpot_seconds 0.06 is no bucket edge" in tpot.what
    assert tpot.fix == "slo.tpot_seconds: 0.05 or 0.075"


def test_receivers() -> None:
    (none,) = receiver_checks([])
    assert (none.status, none.what) == ("WARNING", "none configured: pages reach nobody")
    good, bad = receiver_checks([("a", None), ("b", "/x: no such file or directory")])
    assert good.status == "ok"
    assert (bad.status, bad.where) == ("MISSING", "b")
    assert "/x: no such file" in bad.what
    assert not Checkup((good, bad), {"R": True}).ready
    assert Checkup((good, none), {"R": True}).ready


def test_stats_disabled_is_the_reason_and_the_fix(shared_data: Path) -> None:
    text = (shared_data / "vllm-0.32/metrics_disable_log_stats.txt").read_bytes()
    frame = PageParser().parse("host:8000", datetime(2026, 1, 5, tzinfo=UTC), text).scrapes
    found = _checked(frame)
    assert not any(found.rules.values())
    missing = next(c for c in found.checks if c.status == "MISSING")
    assert "stats disabled" in missing.what
    assert missing.fix is not None
    assert missing.fix.startswith("start vLLM without --disable-log-stats")
    assert "if another program answers there" in missing.fix


def test_several_api_servers_are_warned_of(shared_data: Path) -> None:
    text = (shared_data / "vllm-0.32/metrics_api2_after.txt").read_bytes()
    frame = PageParser().parse("host:8000", datetime(2026, 1, 5, tzinfo=UTC), text).scrapes
    assert any("several API servers" in c.what for c in _trouble(_checked(frame)))


def test_rules_that_are_off_are_listed_with_their_reason(shared_data: Path) -> None:
    off = [c for c in _checked(_page(shared_data)).checks if c.status == "OFF" and not c.disables]
    off = [c for c in off if not c.what.startswith("recommend says")]  # a datasheet is no rule
    assert [c.where for c in off] == ["ThroughputDown"]
    assert "server-month" in off[0].what
