"""`driftwatch rules explain`: over a recording, and over what a service stored of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from conftest import Run
from structlog.testing import capture_logs

from driftwatch.clock import ManualClock
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.service.configuration import plan_of
from driftwatch.service.run import Service
from driftwatch.store import Store

CONFIG = """\
pools: [{name: chat, slo: {ttft_seconds: 0.5}}]
rules:
  files: [own.yaml]
  overrides:
    - {alert: Waiting, pools: [batch-*], when: waiting_requests >= 50, for: 15m, severity: page,
       keep_firing_for: 2h}
    - {alert: Waiting, pools: [dev, staging], enabled: false, reason: nobody is paged}
"""
RULES = """\
groups:
  - name: own
    rules:
      - alert: Waiting
        when: waiting_requests >= 5
        for: 2m
        severity: ticket
      - alert: NearlyFull
        when: kv_cache_usage_ratio > 0.9 AND (waiting_requests > 100 OR slo_missed)
        given: scrapes >= 4
        until: kv_cache_usage_ratio < 0.5
        keep_firing_for: 5m
        inhibited_by: [Waiting]
        severity: page
      - {alert: Twice, when: restarted, severity: page, labels: {a: "1"}}
      - {alert: Twice, when: restarted, severity: page, labels: {a: "2"}}
      - alert: Slower
        when: slower_at_equal_load
        severity: page
      - alert: Quiet
        when: requests_per_second > 0
        severity: notice
        enabled: false
        reason: an example
"""


@pytest.fixture
def recording(shared_data: Path, tmp_path: Path) -> Path:
    (tmp_path / "own.yaml").write_text(RULES)
    (tmp_path / "driftwatch.yaml").write_text(CONFIG)
    return shared_data / "vllm-0.32" / "run_cap"


@pytest.fixture
def stored(recording: Path, tmp_path: Path) -> Path:
    """The recorded half hour, as a service has stored it."""
    source = RecordingSource(recording)
    first, last = source.span()
    clock = ManualClock(first)
    with Store.open(tmp_path / "driftwatch.db") as store, capture_logs():
        plan = replace(plan_of(tmp_path / "driftwatch.yaml"), simulations=0)
        service = Service([source], plan, store, [], clock)
        while clock.now() < last:
            clock.advance(timedelta(minutes=1))
            service.tick_once()
        service.stop()
    return tmp_path / "driftwatch.db"


def test_screens_of_a_recording(
    run: Run, recording: Path, golden: Callable[[str, str], None]
) -> None:
    for name in ("Waiting", "NearlyFull", "Slower", "Quiet"):
        options = ("--recording", recording, "-c", "driftwatch.yaml")
        code, out, _ = run("rules", "explain", name, *options, terminal=True)
        golden(f"cli/rules-explain-{name.lower()}.txt", out)
        assert code == (4 if name == "Slower" else 0)
        assert all(len(line) <= 80 for line in out.splitlines())


def test_the_screen_of_the_database(
    run: Run, stored: Path, golden: Callable[[str, str], None]
) -> None:
    code, out, _ = run("rules", "explain", "Waiting", terminal=True)
    golden("cli/rules-explain-stored.txt", out)
    assert code == 0


def test_json_of_both_says_the_same_of_the_rule(run: Run, recording: Path, stored: Path) -> None:
    of_store = json.loads(run("rules", "explain", "NearlyFull", "--json")[1])
    options = ("--recording", recording, "-c", "driftwatch.yaml", "--json")
    of_recording = json.loads(run("rules", "explain", "NearlyFull", *options)[1])
    histories = of_store.pop("history"), of_recording.pop("history")
    assert of_store == of_recording
    assert of_store["schema_version"] == 1
    full, waits, missed = (
        {"subject": subject, "wanted": wanted, "columns": [subject]}
        for subject, wanted in (
            ("kv_cache_usage_ratio", "above 0.9"),
            ("waiting_requests", "above 100 requests"),
            ("slo_missed", "true"),
        )
    )
    assert of_store["conditions"]["when"] == {"all": [full, {"any": [waits, missed]}]}
    for history in histories:
        assert history["held_server_minutes"] == 0
        assert [one["subject"] for one in history["nearest_miss"]["failing"]] == [
            "kv_cache_usage_ratio"
        ]
        assert history["pools"][0]["targets"] == 1
    assert histories[0]["server_minutes"] == pytest.approx(histories[1]["server_minutes"], abs=1)


def test_a_rule_that_is_not_there(run: Run, recording: Path) -> None:
    code, _, err = run("rules", "explain", "Waitin")
    assert (code, err) == (2, "error: there is no rule Waitin\nhelp: did you mean Waiting?\n")
    code, _, err = run("rules", "explain", "Twice")
    named = """help: name one: 'Twice{a="1"}', 'Twice{a="2"}'"""
    assert (code, err) == (2, f"error: Twice is 2 rules\n{named}\n")


def test_rules_of_files_and_a_configuration_that_is_not_read(run: Run, recording: Path) -> None:
    options = ("--recording", recording)
    code, _, err = run("rules", "explain", "Waiting", *options)
    assert code == 2
    assert "help: driftwatch.yaml is not read with a recording: give -c driftwatch.yaml" in err
    code, out, _ = run("rules", "explain", "Waiting", "own.yaml", *options)
    assert code == 0
    assert "File: own.yaml:4" in out


def test_without_a_database_the_rule_is_explained(run: Run, recording: Path) -> None:
    code, out, err = run("rules", "explain", 'Twice{a="1"}')
    assert code == 4
    assert out.splitlines()[0].startswith('Twice{a="1"} has no evidence yet: ')
    assert "It fires a page after one minute in which restarted is true" in out
    assert err == ""
