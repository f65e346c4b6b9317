"""A slow server of a simulated pool: its page and `recommend` say the same of the others' room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e_cases import pages

ONE_OF_THREE = """\
name: one-of-three
title: one engine of three 20 % slower at equal load
duration: 5h
pool: {name: chat-8b, replicas: 3, slo: {ttft_seconds: 2.0, tpot_seconds: 0.1}}
traffic: {requests_per_second: 20, wander_ratio: 0.35}
faults:
  - {kind: slowdown, at: 4h, factor: 1.2500, replicas: [0]}
truth:
  baseline: {at: 10m, until: 235m}
  effects:
    - {what: slower, kind: slowdown, size: 0.2, at: 4h, replicas: [0], pages: [SlowerAtEqualLoad]}
"""


@pytest.mark.slow
def test_the_room_of_the_others_is_what_recommend_says(run: Any, tmp_path: Path) -> None:
    fleet, database = tmp_path / "fleet", tmp_path / "d.db"
    (scenario := tmp_path / "one.yaml").write_text(ONE_OF_THREE)
    written = run("demo", "--scenario", scenario, "--write", fleet)
    assert written.exit_code == 0, written.output
    config = ("-c", fleet / "driftwatch.yaml", "--db", database)
    sent = pages(run("replay", fleet, *config, "--json", *_baseline(written.output)))
    fired = next(one for one in sent if one["alert"] == "SlowerAtEqualLoad")
    (room,) = (line["text"] for line in fired["lines"] if line["label"] == "Room")
    peers = sorted(set(_servers(fleet)) - set(fired["servers"]["first"]))
    at = ("--at", fired["times"]["evaluated_at"], "--json")
    answers = [json.loads(run("recommend", one, *at, *config).stdout) for one in peers]
    used = max(
        one["offered_requests_per_second"] / one["today"]["capacity_requests_per_second"]
        for one in answers
    )
    assert f"from {100 * used:.0f} to" in room, (room, used)


def _baseline(output: str) -> list[str]:
    words = output.split()
    return [*words[words.index("--baseline") :][:2]] if "--baseline" in words else []


def _servers(fleet: Path) -> list[str]:
    urls = yaml.safe_load((fleet / "driftwatch.yaml").read_text())["sources"][0]["pages"]
    return [url.removeprefix("http://").removesuffix("/metrics") for url in urls]
