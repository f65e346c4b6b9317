"""demo --scenario: lists, writes what replay reads, plays, and refuses."""

from __future__ import annotations

import json
import re
import resource
import signal
from pathlib import Path

import pytest
from command_cases import Run

from driftwatch.fleet.scenario.file import shipped_scenarios

SHORT = """\
name: short
title: an engine hangs
duration: 16m
pool: {name: tiny, replicas: 2}
traffic: {requests_per_second: 8}
faults: [{kind: wedge, at: 9m, replicas: [1]}]
truth:
  baseline: {at: 1m, until: 8m}
  effects:
    - what: an engine hangs
      kind: wedge
      at: 9m
      replicas: [1]
      leaf: engine_stuck
      pages: [EngineStuck]
"""


@pytest.fixture
def run(run: Run) -> Run:
    Path("short.yaml").write_text(SHORT)
    return run


def test_the_list_names_every_scenario_and_what_is_expected(run: Run) -> None:
    code, out, _ = run("demo", "--list")
    rows = [line.split("\t") for line in out.splitlines()]
    assert code == 0
    assert [row[0] for row in rows] == [s.name for s in shipped_scenarios()]
    expected = {row[0]: row[2] for row in rows}
    assert expected["day"] == "no page, ticket or notice"
    assert expected["wedged"] == "page EngineStuck; leaf engine_stuck; no setting helps"


def test_what_is_written_is_replayed_and_gives_what_the_demo_says(run: Run) -> None:
    code, out, _ = run("demo", "--scenario", "short.yaml", "--write", "made")
    assert (code, Path("made/driftwatch.yaml").read_text()[:9]) == (0, "sources:\n")
    command = re.search(r"^next: driftwatch (.*)$", out, re.M)
    assert command is not None
    code, told, _ = run(*command[1].split(), "--json")
    assert code == 0
    pages = [json.loads(line) for line in told.splitlines()]
    fired = [p for p in pages if p["event"] == "firing"]
    assert [(p["alert"], p["servers"]["first"]) for p in fired] == [
        ("EngineStuck", ["tiny-1:8000"])
    ]
    code, shown, _ = run("demo", "--scenario", "short.yaml")
    assert code == 0
    assert "injected  Mon 08:09 UTC: an engine hangs (1 of them)" in shown
    assert "FIRING tiny-1:8000: no token for" in shown
    assert "expected  page EngineStuck; leaf engine_stuck; no setting helps" in shown
    assert "next:    driftwatch demo --scenario short.yaml --seed 1 --write DIR" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--write", "x"], "--seed and --write need --scenario"),
        (["--scenario", "no-such"], "there is no scenario 'no-such'"),
        (["--scenario", "absent.yaml"], "absent.yaml"),
        (["--scenario", "short.yaml", "--write", "."], "not empty"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, arguments: list[str], said: str) -> None:
    code, out, err = run("demo", *arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_a_full_disk_is_an_error_with_help_not_a_traceback(run: Run) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        code, out, err = run("demo", "--scenario", "short.yaml", "--write", "made")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert (code, out) == (2, "")
    assert "made: the recording could not be written" in err and "make room" in err
