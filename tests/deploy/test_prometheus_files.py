"""Scrape jobs and alerts: promtool takes them, and a real Prometheus keeps the labels we need."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from deploy_cases import DEPLOY, documents
from fakes import prometheus_server
from fakes.prometheus_server import PrometheusServer
from target_metric_cases import evidence_rows

from driftwatch.evidence import BY_NAME
from driftwatch.export.alerts import alert_file, alerts_of
from driftwatch.model import Target, TargetKey
from driftwatch.rulebook.book import load_rulebook
from driftwatch.service.liveness import Endpoint
from driftwatch.service.metrics import OwnMetrics

FOLDER = DEPLOY / "prometheus"
RULES = FOLDER / "rules" / "driftwatch.yml"
KUBERNETES = FOLDER / "prometheus-kubernetes.yml"
PARTS = ("sum", "count", "bucket")

needs_prometheus = pytest.mark.skipif(
    not prometheus_server.installed(), reason=prometheus_server.NOT_INSTALLED
)


def _promtool(*arguments: object, folder: Path = FOLDER) -> str:
    ran = subprocess.run(
        ["promtool", *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def _found_by_address(config: dict[str, Any]) -> dict[str, Any]:
    """Debian builds Prometheus without Kubernetes' discovery: fixed addresses take its place."""
    for job in config["scrape_configs"]:
        assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
        job["static_configs"] = [{"targets": ["h:1"]}]
    return config


@pytest.mark.prometheus
@needs_prometheus
def test_promtool_takes_the_scrape_jobs(tmp_path: Path) -> None:
    assert "SUCCESS" in _promtool("check", "config", "prometheus.yml")
    (config,) = documents(KUBERNETES)
    shutil.copytree(FOLDER / "rules", tmp_path / "rules")
    (tmp_path / "k.json").write_text(json.dumps(_found_by_address(config)))
    assert "SUCCESS" in _promtool("check", "config", "k.json", folder=tmp_path)


@pytest.mark.prometheus
@needs_prometheus
def test_promtool_takes_the_alerts_and_their_tests_pass() -> None:
    _promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    _promtool("test", "rules", FOLDER / "tests" / "driftwatch_test.yml")


def _alerts() -> list[dict[str, Any]]:
    (text,) = documents(RULES)
    return [rule for group in text["groups"] for rule in group["rules"]]


def test_every_alert_has_a_test() -> None:
    tested = (FOLDER / "tests" / "driftwatch_test.yml").read_text(encoding="utf-8")
    assert [rule["alert"] for rule in _alerts() if rule["alert"] not in tested] == []


def test_every_alert_speaks_of_a_metric_that_driftwatch_serves() -> None:
    endings = {"counter": "_total", "info": "_info"}
    families = list(OwnMetrics().registry.collect())
    served = {family.name + endings.get(family.type, "") for family in families}
    served |= {f"{f.name}_{part}" for f in families if f.type == "histogram" for part in PARTS}
    asked = {name for rule in _alerts() for name in re.findall(r"driftwatch_\w+", rule["expr"])}
    assert asked <= served
    assert len(asked) >= 6


@pytest.mark.prometheus
@needs_prometheus
def test_a_real_prometheus_scrapes_a_service_and_hears_that_it_is_alive() -> None:
    """The shipped job and alerts, at one second, on a real page."""
    end = datetime.now(UTC).replace(second=0, microsecond=0)
    own = OwnMetrics()
    own.last_tick.set(time.time())
    key = TargetKey("rag-0:8000", "0")
    row = {"instance": "rag-0:8000", "end": end, "running_requests": 7.0}
    own.note_minutes(evidence_rows(row), {key: Target(key, pool="rag-8b")})
    (config,) = documents(FOLDER / "prometheus.yml")
    (job,) = [job for job in config["scrape_configs"] if job["job_name"] == "driftwatch"]
    endpoint = Endpoint(("127.0.0.1", 0), own.registry, lambda: None, lambda: None)
    try:
        address = "{}:{}".format(*endpoint.address)
        job["static_configs"] = [{"targets": [address]}]
        every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        text = {"global": every, "scrape_configs": [job], "rule_files": [str(RULES)]}
        with PrometheusServer(text) as server:
            alive = _once(server, 'ALERTS{alertname="DriftwatchAlive",alertstate="firing"}')
            (gauge,) = _once(server, "driftwatch_target_running_requests")
            (up,) = _once(server, 'up{job="driftwatch"}')
            others = server.query('ALERTS{alertname!="DriftwatchAlive",alertstate="firing"}')
    finally:
        endpoint.close()
    assert alive
    assert gauge["metric"]["instance"] == "rag-0:8000"
    assert gauge["metric"]["pool"] == "rag-8b"
    assert gauge["value"][1] == "7"
    assert up["metric"]["instance"] == address
    assert others == []


def _once(server: PrometheusServer, text: str) -> list[dict[str, Any]]:
    """The answer of a query as soon as there is one."""
    deadline = time.monotonic() + 30
    while not (found := server.query(text)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


@pytest.mark.prometheus
@pytest.mark.skipif(
    shutil.which("amtool") is None, reason="prometheus-alertmanager is not installed"
)
def test_alertmanager_routes_every_severity() -> None:
    for severity, receiver in {
        "heartbeat": "dead-mans-switch",
        "page": "oncall",
        "ticket": "tickets",
    }.items():
        ran = subprocess.run(
            [
                *("amtool", "config", "routes", "test"),
                *(f"--config.file={FOLDER / 'alertmanager.yml'}", f"severity={severity}"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.returncode, ran.stdout.strip()) == (0, receiver), ran.stderr
    (config,) = documents(FOLDER / "alertmanager.yml")
    assert "inhibit_rules" not in config  # nothing may keep the heartbeat quiet


# -- the shipped rules, exported ------------------------------------------------------------------

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
TYPES = {"float": pl.Float64, "bool": pl.Boolean, "string": pl.String}


@pytest.fixture(scope="module")
def exported() -> str:
    """As `driftwatch rules export` prints them."""
    return alert_file("prometheus", alerts_of(load_rulebook().rules))


def _rules(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def test_every_shipped_rule_is_there_or_named(exported: str) -> None:
    named = "".join(line for line in exported.splitlines() if line.startswith("#"))
    alerts = {rule["alert"] for rule in _rules(exported)}
    missing = {rule.alert for rule in load_rulebook().rules} - alerts
    assert all(name in named for name in missing)
    assert "ThroughputDown" in missing  # off
    assert alerts.isdisjoint(rule["alert"] for rule in _alerts())


def test_they_read_what_driftwatch_serves_with_these_rules(exported: str) -> None:
    rules = [rule for rule in load_rulebook().rules if rule.is_evaluated]
    columns = {column for rule in rules for column in rule.columns}
    types = {column: TYPES[BY_NAME[column].dtype] for column in columns}
    rows = evidence_rows({"instance": "h:1", "end": NOON}, **types)
    metrics, key = OwnMetrics(lambda: NOON), TargetKey("h:1", "0")
    metrics.note_minutes(rows, {key: Target(key, pool="rag")}, rules)
    served = {family.name for family in metrics.registry.collect()}
    expressions = " ".join(rule["expr"] for rule in _rules(exported))
    assert set(re.findall(r"driftwatch_\w+", expressions)) <= served
    asked = set(re.findall(r'driftwatch_rule\{rule="((?:[^"\\]|\\.)*)"', expressions))
    assert {one.replace('\\"', '"') for one in asked} == {rule.id for rule in rules}
