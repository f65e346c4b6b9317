"""What a rule is in some pools: from the file to its incidents."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from e2e_cases import pages
from test_other_rules import START, going_on, recording

RULES = """\
groups:
  - name: adapters
    rules:
      - alert: AdaptersThrash
        # a third of the scrapes: two of our adapters share a slot
        when: waiting_deferred_share_10m_ratio >= 0.3
        for: 2m
        severity: page
        annotations:
          summary: requests wait for an adapter
          runbook_url: https://wiki.example.net/runbook#adaptersthrash
"""
POOLS = ("chat", "batch-1", "dev", "rag-2")
CONFIG = """\
sources: [{pages: ['http://host:8000/metrics']}]
receivers: [{name: oncall, stdout: {}}]
rules:
  files: [mine.yaml]
pools:
"""
OVERRIDES = """\
  overrides:
    - {alert: AdaptersThrash, pools: [batch-*], for: 6m, severity: ticket}
    - {alert: AdaptersThrash, pools: [dev], enabled: false, reason: nobody is paged for dev}
    # rag serves a hundred adapters
    - {alert: AdaptersThrash, pools: [rag, rag-2], when: waiting_deferred_requests >= 100}
"""


def _configured(folder: Path, overrides: str = OVERRIDES) -> Path:
    (folder / "mine.yaml").write_text(RULES)
    config = folder / "driftwatch.yaml"
    named = (f"  - {{name: {name}, match: {{instance: '{name}:8000'}}}}\n" for name in POOLS)
    config.write_text(CONFIG.replace("pools:", f"{overrides}pools:") + "".join(named))
    return config


def _recorded(shared_data: Path, folder: Path) -> Path:
    """The same waiting requests on one server of each pool, for ten minutes."""
    page = (shared_data / "vllm-0.32" / "metrics_lora_during.txt").read_text()
    one = recording(folder / "one.jsonl", lambda seconds: going_on(page, seconds), 10)
    scrapes = [json.loads(line) for line in one.read_text().splitlines()]
    every = [scrape | {"instance": f"{name}:8000"} for scrape in scrapes for name in POOLS]
    path = folder / "r.jsonl"
    path.write_text("".join(json.dumps(scrape) + "\n" for scrape in every))
    return path


def test_a_rule_is_another_one_in_some_pools_and_keeps_its_identity(
    run: Any, shared_data: Path, tmp_path: Path
) -> None:
    config, recorded = _configured(tmp_path), _recorded(shared_data, tmp_path)
    told = pages(run("replay", recorded, "-c", config, "--json"))
    assert [
        (
            p["pool"],
            p["severity"],
            (datetime.fromisoformat(p["times"]["firing_at"]).timestamp() - START) / 60,
            p["rule"],
        )
        for p in told
    ] == [
        ("chat", "page", 2.0, "AdaptersThrash"),
        ("batch-1", "ticket", 6.0, "AdaptersThrash"),
    ]
    same = pages(run("replay", recorded, "-c", _configured(tmp_path, ""), "--json"))
    ids = {p["pool"]: p["incident"] for p in same}
    assert len(ids) == 4
    assert all(ids[p["pool"]] == p["incident"] for p in told)


def test_check_names_the_pools(
    run: Any, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    checked = run("check", "-c", _configured(tmp_path))
    golden("e2e/overrides.txt", checked.stdout.replace(f"{tmp_path}/", ""))
