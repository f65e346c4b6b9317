"""What a replay of many events prints: a screen, and with --all everything."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from test_other_rules import going_on, recording

CONFIG = """\
sources: [{pages: ['http://host:8000/metrics']}]
receivers: [{name: oncall, stdout: {}}]
rules: [mine.yaml]
"""
RULES = """\
groups:
  - name: adapters
    rules:
      - {alert: AdaptersThrash, when: waiting_deferred_requests >= 3, for: 2m, severity: page,
         annotations: {summary: requests wait for an adapter}}
      - {alert: AdaptersUsed, when: waiting_deferred_requests >= 1, severity: notice,
         annotations: {summary: a request waits for an adapter}}
"""


def test_three_pages_whole_then_lines_then_counts(
    run: Any, shared_data: Path, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    (tmp_path / "mine.yaml").write_text(RULES)
    config = tmp_path / "driftwatch.yaml"
    config.write_text(CONFIG)
    page = (shared_data / "vllm-0.32" / "metrics_lora_during.txt").read_text()
    one = recording(tmp_path / "one.jsonl", lambda seconds: going_on(page, seconds), 5)
    scrapes = [json.loads(line) for line in one.read_text().splitlines()]
    servers = [f"gpu-{number:02}:8000" for number in range(15)]
    path = tmp_path / "r.jsonl"
    with path.open("w") as lines:
        for scrape in scrapes:
            for name in servers:
                # a pool each: of one model
                text = json.dumps(scrape | {"instance": name}).replace("tiny-llama", name[:6])
                lines.write(text + "\n")
    replayed = run("replay", path, "-c", config)
    assert replayed.exit_code == 0
    screen, note, _ = replayed.stdout.partition("Nothing is kept")
    assert note
    golden("e2e/replay-screen.txt", screen)
    whole = run("replay", path, "-c", config, "--all").stdout
    assert whole.count("FIRING ") == whole.count("NOTICE ") == 15
    events = run("replay", path, "-c", config, "--json").stdout
    assert len(events.splitlines()) == 30
