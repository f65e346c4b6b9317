"""Grafana's alert rules: the fields that its provisioning reads, and when they fire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
from life_cycle_cases import life_cycle
from ruamel.yaml import YAML

from driftwatch.export.alerts import alerts_of
from driftwatch.export.files import file_of
from driftwatch.rulebook.book import load_rulebook
from driftwatch.testing import prometheus_server
from driftwatch.testing.prometheus_server import PrometheusServer, backfill

# What AlertRuleGroupV1, AlertRuleV1 and QueryV1 of Grafana read
# (pkg/services/provisioning/alerting/rules_types.go), and its threshold expression
# (pkg/expr/threshold.go).
GROUP = {"orgId", "name", "folder", "interval", "rules"}
RULE = {
    *("uid", "title", "condition", "data", "noDataState", "execErrState", "for"),
    *("keepFiringFor", "annotations", "labels"),
}
QUERY = {"refId", "relativeTimeRange", "datasourceUid", "model"}


def _rules(text: str) -> Iterator[Mapping[str, Any]]:
    document = YAML(typ="safe").load(text)
    assert document["apiVersion"] == 1
    for group in document["groups"]:
        assert set(group) == GROUP
        yield from group["rules"]


def test_the_fields_are_those_that_grafana_reads() -> None:
    text, _ = file_of("grafana", alerts_of(load_rulebook().rules), "uid-1")
    rules = list(_rules(text))
    assert len(rules) > 10
    assert len({rule["uid"] for rule in rules}) == len(rules)
    assert len({rule["title"] for rule in rules}) == len(rules)
    for rule in rules:
        assert RULE - {"keepFiringFor"} <= set(rule) <= RULE
        assert len(rule["uid"]) <= 40
        assert (rule["noDataState"], rule["execErrState"]) == ("KeepLast", "Error")
        query, threshold = rule["data"]
        assert set(query) == set(threshold) == QUERY
        assert query["model"]["instant"] is True
        assert rule["condition"] == threshold["refId"] == threshold["model"]["refId"]
        assert threshold["model"]["type"] == "threshold"
        assert threshold["model"]["expression"] == query["refId"]
        (condition,) = threshold["model"]["conditions"]
        assert set(condition) == {"evaluator", "unloadEvaluator"}


def test_a_dollar_is_no_variable_of_grafanas_environment() -> None:
    text, _ = file_of("grafana", alerts_of(load_rulebook().rules))
    assert "$" not in text


@pytest.mark.skipif(not prometheus_server.installed(), reason=prometheus_server.NOT_INSTALLED)
def test_the_recovery_threshold_keeps_an_alert_as_driftwatch_keeps_it(tmp_path: Path) -> None:
    """The query as Prometheus answers it, then what Grafana does with its numbers."""
    one = life_cycle(tmp_path, seed=4)
    text, _ = file_of("grafana", one.exported)
    backfill(one.pages, {"job": "driftwatch"}, tmp_path / "blocks")
    compared = 0
    with PrometheusServer(
        blocks=tmp_path / "blocks", flags=["--query.lookback-delta=59s"]
    ) as server:
        for rule in _rules(text):
            if "keepFiringFor" in rule or rule["for"] != "0s":
                continue  # told apart from driftwatch's in the file
            query, threshold = (part["model"] for part in rule["data"])
            firing = _firing(server, query["expr"], one.ends, threshold["conditions"][0])
            alert = rule["title"].split("{")[0].strip()
            assert firing == _incidents(one.firing, alert, rule["labels"]), rule["title"]
            compared += len(firing)
    assert compared > 100


def _firing(
    server: PrometheusServer, text: str, ends: list[float], condition: Mapping[str, Any]
) -> set[tuple[float, str]]:
    asked = {"query": text, "start": ends[0], "end": ends[-1], "step": 60}
    answer = requests.get(f"{server.url}/api/v1/query_range", params=asked, timeout=30)
    assert answer.ok, answer.text
    (begins,), (over,) = (condition[k]["params"] for k in ("evaluator", "unloadEvaluator"))
    firing: set[tuple[float, str]] = set()
    for series in answer.json()["data"]["result"]:
        about, is_firing = series["metric"].get("instance", series["metric"]["pool"]), False
        for at, value in series["values"]:
            is_firing = float(value) > begins or (is_firing and not float(value) < over)
            if is_firing:
                firing.add((float(at), about))
    return firing


def _incidents(
    minutes: Mapping[float, Any], alert: str, labels: Mapping[str, str]
) -> set[tuple[float, str]]:
    """Minutes and targets in which incidents with these labels fire."""
    firing = set()
    for at, incidents in minutes.items():
        for pairs in incidents:
            target = {name: text for name, text in pairs if name in {"pool", "instance", "engine"}}
            if dict(pairs) == {"alertname": alert, **labels, **target}:
                firing.add((at, target.get("instance", target["pool"])))
    return firing
