"""An engine whose clients all give up before their first token works: it is not stuck."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from e2e_cases import pages

_START = datetime(2026, 11, 16, 8, tzinfo=UTC)


def _pages(run: Any, folder: Path, *, hangs: bool = False) -> list[Any]:
    """Pages as (rule, minute) of 80 min, the last 20 of them with prompts that take seconds.

    A prompt of 25,000 tokens is 25 steps; two a second come, and wait 20 s for their first token.
    """
    log = folder / "log.csv"
    times = [(_START + timedelta(seconds=i)).strftime("%F %T") for i in range(3600)]
    rows = [f"{t},{700 + 37 * i % 300},{40 + 7 * i % 20}" for i, t in enumerate(times)]
    log.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    scenario = {
        "name": "given-up",
        "title": "every client gives up before its first token",
        "start": _START.isoformat(),
        "duration": "80m",
        "pool": {
            "name": "rag",
            "replicas": 1,
            "gpu": "A100-80GB",
            "serving": {"max_num_batched_tokens": 1024, "max_model_len": 65536},
            "slo": {"ttft_seconds": 3.0, "tpot_seconds": 0.2},
        },
        "traffic": {
            "path": str(log),
            "requests_per_second": 2,
            "timeout": "20s",
            "prefix_hit_ratio": 0.0,
            "changes": [{"at": "60m", "prompt_factor": 30.0, "rate_factor": 2.0}],
        },
        "faults": [{"kind": "wedge", "at": "65m", "replicas": [0]}] if hangs else [],
        "truth": {"baseline": {"at": "10m", "until": "55m"}},
    }
    (folder / "given-up.yaml").write_text(json.dumps(scenario))
    asked = ("--scenario", folder / "given-up.yaml", "--seed", 5)
    made = run("demo", *asked, "--write", folder / "made")
    assert made.exit_code == 0, made.output
    baseline = "2026-11-16T08:10:00Z..2026-11-16T08:55:00Z"
    config = folder / "made" / "driftwatch.yaml"
    told = pages(run("replay", "--json", "-c", config, "--baseline", baseline, folder / "made"))

    def minute(page: Any) -> float:
        return (datetime.fromisoformat(page["times"]["firing_at"]) - _START).total_seconds() / 60

    first = [p for p in told if p["severity"] == "page" and p["event"] == "firing"]
    return [(p["alert"], minute(p)) for p in first]


@pytest.mark.slow
def test_who_serves_nobody_is_overloaded_and_not_stuck(run: Any, tmp_path: Path) -> None:
    """No token for 19 min, and every client in vain: the page is the limit's."""
    ((rule, minute),) = _pages(run, tmp_path)
    assert rule == "BatchLimitBinding"
    assert 65 <= minute <= 72


@pytest.mark.slow
def test_an_overloaded_engine_that_hangs_is_stuck(run: Any, tmp_path: Path) -> None:
    ((rule, minute),) = _pages(run, tmp_path, hangs=True)
    assert rule == "EngineStuck"
    assert 67 <= minute <= 69
