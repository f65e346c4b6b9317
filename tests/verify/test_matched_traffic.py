"""Matched traffic on real servers: the truth is known, as the same requests were sent again."""

from __future__ import annotations

import gzip
import json
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from verify_cases import DATA, between, minutes_of, opened, restart_of

from driftwatch.model import Slo
from driftwatch.verify.compare import compare
from driftwatch.verify.matching import matched, settled_at, with_traffic
from driftwatch.verify.verdict import look, minutes_of_change, verified


@pytest.fixture(autouse=True)
def _recordings(shared_data: Path) -> None:
    """Skipped, by name, where the recordings are not there."""


def _truth(run: str) -> dict[str, dict[str, float]]:
    told = json.loads((DATA / run / "phase_summary.json").read_text())
    return {phase["phase"]: phase for phase in told}


def test_arrivals_are_what_was_sent_not_what_was_served() -> None:
    minutes = with_traffic(minutes_of("run_cap"))
    with gzip.open(DATA / "run_cap" / "requests.jsonl.gz", "rt") as lines:
        sent = np.array([json.loads(line)["sent"] for line in lines])
    # the backlog at the end of the heavy part: served long after it was sent
    peak = int(minutes["waiting_requests"].arg_max() or 0)
    for first, last in ((peak - 4, peak + 2),):
        end = minutes["end"][last].timestamp()
        start = minutes["end"][first - 1].timestamp()
        true = int(((sent > start) & (sent <= end)).sum())
        told = minutes[first : last + 1]
        arrived = float((told["requests_per_second"] * told["duration_seconds"]).sum())
        assert arrived == pytest.approx(true, rel=0.03)
    drained = minutes[peak + 1]
    served = drained["ttft_seconds_count"][0] / drained["duration_seconds"][0]
    assert drained["requests_per_second"][0] < 0.9 * served


def test_effects_of_the_raised_cap_hold_the_truth_of_the_heavy_phase() -> None:
    minutes, truth = minutes_of("run_cap"), _truth("run_cap")
    # heavy: minutes 3 to 12 before the restart, 18 to 27 after it
    found = compare(between(minutes, 3, 13), between(minutes, 18, 27), fewest_minutes=8)
    was, now = truth["cap8_heavy"], truth["cap64_heavy"]
    for name, figure, scale in (
        ("ttft_seconds_mean", "ttft_mean_ms", 1e-3),
        ("itl_seconds_mean", "itl_mean_ms", 1e-3),
        ("e2e_seconds_mean", "e2e_mean_s", 1.0),
        ("generation_tokens_per_second", "gen_tok_s", 1.0),
        ("running_requests", "running_mean", 1.0),
    ):
        effect = found.effect(name)
        assert effect is not None
        assert effect.low <= scale * (now[figure] - was[figure]) <= effect.high, name
    for name in ("ttft_seconds_mean", "e2e_seconds_mean"):
        effect = found.effect(name)
        assert effect is not None
        assert effect.high < 0, name
    assert found.load_after == pytest.approx(found.load_before, rel=0.03)


def test_light_traffic_alone_gives_no_verdict() -> None:
    minutes = minutes_of("run_cap")
    found = verified(
        opened(restart_of(minutes)), between(minutes, 0, 3), between(minutes, 16, 18), _end(minutes)
    )
    assert found.verdict == "INCONCLUSIVE"
    assert "10 are needed" in found.reason
    assert found.effects == ()


def test_warm_up_and_the_restart_are_left_out() -> None:
    minutes = minutes_of("run_cap")
    at = restart_of(minutes)
    before, after = minutes_of_change(minutes, at, _end(minutes))
    assert before["end"].max() < at
    assert after["end"].min() == at + timedelta(minutes=3)


def test_a_backlog_is_drained_before_minutes_count() -> None:
    minutes = minutes_of("run_cap")
    at = restart_of(minutes)
    after = minutes.filter(pl.col("end") > at)
    backlog = [40.0, 30.0, 20.0, 10.0, 5.0, 0.2]
    waits = pl.Series(backlog + [0.0] * (len(after) - len(backlog)))
    drained = after.with_columns(waiting_requests=waits)
    assert settled_at(drained, at) == at + timedelta(minutes=6)
    # what never drains is load
    saturated = after.with_columns(waiting_requests=pl.lit(40.0))
    assert settled_at(saturated, at) == at + timedelta(minutes=10)


def test_a_cap_raised_on_a_real_server_passes_with_shares_too() -> None:
    minutes = minutes_of("run_cap")
    at = restart_of(minutes)
    before, after = minutes_of_change(minutes, at, _end(minutes))
    slo = Slo(ttft_seconds=1.0, tpot_seconds=0.05)
    found = verified(opened(at), before, after, _end(minutes), slo=slo)
    assert found.verdict == "PASS", found.reason
    shares = found.effects[0]
    assert shares.name == "in_target_ratio"
    assert shares.after == pytest.approx(1.0, abs=0.01)
    assert shares.low > 0.1
    assert any("arrivals" in note for note in found.notes)


def test_the_same_change_backwards_fails() -> None:
    minutes = minutes_of("run_cap")
    at = restart_of(minutes)
    before, after = minutes_of_change(minutes, at, _end(minutes))
    found = verified(opened(at), after, before, _end(minutes))
    assert found.verdict == "FAIL"
    # one look at ten minutes is no ground to fail: an empty prefix cache looks like that
    still = look(opened(at), after, before[:12], _end(minutes))
    assert (still.verdict, still.closed_at) == ("open", None)


def test_an_engine_that_was_slowed_in_place_fails_and_is_measured() -> None:
    minutes, truth = minutes_of("run_slow"), _truth("run_slow")
    found = compare(between(minutes, 0, 22), between(minutes, 23, 34))
    itl = found.effect("itl_seconds_mean")
    assert itl is not None
    grown = 1e-3 * (truth["engine_slow"]["itl_mean_ms"] - truth["baseline"]["itl_mean_ms"])
    assert 0 < itl.low <= grown <= itl.high
    said = verified(
        opened(_end(minutes)), between(minutes, 0, 22), between(minutes, 23, 34), _end(minutes)
    )
    assert said.verdict == "FAIL"


def test_the_same_server_before_and_after_nothing_has_no_effect() -> None:
    minutes = minutes_of("run_slow")
    found = compare(between(minutes, 0, 22), between(minutes, 35, 43), fewest_minutes=7)
    for name in ("itl_seconds_mean", "ttft_seconds_mean", "e2e_seconds_mean"):
        effect = found.effect(name)
        assert effect is not None
        assert effect.low < 0 < effect.high, name


def test_what_cannot_be_matched_on_load_is_ordered_by_it() -> None:
    minutes = minutes_of("run_slow")
    slow, fine = between(minutes, 23, 34), between(minutes, 0, 22)
    # the fine server is asked for three times as much: no common load, more at every decile
    more = fine.with_columns(requests_per_second=pl.col("requests_per_second") * 3)
    assert matched(slow, more).minutes[0] < 10
    found = verified(opened(_end(minutes)), slow, more, _end(minutes))
    assert found.verdict == "PASS"
    assert any("lower bounds" in note for note in found.notes)
    # and the slow one at more load: nobody can say whether it is the load
    asked = slow.with_columns(requests_per_second=pl.col("requests_per_second") * 3)
    unclear = verified(opened(_end(minutes)), fine, asked, _end(minutes))
    assert unclear.verdict == "INCONCLUSIVE"
    assert "demand cannot be matched" in unclear.reason


def _end(minutes: pl.DataFrame) -> datetime:
    end = minutes["end"][-1]
    assert isinstance(end, datetime)
    return end


def test_overloaded_before_and_after_only_full_minutes_are_compared() -> None:
    minutes = minutes_of("run_cap")
    whole = between(minutes, 0, 13)
    full = pl.Series([True, False] * len(whole))[: len(whole)]
    told = whole.with_columns(saturated=full)
    found = compare(told, told, fewest_minutes=3)
    assert found.saturated == pytest.approx((full.mean(), full.mean()))
    assert found.matched.by == ("prompt_tokens_mean", "generation_tokens_mean")
    assert found.matched.minutes[0] == int(full.sum())
    assert found.overloaded
