"""The shipped rules as alerts: files that `scripts/docs` writes, and that nobody loads unasked."""

from __future__ import annotations

import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deploy_cases import DEPLOY, documents
from prometheus_client import CollectorRegistry
from target_metric_cases import evidence_rows

from driftwatch.evidence import BY_NAME
from driftwatch.model import Target, TargetKey
from driftwatch.rulebook.book import load_rulebook
from driftwatch.rulebook.rules import columns_of
from driftwatch.service.target_metrics import TargetMetrics
from driftwatch.testing import prometheus_server

PROMETHEUS = DEPLOY / "prometheus"
RULES = PROMETHEUS / "rules" / "shipped-rules.yml"
END = datetime(2026, 1, 2, 3, 1, tzinfo=UTC)
TYPES = {"float": pl.Float64, "bool": pl.Boolean, "string": pl.String}
COMPONENT = DEPLOY / "kubernetes" / "components" / "shipped-rules"


def _groups(path: Path) -> list[dict[str, Any]]:
    (document,) = documents(path)
    groups: list[dict[str, Any]] = document["groups"]
    return groups


def _alerts(path: Path) -> set[str]:
    return {rule["alert"] for group in _groups(path) for rule in group["rules"]}


def test_every_shipped_rule_is_there_or_named() -> None:
    named = "".join(
        line for line in RULES.read_text(encoding="utf-8").splitlines() if line.startswith("#")
    )
    alerts = _alerts(RULES)
    missing = {rule.alert for rule in load_rulebook().rules} - alerts
    assert all(name in named for name in missing)
    assert "ThroughputDown" in missing  # off
    assert len(alerts) > 10


def test_alerts_on_driftwatch_itself_stand_apart() -> None:
    assert _alerts(RULES).isdisjoint(_alerts(PROMETHEUS / "rules" / "driftwatch.yml"))


def test_nobody_loads_them_unasked() -> None:
    for name in ("prometheus.yml", "prometheus-kubernetes.yml"):
        (config,) = documents(PROMETHEUS / name)
        assert config["rule_files"] == ["rules/driftwatch.yml"]
        assert "# - rules/shipped-rules.yml" in (PROMETHEUS / name).read_text(encoding="utf-8")
    (overlay,) = documents(DEPLOY / "kubernetes/overlays/full/kustomization.yaml")
    assert "../../components/shipped-rules" not in overlay["components"]


@pytest.mark.prometheus
@pytest.mark.skipif(not prometheus_server.installed(), reason=prometheus_server.NOT_INSTALLED)
def test_promtool_takes_them() -> None:
    ran = subprocess.run(
        ["promtool", "check", "rules", "--lint=all", "--lint-fatal", str(RULES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_operators_are_the_same() -> None:
    (component,) = documents(COMPONENT / "kustomization.yaml")
    assert component["resources"] == ["rules.yaml"]
    (operator,) = documents(COMPONENT / "rules.yaml")
    assert (operator["apiVersion"], operator["kind"]) == (
        "monitoring.coreos.com/v1",
        "PrometheusRule",
    )
    assert operator["spec"]["groups"] == _groups(RULES)


def test_they_read_what_driftwatch_serves_with_these_rules() -> None:
    rules = load_rulebook().rules
    columns = columns_of(rule for rule in rules if rule.is_evaluated)
    values = {"float": 1.0, "bool": True, "string": "x"}
    row = {column: values[BY_NAME[column].dtype] for column in columns}
    served = _families({"instance": "h:1", "end": END, **row}, columns)
    expressions = [rule["expr"] for group in _groups(RULES) for rule in group["rules"]]
    asked = {name for text in expressions for name in re.findall(r"driftwatch_\w+", text)}
    assert asked <= served
    assert len(asked) > 30


def _families(row: dict[str, Any], columns: frozenset[str]) -> set[str]:
    rows = evidence_rows(row, **{column: TYPES[BY_NAME[column].dtype] for column in columns})
    metrics = TargetMetrics(lambda: END)
    key = TargetKey("h:1", "0")
    metrics.note(rows, {key: Target(key, pool="rag")}, of_rules=columns)
    registry = CollectorRegistry()
    registry.register(metrics)
    return {family.name for family in registry.collect() if family.samples}
