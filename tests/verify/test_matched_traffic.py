"""Matched traffic on real servers: the truth is known, as the same requests were sent again."""

from __future__ import annotations

import gzip
import json
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from verify_cases import DATA, between, minutes_of, opened, restart_of

from driftwatch.model import Slo
from driftwatch.verify.before_after import around_change
from driftwatch.verify.matching import with_traffic
from driftwatch.verify.verdict import verified


@pytest.fixture(autouse=True)
def _recordings(shared_data: object) -> None:
    """Skipped, by name, where the recordings are not there."""


def _truth(run: str) -> dict[str, dict[str, float]]:
    told = json.loads((DATA / run / "phase_summary.json").read_text())
    return {phase["phase"]: phase for phase in told}


def _end(minutes: pl.DataFrame) -> datetime:
    end = minutes["end"][-1]
    assert isinstance(end, datetime)
    return end


def test_arrivals_are_what_was_sent_not_what_was_served() -> None:
    minutes = with_traffic(minutes_of("run_cap"))
    with gzip.open(DATA / "run_cap" / "requests.jsonl.gz", "rt") as lines:
        sent = np.array([json.loads(line)["sent"] for line in lines])
    # five minutes up to the peak of the queue: served long after they were sent
    peak = int(minutes["waiting_requests"].arg_max() or 0)
    end = minutes["end"][peak].timestamp()
    true = ((sent > end - 300) & (sent <= end)).sum() / 300
    assert minutes["requests_per_second"][peak] == pytest.approx(true, rel=0.05)


def test_effects_of_the_raised_cap_hold_the_truth_of_the_heavy_phase() -> None:
    minutes, truth = minutes_of("run_cap"), _truth("run_cap")
    # heavy: minutes 3 to 13 before the restart, 18 to 28 after it
    before, after = between(minutes, 3, 13), between(minutes, 18, 28)
    found = verified(opened(_end(after)), before, after, _end(after))
    effects = {effect.name: effect for effect in found.effects}
    was, now = truth["cap8_heavy"], truth["cap64_heavy"]
    for name, figure, scale in (
        ("ttft_seconds_mean", "ttft_mean_ms", 1e-3),
        ("itl_seconds_mean", "itl_mean_ms", 1e-3),
        ("e2e_seconds_mean", "e2e_mean_s", 1.0),
        ("generation_tokens_per_second", "gen_tok_s", 1.0),
        ("running_requests", "running_mean", 1.0),
    ):
        effect = effects[name]
        if name == "ttft_seconds_mean":  # as a share of what it was in the matched minutes
            scale = effect.before / was[figure]
        assert effect.low <= scale * (now[figure] - was[figure]) <= effect.high, name
    assert effects["ttft_seconds_mean"].high < 0
    assert effects["e2e_seconds_mean"].high < 0


def test_a_cap_raised_on_a_real_server_passes_with_shares_too() -> None:
    minutes = minutes_of("run_cap")
    at = restart_of(minutes)
    before, after = around_change(minutes, at, _end(minutes))
    # the restart and the warm-up are left out
    assert (before["end"].max() < at, after["end"].min()) == (True, at + timedelta(minutes=3))
    slo = Slo(ttft_seconds=1.0, tpot_seconds=0.05)
    found = verified(opened(at), before, after, _end(minutes), slo=slo)
    assert found.verdict == "PASS", found.reason
    shares = found.effects[0]
    assert shares.name == "in_target_ratio"
    assert shares.after == pytest.approx(1.0, abs=0.01)
    assert shares.low > 0.1
