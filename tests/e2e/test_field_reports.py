"""What is said of situations that people report in public (shared/data/field)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from e2e_cases import pages


@pytest.fixture
def field(shared_data: Path) -> Path:
    return shared_data / "field"


def test_06_the_next_prompt_does_not_fit(run: Any, field: Path) -> None:
    """One request holds three quarters of the cache, and 14 wait: no max_num_seqs of 1."""
    recording = field / "06-one-runs-14-wait/scrapes.jsonl.gz"
    told = pages(run("replay", "--json", recording))
    assert [(p["alert"], p["severity"]) for p in told] == [("BatchLimitBinding", "page")]
    assert told[0]["diagnosis"]["leaf"] == "kv_pressure"
    shown = run("replay", recording).output
    assert "the KV cache is full" in shown
    assert "no room for the next prompt" in shown.replace("\n         ", " ")
    assert "inferred" not in shown


def test_10_who_gives_up_is_counted(run: Any, field: Path) -> None:
    """Of 877 first tokens in ten minutes 397 finish; no abort is booked."""
    recording = field / "10-clients-give-up/scrapes.jsonl.gz"
    asked = ("--recording", recording, "--symptom", "throughput", "--at", "2026-11-25T10:45Z")
    found = json.loads(run("explain", *asked, "--json").stdout)
    assert found["evidence"]["given_up_requests_10m"]["value"] == pytest.approx(470, abs=30)
    assert found["evidence"]["given_up_10m_low_ratio"]["value"] > 0.45
    shown = run("explain", *asked).stdout
    assert re.search(r"about\s+4\d\d\s+gave\s+up\s+in\s+10\s+min", shown)
    before = ("--baseline", "2026-11-25T10:00Z..2026-11-25T10:25Z")
    (told,) = pages(run("replay", "--json", *before, recording))
    assert (told["alert"], told["severity"], told["event"]) == ("ClientsGiveUp", "notice", "firing")
    assert told["diagnosis"]["leaf"] == "clients_give_up"
    shown = run("explain", *before, *asked).stdout
    assert re.search(r"about\s+4\d\d\s+requests\s+gave\s+up", shown)
    assert "demand is lower" not in shown


def test_11_a_time_to_first_token_of_zero_is_unknown(run: Any, field: Path, tmp_path: Path) -> None:
    """Requests queue for minutes while vLLM books each first token as 0 s."""
    config, recording = (
        Path(copy(field / "11-ttft-zero" / name, tmp_path))
        for name in ("driftwatch.yaml", "scrapes.jsonl.gz")
    )
    told = run("doctor", "-c", config, "--recording", recording)
    assert told.exit_code == 1
    assert "vllm:time_to_first_token_seconds adds up to 0 s" in told.output
    first, *_ = pages(run("replay", "--json", "-c", config, recording))
    assert (first["alert"], first["severity"]) == ("BatchLimitBinding", "page")
    assert first["evidence"]["ttft_10m_seconds"]["value"] is None
    assert first["evidence"]["slo_missed"]["value"] is None
    assert first["evidence"]["queue_wait_estimate_10m_seconds"]["value"] > 1


def test_30_stale_gauges_restart_nothing(run: Any, field: Path) -> None:
    """Every request was cancelled at 10:30, and the gauges stay until one comes at 11:10."""
    told = pages(run("replay", "--json", field / "30-stale-gauges/scrapes.jsonl.gz"))
    silent = [p for p in told if p["alert"] in ("EngineStuck", "EngineSilent")]
    assert [(p["alert"], p["severity"], p["event"]) for p in silent] == [
        ("EngineSilent", "ticket", "firing"),
        ("EngineSilent", "ticket", "resolved"),
    ]
    assert silent[0]["diagnosis"]["leaf"] == "engine_silent"
    assert "Send one request" in silent[0]["summary"]
    assert not [p for p in told if p["severity"] == "page" and "restart" in p["summary"]]
