"""for, keep_firing_for, until, given, per, overrides: Prometheus' alerts against incidents."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from export_cases import END, MINUTE, Watched, note_firing, promtool_test, rules_file, served
from fakes import prometheus_server
from life_cycle_cases import TARGETS, life_cycle, life_cycle_rules
from target_metric_cases import evidence_rows

from driftwatch.model import TargetKey
from driftwatch.service import metrics as own_metrics

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(not prometheus_server.installed(), reason=prometheus_server.NOT_INSTALLED),
]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_alerts_fire_in_the_minutes_of_the_incidents(seed: int, tmp_path: Path) -> None:
    one = life_cycle(tmp_path, seed)
    firing = {dict(labels)["alertname"] for minute in one.firing.values() for labels in minute}
    assert firing == {rule.alert for rule in one.rules}
    assert promtool_test(one, rules_file(one.exported, tmp_path), tmp_path) == ""


def test_an_alert_survives_a_restart_of_driftwatch_and_ends_with_its_target(
    tmp_path: Path,
) -> None:
    rules = life_cycle_rules(tmp_path)
    key = TargetKey("a0", "0")
    one = Watched(tuple(rule for rule in rules if rule.alert == "Holds"))
    for number in range(25):
        at = END + number * MINUTE
        row = {"instance": "a0", "end": at, "running_requests": 9.0 if number < 3 else 5.0}
        page = served(evidence_rows(row), {key: TARGETS[key]}, rules=one.rules)
        # away from 5 to 8, gone from 15 on
        is_served = number < 5 or 8 <= number < 15
        one.pages.append((at.timestamp(), page if is_served else ""))
    labels = {"alertname": "Holds", "severity": "page", "pool": "a", "instance": "a0"}
    until = END + 20 * MINUTE  # 5 min after the last page with it
    note_firing(one, tuple(sorted({**labels, "engine": "0"}.items())), END, until)
    assert promtool_test(one, rules_file(one.exported, tmp_path), tmp_path) == ""


@pytest.mark.parametrize("why", ["too many targets", "no driftwatch"])
def test_exported_alerts_are_not_silent_where_nothing_is_served(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_metrics, "MOST_VALUES", 24)
    rules = life_cycle_rules(tmp_path)
    one = Watched(tuple(rule for rule in rules if rule.alert == "Missing"))
    for number in range(20):
        at = END + number * MINUTE
        rows = evidence_rows({"instance": "a0", "end": at}, slo_missed=pl.Boolean)
        page = served(rows, rules=one.rules)
        one.pages.append((at.timestamp(), page if why == "too many targets" else ""))
        if number >= 15:
            alert = {"alertname": "DriftwatchServesNoRuleMetrics", "severity": "ticket"}
            one.firing[at.timestamp()] = [tuple(alert.items())]
    assert promtool_test(one, rules_file(one.exported, tmp_path), tmp_path) == ""
