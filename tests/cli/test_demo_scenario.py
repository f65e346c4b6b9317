"""demo --scenario: lists, writes what replay reads, plays, serves, and refuses."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from driftwatch.cli.demo.live import serve_scenario
from driftwatch.fleet.scenario.file import scenario_named, shipped_scenarios

Run = Callable[..., tuple[int, str, str]]

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


def test_a_missed_expectation_is_a_problem(run: Run) -> None:
    assert run("demo", "--scenario", "short.yaml")[0] == 0
    Path("missed.yaml").write_text(SHORT.replace("[EngineStuck]", "[GpuLost]"))
    code, out, _ = run("demo", "--scenario", "missed.yaml")
    assert (code, out.count("MISSED")) == (1, 1)
    assert "MISSED   page GpuLost" in out


def test_the_list_names_every_scenario_and_what_is_expected(run: Run) -> None:
    code, out, _ = run("demo", "--list")
    rows = [line.split("\t") for line in out.splitlines()]
    assert code == 0
    assert [row[0] for row in rows] == [s.name for s in shipped_scenarios()]
    expected = {row[0]: row[2] for row in rows}
    assert expected["day"] == "no page, ticket or notice"
    assert expected["wedged"] == "page EngineStuck; leaf engine_stuck; no setting helps"


def test_what_is_written_is_replayed_and_gives_what_the_demo_says(run: Run) -> None:
    code, out, _ = run("demo", "--scenario", "short.yaml", "--write", "made", "--jobs", "1")
    assert code == 0
    command = re.search(r"^next: driftwatch (.*)$", out, re.M)
    assert command is not None
    code, told, _ = run(*command[1].split(), "--json")
    assert code == 0
    pages = [json.loads(line) for line in told.splitlines()]
    fired = [p for p in pages if p["event"] == "firing"]
    assert {(p["alert"], p["target"]["instance"]) for p in fired} == {
        ("EngineStuck", "tiny-1:8000")
    }
    code, shown, _ = run("demo", "--scenario", "short.yaml", "--fast", "--jobs", "1")
    assert code == 0
    assert "injected  Mon 08:09 UTC: an engine hangs (1 of them)" in shown
    assert "FIRING tiny-1:8000: no token for" in shown
    assert "FOUND    page EngineStuck after" in shown
    assert "FOUND    leaf engine_stuck" in shown and "EXTRA" not in shown
    assert "next:    driftwatch demo --scenario short.yaml --seed 1 --write DIR" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--write", "x"], "--write and --live need --scenario"),
        (["--seed", "3"], "--seed, --jobs"),
        (["--scenario", "wedged", "--list"], "not both"),
        (["--scenario", "wedged", "--for", "3m"], "--for needs --live"),
        (["--scenario", "wedged", "--write", "x", "--live"], "--write or --live"),
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
        code, out, err = run(
            *("demo", "--scenario", "short.yaml", "--write", "made", "--jobs", "1"),
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert (code, out) == (2, "")
    assert (
        "made: the recording could not be written" in err
        and "make room" in err
        and "Traceback" not in err
    )


def test_a_live_scenario_is_served_to_its_end_and_no_longer(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that stand still after the end are a hung engine to whoever reads them."""
    waited: list[float | None] = []
    monkeypatch.setattr("driftwatch.cli.logs.until_signal", waited.append)
    short = scenario_named("short.yaml")
    for given in (None, 60.0, 1e6):
        serve_scenario(short, 1, for_seconds=given)
    first = min(effect.at for effect in short.truth.effects)
    left = short.duration - max(0.0, first - 120.0)
    assert waited == [left, 60.0, left]


@pytest.mark.slow
def test_live_pages_until_a_signal(tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text(SHORT)
    process = subprocess.Popen(
        [sys.executable, "-m", "driftwatch", "demo", "--scenario", "short.yaml", "--live"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        name, url = process.stdout.readline().split()
        assert name == "tiny-0:8000"
        assert "vllm:num_requests_running{" in requests.get(url, timeout=10).text
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()
