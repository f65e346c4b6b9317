"""The Helm chart by helm itself, beside what test_kubernetes.py asks of it: modes and refusals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy_cases import (
    CHART,
    DEPLOY,
    MODES,
    containers,
    documents,
    helm,
    helm_rendered,
    of_kind,
)

from driftwatch import __version__
from driftwatch.settings import load_settings

pytestmark = pytest.mark.helm

SINGLE = ("--values", CHART / "ci/single-values.yaml")
FLEET = ("--values", CHART / "ci/fleet-values.yaml")


def rendered(*words: object, release: str = "driftwatch") -> list[Any]:
    ran = helm("template", release, CHART, *words)
    assert ran.returncode == 0, ran.stderr
    return [found for found in yaml.safe_load_all(ran.stdout) if found]


def refusal(*words: object) -> str:
    ran = helm("template", "driftwatch", CHART, *words)
    assert ran.returncode != 0
    return ran.stderr


def config_of(resources: list[Any]) -> Any:
    (text,) = [
        one["data"]["driftwatch.yaml"]
        for one in of_kind(resources, "ConfigMap")
        if "driftwatch.yaml" in one["data"]
    ]
    return yaml.safe_load(text)


def test_the_chart_is_of_this_version() -> None:
    (chart,) = documents(CHART / "Chart.yaml")
    assert chart["appVersion"] == chart["version"] == __version__
    for _, container in containers(helm_rendered("single")):
        assert container["image"] == f"registry.example.com/driftwatch:{__version__}"


@pytest.mark.parametrize("mode", MODES)
def test_helm_lint_has_nothing_to_say(mode: str) -> None:
    ran = helm("lint", "--strict", CHART, "--values", CHART / "ci" / f"{mode}-values.yaml")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = [line for line in ran.stdout.splitlines() if line.startswith("[")]
    assert said == ["[INFO] Chart.yaml: icon is recommended"]


@pytest.mark.parametrize("mode", MODES)
def test_its_alerts_are_those_that_promtool_checks(mode: str) -> None:
    (made,) = of_kind(helm_rendered(mode), "PrometheusRule")
    (ours,) = documents(DEPLOY / "prometheus/rules/driftwatch.yml")
    assert made["spec"] == ours


@pytest.mark.parametrize("mode", MODES)
def test_the_job_is_called_as_the_alerts_ask(mode: str) -> None:
    resources = helm_rendered(mode, "eu")
    (monitor,) = of_kind(resources, "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    (service,) = [
        one for one in of_kind(resources, "Service") if wanted <= one["metadata"]["labels"].items()
    ]
    job = service["metadata"]["labels"][monitor["spec"]["jobLabel"]]
    (alerts,) = of_kind(resources, "PrometheusRule")
    asked = {job for rule in _rules(alerts) for job in re.findall(r'job="(\w+)"', rule["expr"])}
    assert asked == {job}


def _rules(alerts: Any) -> list[Any]:
    return [rule for group in alerts["spec"]["groups"] for rule in group["rules"]]


def test_one_process_keeps_its_volume_and_a_fleet_has_none() -> None:
    (claim,) = of_kind(helm_rendered("single"), "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert of_kind(helm_rendered("fleet"), "PersistentVolumeClaim", "StatefulSet") == []


@pytest.mark.parametrize("mode", MODES)
def test_its_configuration_is_one_of_the_program(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "driftwatch.yaml"
    path.write_text(yaml.safe_dump(config_of(helm_rendered(mode))))
    assert load_settings(path, environ={}).listen is not None


@pytest.mark.parametrize("mode", MODES)
def test_versions_never_meet_on_one_database(mode: str) -> None:
    for one in of_kind(helm_rendered(mode), "Deployment"):
        assert one["spec"]["strategy"] == {"type": "Recreate"}, one["metadata"]["name"]


def test_a_configuration_is_keys_or_a_file(tmp_path: Path) -> None:
    keys = {"sources": [{"prometheus": "http://p:9090"}], "interval": "15s"}
    file, values = tmp_path / "driftwatch.yaml", tmp_path / "values.yaml"
    with file.open("w") as written:
        yaml.safe_dump(keys, written)
    with values.open("w") as written:
        yaml.safe_dump({"config": keys}, written)
    image = ("--set", "image.repository=example.com/driftwatch")
    as_keys = rendered(*image, "--values", values)
    assert as_keys == rendered(*image, "--set-file", f"config={file}")
    config = config_of(as_keys)
    assert {key: config[key] for key in keys} == keys
    assert set(config) - set(keys) == {"database", "listen"}


def test_a_changed_configuration_and_changed_rules_start_pods_anew() -> None:
    def sums(resources: list[Any]) -> set[str]:
        return {
            pod["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
            for pod in of_kind(resources, "Deployment")
        }

    (before,) = sums(rendered(*SINGLE))
    assert sums(rendered(*SINGLE, "--set", "config.interval=30s")) != {before}
    assert sums(rendered(*SINGLE, "--set", r"rules.queue\.yaml=groups: []")) != {before}


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("postgresql://driftwatch@db/driftwatch", 5432),
        ("postgresql://driftwatch@db:6432/driftwatch?connect_timeout=3", 6432),
        ("postgres://driftwatch@[fd00::7]:7000/driftwatch", 7000),
        ("postgresql://driftwatch@[fd00::7]/driftwatch", 5432),
    ],
)
def test_the_policy_lets_the_database_through(url: str, port: int) -> None:
    (policy,) = of_kind(rendered(*FLEET, "--set", f"database.url={url}"), "NetworkPolicy")
    for rule in policy["spec"]["egress"]:
        assert {"protocol": "TCP", "port": port} in rule["ports"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "missing property 'config'"),
        ((), "at '/image/repository': minLength"),
        ((*SINGLE, "--set", "mode=sharded"), "at '/mode'"),
        ((*SINGLE, "--set", "replicas=3"), "additional properties 'replicas' not allowed"),
        ((*SINGLE, "--set", "mode=fleet"), "at '/database/url'"),
        ((*FLEET, "--set", "database.url=postgresql://u:password@db/d"), "at '/database/url'"),
        ((*FLEET, "--set", "database.url=mysql://db/d"), "at '/database/url'"),
        ((*FLEET, "--set", "run.replicas=0"), "at '/run/replicas'"),
        ((*FLEET, "--set", "run.shards=1"), "at '/run'"),
        ((*SINGLE, "--set", "web.ingress.host="), "at '/web/ingress/host'"),
        ((*SINGLE, "--set", "pod.hostNetwork=true"), "'hostNetwork' not allowed"),
        ((*SINGLE, "--set", "config.listen=:1"), "config.listen: the chart writes it"),
        ((*FLEET, "--set", "config=sources: ["), "config: "),
    ],
)
def test_wrong_values_are_refused(words: tuple[object, ...], said: str) -> None:
    assert said in refusal(*words)
