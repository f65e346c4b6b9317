"""Lengths that are gone for good: one ticket a pool, advised on by a replay of its last hour."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from e2e_cases import pages

from driftwatch.installation import shipped

# A day and an hour as the pin has them, then answers four times as long, and the cap of 16 binds.
SCENARIO = """\
name: retune
title: generations four times as long, for good
duration: 1810m
start: 2026-11-16T00:00:00Z
scrape: {interval: 60s}
pool:
  replicas: 1
  dcgm: false
  serving: {max_num_seqs: 16, max_num_batched_tokens: 2048}
  slo: {ttft_seconds: 1.0, tpot_seconds: 0.05}
traffic:
  requests_per_second: 0.8
  prefix_hit_ratio: 0
  changes:
    - {at: 23h, generation_factor: 4.0, rate_factor: 2.0}
truth:
  baseline: {at: 0h, until: 23h}
"""
# without the rules of limits, whose pages would ask the replay as well
RULES = ("coverage", "engine-stuck", "gpu", "speed", "traffic", "length-drift")


@pytest.mark.slow
def test_the_ticket_says_what_moved_and_what_a_replay_advises(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "retune.yaml").write_text(SCENARIO)
    made = run("demo", "--scenario", "retune.yaml", "--write", "rec", "--format", "compact")
    assert made.exit_code == 0, made.output
    config = json.loads((tmp_path / "rec" / "driftwatch.yaml").read_text())
    config["rules"] = [str(shipped("rules") / f"{name}.yaml") for name in RULES]
    (tmp_path / "rec" / "driftwatch.yaml").write_text(json.dumps(config))
    day = "2026-11-16T00:00:00Z..2026-11-16T23:00:00Z"
    told = pages(run("replay", "rec", "-c", "rec/driftwatch.yaml", "--baseline", day, "--json"))
    (ticket,) = [page for page in told if page["alert"] == "RetuneAdvised"]
    assert (ticket["event"], ticket["severity"]) == ("firing", "ticket")
    assert ticket["times"]["firing_at"] > "2026-11-17T02:00:00Z"
    assert ticket["evidence"]["generation_tokens_pin_ratio"]["value"] > 2
    assert ticket["evidence"]["generation_tokens_pin_score"]["value"] > 1.3
    advised = ticket["recommendation"]
    # of the traffic as it is now, not of the 24 hours that are compared
    assert (advised["action"], advised["knob"], advised["basis"]) == (
        "change",
        "max_num_seqs",
        "simulation",
    )
    assert (advised["from"], advised["undo"]) == (16, "--max-num-seqs 16")
    assert 32 <= advised["to"] <= 128
    assert advised["effect"]
    assert "restart" in " ".join(advised["price"])
    line = ticket["summary"]
    assert line.startswith("TICKET chat-8b")
    assert "longer than it was tuned for" in line
    assert f"Set max_num_seqs 16 → {advised['to']:.0f}" in line
