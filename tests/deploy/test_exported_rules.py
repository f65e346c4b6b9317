"""The shipped rules, exported: for whom driftwatch serves the metrics that they read."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
import yaml
from deploy_cases import DEPLOY, documents
from target_metric_cases import evidence_rows

from driftwatch.evidence import BY_NAME
from driftwatch.export.alerts import alerts_of, file_of
from driftwatch.model import Target, TargetKey
from driftwatch.rulebook.book import load_rulebook
from driftwatch.service.metrics import OwnMetrics

END = datetime(2026, 1, 2, 3, 1, tzinfo=UTC)
TYPES = {"float": pl.Float64, "bool": pl.Boolean, "string": pl.String}


@pytest.fixture(scope="module")
def exported() -> str:
    """As `driftwatch rules export` prints them."""
    return file_of("prometheus", alerts_of(load_rulebook().rules))


def _rules(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def test_every_shipped_rule_is_there_or_named(exported: str) -> None:
    named = "".join(line for line in exported.splitlines() if line.startswith("#"))
    alerts = {rule["alert"] for rule in _rules(exported)}
    missing = {rule.alert for rule in load_rulebook().rules} - alerts
    assert all(name in named for name in missing)
    assert "ThroughputDown" in missing  # off
    (own,) = documents(DEPLOY / "prometheus/rules/driftwatch.yml")
    assert alerts.isdisjoint(rule["alert"] for group in own["groups"] for rule in group["rules"])


def test_they_read_what_driftwatch_serves_with_these_rules(exported: str) -> None:
    rules = [rule for rule in load_rulebook().rules if rule.is_evaluated]
    columns = {column for rule in rules for column in rule.columns}
    types = {column: TYPES[BY_NAME[column].dtype] for column in columns}
    rows = evidence_rows({"instance": "h:1", "end": END}, **types)
    metrics, key = OwnMetrics(lambda: END), TargetKey("h:1", "0")
    metrics.note_minutes(rows, {key: Target(key, pool="rag")}, rules)
    served = {family.name for family in metrics.registry.collect()}
    expressions = " ".join(rule["expr"] for rule in _rules(exported))
    assert set(re.findall(r"driftwatch_\w+", expressions)) <= served
    asked = set(re.findall(r'driftwatch_rule\{rule="((?:[^"\\]|\\.)*)"', expressions))
    assert {one.replace('\\"', '"') for one in asked} == {rule.id for rule in rules}
