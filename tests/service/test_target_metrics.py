"""The gauges per target: the newest minute's numbers, absent where unknown, gone where stale."""

from __future__ import annotations

import shutil
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from pipeline_cases import T0
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from service_cases import shipped_plan
from target_metric_cases import evidence_rows

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.model import Target, TargetKey
from driftwatch.rulebook.book import load_rulebook
from driftwatch.rulebook.rules import Rule
from driftwatch.service import target_metrics
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.service.replay import Ticks
from driftwatch.service.target_metrics import (
    EVERY_TARGET,
    LEFT_OUT,
    LIMIT_BINDS,
    LIMITS,
    PREFIX,
    RULE,
    RULES_LEFT_OUT,
    TARGET_COLUMNS,
    TargetMetrics,
)
from driftwatch.settings import load_settings
from driftwatch.store.store import Store

END = T0 + timedelta(minutes=1)


def _rows(*rows: dict[str, object]) -> pl.DataFrame:
    return evidence_rows(*({"end": END, **row} for row in rows))


def _targets(*instances: str, pool: str | None = "rag") -> dict[TargetKey, Target]:
    keys = [TargetKey(instance, "0") for instance in instances]
    return {key: Target(key, pool=pool) for key in keys}


def _served(metrics: TargetMetrics) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(metrics)
    return registry


def _value(registry: CollectorRegistry, name: str, instance: str, **labels: str) -> float | None:
    found = {"instance": instance, "engine": "0", "pool": "rag", **labels}
    return registry.get_sample_value(name, found)


def test_what_is_known_is_served_and_what_is_not_has_no_series() -> None:
    metrics = TargetMetrics(lambda: END)
    registry = _served(metrics)
    known = {"instance": "a:1", "running_requests": 0.0, "binding_limit": "kv_cache"}
    metrics.note(_rows(known, {"instance": "b:1"}), _targets("a:1", "b:1"))
    assert _value(registry, f"{PREFIX}running_requests", "a:1") == 0.0
    assert _value(registry, f"{PREFIX}running_requests", "b:1") is None
    assert _value(registry, f"{PREFIX}waiting_requests", "a:1") is None
    binds = {limit: _value(registry, LIMIT_BINDS, "a:1", limit=limit) for limit in LIMITS}
    assert binds == {**dict.fromkeys(LIMITS, 0.0), "kv_cache": 1.0}
    assert _value(registry, LIMIT_BINDS, "b:1", limit="kv_cache") is None
    assert _value(registry, EVERY_TARGET, "b:1") == 1.0
    assert generate_latest(registry).decode().count('"b:1"') == 1


def test_no_limit_binds_is_known_too() -> None:
    metrics = TargetMetrics(lambda: END)
    registry = _served(metrics)
    metrics.note(_rows({"instance": "a:1", "binding_limit": "none"}), _targets("a:1"))
    assert {_value(registry, LIMIT_BINDS, "a:1", limit=limit) for limit in LIMITS} == {0.0}


def test_only_the_newest_minute_is_served() -> None:
    metrics = TargetMetrics(lambda: END)
    registry = _served(metrics)
    older = {"instance": "gone:1", "end": T0, "running_requests": 1.0}
    newer = {"instance": "a:1", "running_requests": 2.0}
    metrics.note(_rows(older, {**newer, "end": T0, "running_requests": 9.0}), _targets("a:1"))
    assert _value(registry, f"{PREFIX}running_requests", "a:1") == 9.0
    metrics.note(_rows(older, newer), _targets("a:1"))
    assert _value(registry, f"{PREFIX}running_requests", "a:1") == 2.0
    assert "gone:1" not in generate_latest(registry).decode()
    metrics.note(pl.DataFrame(), {})  # a tick in which no minute became complete
    assert _value(registry, f"{PREFIX}running_requests", "a:1") == 2.0


def test_a_minute_that_is_long_past_is_not_now() -> None:
    now: list[datetime] = [END]
    metrics = TargetMetrics(lambda: now[0])
    registry = _served(metrics)
    metrics.note(_rows({"instance": "a:1", "running_requests": 2.0}), _targets("a:1"))
    now[0] = END + timedelta(seconds=target_metrics.STALE_SECONDS)
    assert _value(registry, f"{PREFIX}running_requests", "a:1") == 2.0
    now[0] += timedelta(seconds=1)
    assert _value(registry, f"{PREFIX}running_requests", "a:1") is None


def test_a_target_without_a_pool_is_in_the_default_one_and_one_that_is_none_is_gone() -> None:
    metrics = TargetMetrics(lambda: END)
    registry = _served(metrics)
    rows = _rows(
        {"instance": "a:1", "max_num_seqs": 8.0}, {"instance": "retired:1", "max_num_seqs": 8}
    )
    metrics.note(rows, _targets("a:1", pool=None))
    labels = {"instance": "a:1", "engine": "0", "pool": "default"}
    assert registry.get_sample_value(f"{PREFIX}max_num_seqs", labels) == 8.0
    assert "retired" not in generate_latest(registry).decode()


@pytest.mark.parametrize("more", [0, 1])
def test_above_the_bound_none_is_served_and_a_metric_says_so(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_metrics, "MOST_TARGETS", 20)
    count = target_metrics.MOST_TARGETS + more
    metrics = TargetMetrics(lambda: END)
    registry = _served(metrics)
    rows = _rows(*({"instance": f"h{n}:1", "running_requests": 1.0} for n in range(count)))
    metrics.note(rows, _targets(*(f"h{n}:1" for n in range(count))))
    assert registry.get_sample_value(LEFT_OUT) == (count if more else 0)
    served = _value(registry, f"{PREFIX}running_requests", "h0:1")
    assert served == (None if more else 1.0)


RULES = """
groups:
  - name: mine
    rules:
      - {alert: Full, when: running_requests > 7, until: running_requests < 3, severity: page}
      - {alert: Waits, when: waiting_requests > 5, severity: page}
"""


def _rules(folder: Path, overrides: str = "") -> tuple[Rule, ...]:
    (folder / "rules.yaml").write_text(RULES)
    config = folder / "driftwatch.yaml"
    rules = f"rules: {{files: [rules.yaml], overrides: [{overrides}]}}"
    config.write_text(f"sources: [{{pages: [http://h:1]}}]\n{rules}\n")
    return load_rulebook(configured=load_settings(config)).rules


@pytest.mark.parametrize(
    ("running", "state"), [(8.0, 1.0), (5.0, 0.5), (2.0, 0.0), (None, None), (float("nan"), None)]
)
def test_the_state_of_a_rule(running: float | None, state: float | None, tmp_path: Path) -> None:
    metrics = TargetMetrics(lambda: END)
    registry = _served(metrics)
    row = {"instance": "a:1", "running_requests": running, "waiting_requests": 5.0}
    metrics.note(_rows(row), _targets("a:1"), rules=_rules(tmp_path))
    assert _value(registry, RULE, "a:1", rule="Full") == state
    assert _value(registry, RULE, "a:1", rule="Waits") == 0.0


def test_a_rule_is_what_it_is_in_the_pool(tmp_path: Path) -> None:
    metrics = TargetMetrics(lambda: END)
    registry = _served(metrics)
    rules = _rules(tmp_path, "{alert: Waits, pools: [rag], when: waiting_requests > 2}")
    row = {"instance": "a:1", "waiting_requests": 4.0}
    metrics.note(_rows(row, {**row, "instance": "b:1"}), _targets("a:1"), rules=rules)
    assert _value(registry, RULE, "a:1", rule="Waits") == 1.0
    metrics.note(_rows(row), _targets("a:1", pool="other"), rules=rules)
    labels = {"instance": "a:1", "engine": "0", "pool": "other", "rule": "Waits"}
    assert registry.get_sample_value(RULE, labels) == 0.0


def test_a_target_that_never_answered_is_there_with_0() -> None:
    metrics = TargetMetrics(lambda: END)
    registry = _served(metrics)
    metrics.note(
        _rows({"instance": "a:1", "ever_seen": False}, {"instance": "b:1"}),
        _targets("a:1", "b:1"),
    )
    assert _value(registry, EVERY_TARGET, "a:1") == 0.0
    assert _value(registry, EVERY_TARGET, "b:1") == 1.0


@pytest.mark.parametrize("more", [0, 1])
def test_states_of_rules_give_way_first(
    more: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rules = _rules(tmp_path)
    monkeypatch.setattr(target_metrics, "MOST_VALUES", len(TARGET_COLUMNS) + len(rules) - more)
    metrics = TargetMetrics(lambda: END)
    registry = _served(metrics)
    row = {"instance": "a:1", "running_requests": 1.0}
    metrics.note(_rows(row), _targets("a:1"), rules=rules)
    assert _value(registry, f"{PREFIX}running_requests", "a:1") == 1.0
    assert _value(registry, RULE, "a:1", rule="Full") == (None if more else 0.0)
    assert registry.get_sample_value(RULES_LEFT_OUT) == more
    assert registry.get_sample_value(LEFT_OUT) == 0


@pytest.mark.skipif(shutil.which("promtool") is None, reason="prometheus is not installed")
def test_a_recorded_server_in_the_eyes_of_promtool(shared_data: Path) -> None:
    source = RecordingSource(shared_data / "vllm-0.32/run_main")
    first, end = source.span()
    ticks = Ticks([source], shipped_plan(), Store.in_memory(), first)
    outcome, state = ticks.tick(end), ticks.state
    own = OwnMetrics(lambda: end)
    own.note_minute(outcome, state, shipped_plan().enabled)
    (row,) = outcome.rows.filter(pl.col("end") == outcome.rows["end"].max()).to_dicts()
    (target,) = state.targets.values()
    labels = {"instance": row["instance"], "engine": row["engine"], "pool": target.pool}
    served = {
        column: own.registry.get_sample_value(PREFIX + column, labels) for column in TARGET_COLUMNS
    }
    assert served == {column: row[column] for column in TARGET_COLUMNS}
    assert served["requests_per_forward_pass"] is not None
    assert served["gpu_power_watts"] is None
    state = own.registry.get_sample_value(RULE, {**labels, "rule": "BatchLimitBinding"})
    assert state in (0.0, 0.5, 1.0)
    text = generate_latest(own.registry)
    ran = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, b"")
