"""Rules that use every key of the life cycle, rows that wander, and the incidents they make."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
from export_cases import END, MINUTE, Watched, note_servers, served
from target_metric_cases import evidence_rows

from driftwatch.model import Target, TargetKey
from driftwatch.rulebook.book import load_rulebook
from driftwatch.rulebook.rules import Rule
from driftwatch.settings import load_settings

# `waiting_requests` is always known here: `for` and `keep_firing_for` count other minutes than
# driftwatch where a minute has no verdict, which the file says
RULES = """
groups:
  - name: mine
    rules:
      - {alert: Plain, when: running_requests > 5, severity: page}
      - {alert: Holds, when: running_requests > 7, until: running_requests < 3, severity: page}
      - alert: Where
        given: slo_missed
        when: running_requests > 5
        until: running_requests < 4
        severity: ticket
      - {alert: Waits, when: waiting_requests > 5, for: 3m, keep_firing_for: 4m, severity: page}
      - alert: WaitsAndHolds
        when: waiting_requests > 7
        until: waiting_requests < 3
        for: 90s
        keep_firing_for: 3m
        severity: page
      - {alert: Missing, when: running_requests IS NULL AND NOT slo_missed, severity: notice}
      - {alert: Twice, when: running_requests > 6, severity: page, labels: {way: up}}
      - {alert: Twice, when: running_requests < 1, severity: page, labels: {way: up, at: "0"}}
      - {alert: Twice, when: waiting_requests > 8, severity: ticket}
      - alert: Elsewhere
        when: running_requests > 7
        severity: page
"""
CONFIG = """
sources: [{pages: ['http://h:8000/metrics']}]
rules:
  files: [rules.yaml]
  overrides:
    - alert: Elsewhere
      pools: [b*]
      when: running_requests > 3
      until: running_requests < 2
      severity: ticket
    - {alert: Elsewhere, pools: [c, bb], enabled: false, reason: nobody minds}
"""
POOLS = {"a0": "a", "a1": "a", "a2": "a", "b0": "bb", "b1": "bb", "c0": "c", "d0": "d"}
TARGETS = {TargetKey(name, "0"): Target(TargetKey(name, "0"), pool=p) for name, p in POOLS.items()}
SILENT = frozenset({TargetKey("a2", "0")})  # never answered: its pool does not wait for it
MINUTES = 150
_OF_INCIDENTS = {
    **dict.fromkeys(("binding_since", "deferred_since"), pl.Datetime("us", "UTC")),
    **dict.fromkeys(("seconds_since_last_token", "coverage_missing_seconds"), pl.Float64),
}


def _rows(seed: int) -> pl.DataFrame:
    """Values that wander, and are missing for a while now and then."""
    choose = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for key, target in TARGETS.items():
        running, waiting, missing = 5.0, 5.0, 0
        for number in range(MINUTES):
            running = min(max(running + choose.choice([-3, -1, 0, 1, 3]), 0.0), 10.0)
            waiting = min(max(waiting + choose.choice([-3, -1, 0, 1, 3]), 0.0), 10.0)
            missing = max(missing - 1, choose.choice([0] * 12 + [1, 4]))
            silent = key in SILENT
            rows.append(
                {
                    "instance": key.instance,
                    "pool": target.pool,
                    "end": END + number * MINUTE,
                    "ever_seen": not silent,
                    "running_requests": None if silent or missing else running,
                    "waiting_requests": None if silent else waiting,
                    "slo_missed": None if silent else choose.choice([True, True, False, None]),
                }
            )
    types = {"pool": pl.String, "slo_missed": pl.Boolean}
    return evidence_rows(*rows, **types, **_OF_INCIDENTS).sort("end", "instance")  # type: ignore[arg-type]


def life_cycle_rules(folder: Path) -> tuple[Rule, ...]:
    (folder / "rules.yaml").write_text(RULES, encoding="utf-8")
    config = folder / "driftwatch.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    return load_rulebook(configured=load_settings(config)).rules


def life_cycle(folder: Path, seed: int) -> Watched:
    """The rules over rows of a seed: pages, and the minutes in which incidents fire."""
    rules, rows = life_cycle_rules(folder), _rows(seed)
    one = Watched(rules)
    for (end,), of_minute in rows.group_by("end", maintain_order=True):
        assert isinstance(end, datetime)
        page = served(of_minute, TARGETS, rules=rules)
        one.pages.append((end.timestamp(), page))
    note_servers(one, rows, END + MINUTES * MINUTE)
    return one
