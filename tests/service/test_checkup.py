"""doctor: every input of every rule, and the line that fixes what is missing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
from checkup_cases import COMPLETE, page_text, plan_with, scrapes_of, targets_of
from fakes.manual_clock import ManualClock
from filled import filled
from service_cases import shipped_plan

from driftwatch.doctor.checkup import Inputs, checkup
from driftwatch.doctor.paging import database_checks, receiver_checks, speed_waits
from driftwatch.doctor.rules import Check, Checkup
from driftwatch.errors import DeliveryError
from driftwatch.model import Slo
from driftwatch.pipeline.plan import Pool, TunedFor
from driftwatch.receivers.sender import Message
from driftwatch.report.make import report_of
from driftwatch.report.material import Material
from driftwatch.report.week import Week
from driftwatch.service.metrics import OwnMetrics
from driftwatch.service.outbox import Outbox
from driftwatch.store.store import Store

LENGTH_DRIFT = tuple(
    f'LengthDrift{{direction="{direction}", signal="{signal}"}}'
    for signal in ("prompt_tokens", "generation_tokens")
    for direction in ("longer", "shorter")
)


def _page(shared_data: Path, change: str = "", by: str = "") -> pl.DataFrame:
    return scrapes_of({"host:8000": page_text(shared_data, change, by)})


def _checked(frame: pl.DataFrame, pool: Pool = COMPLETE, **inputs: Any) -> Checkup:
    plan = plan_with(pool)
    return checkup(frame, targets_of(plan, "host:8000"), plan, Inputs(**inputs))


def _trouble(found: Checkup) -> list[Check]:
    return [c for c in found.checks if c.status in ("MISSING", "WARNING")]


OF_A_DAY = {"PrefixHitsFell", "ClientsGiveUp"}  # or of a baseline
PHASE_MIX = tuple(f'PhaseMixShift{{direction="{phase}"}}' for phase in ("prefill", "decode"))


def test_a_complete_configuration_is_ready(shared_data: Path) -> None:
    found = _checked(_page(shared_data))
    assert _trouble(found) == []
    assert found.ready
    spikes = 'QueueSpike{severity="notice"}'
    later = {"SlowerAtEqualLoad", spikes, "LatencyCreep", "RetuneAdvised"} | OF_A_DAY
    assert (found.learning, found.off) == (later, {"AcceptanceFell", "ReplicaSlow"})
    old = _checked(_page(shared_data), past=timedelta(days=8))
    assert later - old.learning == {"LatencyCreep"} | OF_A_DAY
    assert {rule for rule, able in found.rules.items() if not able} == found.learning | found.off


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
    assert _checked(_page(shared_data), pool, has_baseline=True).ready


def test_a_target_between_bucket_edges_is_warned_of(shared_data: Path) -> None:
    slo = Slo(ttft_seconds=0.8, tpot_seconds=0.06)
    ttft, tpot = _trouble(_checked(_page(shared_data), replace(COMPLETE, slo=slo)))
    assert "slo.ttft_seconds 0.8 is no bucket edge" in ttft.what
    assert ttft.fix == "slo.ttft_seconds: 0.75 or 1"
    assert "slo.tpot_seconds 0.06 is no bucket edge" in tpot.what
    assert tpot.fix == "slo.tpot_seconds: 0.05 or 0.075"


def test_receivers() -> None:
    (none,) = receiver_checks({})
    assert (none.status, none.what) == ("MISSING", "none configured, so pages reach nobody")
    at = ("receivers", 1, "webhook", "url_file")
    bad, good = receiver_checks({"a": {}, "b": {at: "/x: no such file or directory"}})
    assert good.status == "ok"
    assert (bad.status, bad.where, bad.setting) == ("MISSING", "b", at)
    assert "/x: no such file" in bad.what
    assert not Checkup((good, bad), {"R": True}).ready
    assert not Checkup((good, none), {"R": True}).ready
    assert Checkup((good,), {"R": True}).ready


def test_stats_disabled_is_the_reason_and_the_fix(shared_data: Path) -> None:
    text = (shared_data / "vllm-0.32/metrics_disable_log_stats.txt").read_text()
    found = _checked(scrapes_of({"host:8000": text}))
    assert not any(found.rules.values())
    missing = next(c for c in found.checks if c.status == "MISSING")
    assert "stats disabled" in missing.what
    assert missing.fix is not None
    assert missing.fix.startswith("start vLLM without --disable-log-stats")


class _Refusing:
    def send(self, message: Message) -> None:
        raise DeliveryError("401: no such webhook", permanent=True)


def test_deliveries_that_were_given_up_have_a_line() -> None:
    at = datetime(2026, 11, 23, 7, 10, tzinfo=UTC)
    document = report_of(Material(Week(2026, 47), Week(2026, 47).end)).document()
    with Store.in_memory() as store:
        store.write_report("2026-W47", document, ["desk"], at)
        outbox = Outbox(store, ManualClock(at), OwnMetrics())
        outbox.adopt({"desk": _Refusing()})
        outbox.deliver_once()
        (check,) = database_checks(store, at)
    assert (check.status, check.where) == ("WARNING", "desk")
    assert check.what == "1 message given up in 7 days"
    assert check.fix is not None and "--send-test desk" in check.fix


def test_what_speed_waits_for_is_what_the_newest_minute_says(shared_data: Path) -> None:
    """So doctor, explain and the web give one answer."""
    with filled(shared_data / "vllm-0.32/run_cap", shipped_plan()) as store:
        (row,) = store.past(*(store.minutes_reach() or (None, None))).tail(1).iter_rows(named=True)
        (waits,) = speed_waits(store).values()
    assert row["speed_unknown_code"] == "no_baseline"
    assert waits == row["speed_unknown_reason"] and waits.startswith("no baseline in use yet: ")
