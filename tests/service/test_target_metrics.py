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
from driftwatch.service import target_metrics
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.service.replay import Ticks
from driftwatch.service.target_metrics import (
    DEPARTING,
    EVERY_TARGET,
    LEFT_OUT,
    LIMIT_BINDS,
    LIMITS,
    PREFIX,
    RULES_LEFT_OUT,
    TARGET_COLUMNS,
    TargetMetrics,
)
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
    assert generate_latest(registry).decode().count('"b:1"') == 2  # and departing


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


def test_the_columns_of_rules_are_served_beside_the_dashboards() -> None:
    metrics = TargetMetrics(lambda: END)
    registry = _served(metrics)
    types = {"slo_missed": pl.Boolean, "engine_kind": pl.String, "scrapes": pl.Float64}
    full = {"instance": "a:1", "slo_missed": False, "engine_kind": "generate", "scrapes": 4.0}
    none = {"instance": "b:1", "scrapes": float("inf"), "running_requests": float("nan")}
    rows = evidence_rows({"end": END, **full}, {"end": END, **none}, **types)
    metrics.note(rows, _targets("a:1", "b:1"), of_rules=[*types, "running_requests"])
    assert _value(registry, f"{PREFIX}slo_missed", "a:1") == 0.0
    assert _value(registry, f"{PREFIX}engine_kind", "a:1", value="generate") == 1.0
    assert _value(registry, f"{PREFIX}scrapes", "a:1") == 4.0
    # no number is unknown, and unknown has no series
    page = generate_latest(registry).decode()
    lines = [line for line in page.splitlines() if '"b:1"' in line]
    assert [line.partition("{")[0] for line in lines] == [EVERY_TARGET, DEPARTING]


def test_who_never_answered_and_who_may_have_been_scaled_down() -> None:
    metrics = TargetMetrics(lambda: END)
    registry = _served(metrics)
    silent = {"instance": "a:1", "ever_seen": False}
    metrics.note(
        _rows(silent, {"instance": "b:1", "unlisted_minutes": 1.0}), _targets("a:1", "b:1")
    )
    assert _value(registry, EVERY_TARGET, "a:1") == 0.0
    assert _value(registry, EVERY_TARGET, "b:1") == 1.0
    assert _value(registry, DEPARTING, "a:1") == 0.0
    assert _value(registry, DEPARTING, "b:1") == 1.0


@pytest.mark.parametrize("more", [0, 1])
def test_columns_of_rules_give_way_first(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_metrics, "MOST_VALUES", len(TARGET_COLUMNS) + 1)
    metrics = TargetMetrics(lambda: END)
    registry = _served(metrics)
    types = {"scrapes": pl.Float64, "finished_requests": pl.Float64}
    columns = list(types)[: 1 + more]
    row = {"instance": "a:1", "end": END, "running_requests": 1.0, "scrapes": 4.0}
    metrics.note(evidence_rows(row, **types), _targets("a:1"), of_rules=columns)
    assert _value(registry, f"{PREFIX}running_requests", "a:1") == 1.0
    assert _value(registry, f"{PREFIX}scrapes", "a:1") == (None if more else 4.0)
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
    of_rules = own.registry.get_sample_value(f"{PREFIX}observed_10m_seconds", labels)
    assert of_rules == row["observed_10m_seconds"] is not None
    text = generate_latest(own.registry)
    ran = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, b"")
