"""What the chart gives by helm itself: valid by Kubernetes, closed, one with the program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from deploy_cases import (
    CHART,
    DEPLOY,
    MODES,
    ROOT,
    containers,
    documents,
    helm,
    helm_rendered,
    known_options,
    of_kind,
    pod_specs,
)

from driftwatch import __version__
from driftwatch.settings import ENVIRONMENT, load_settings

pytestmark = pytest.mark.helm

# the oldest release that has everything used here and the newest whose schemas are at hand
RELEASES = ("1.27", kubernetes_validate.latest_version())

# CRDs have no schema in Kubernetes
CUSTOM = ("ServiceMonitor", "PrometheusRule")
ENDPOINT = {"port", "path", "interval", "scrapeTimeout", "honorLabels"}


@pytest.fixture(params=MODES)
def everything(request: pytest.FixtureRequest) -> list[Any]:
    return helm_rendered(request.param)


@pytest.mark.parametrize("release", RELEASES)
def test_kubernetes_schemas_take_it(everything: list[Any], release: str) -> None:
    checked = 0
    for resource in everything:
        if resource["kind"] in CUSTOM:
            assert resource["apiVersion"] == "monitoring.coreos.com/v1"
            assert all({*one} <= ENDPOINT for one in resource["spec"].get("endpoints", []))
            continue
        kubernetes_validate.validate(resource, release, strict=True)
        checked += 1
    assert checked >= 7


def test_every_pod_is_closed(everything: list[Any]) -> None:
    for name, spec in pod_specs(everything):
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] > 0 and context["runAsGroup"] > 0, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["automountServiceAccountToken"] is False, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert not [volume for volume in spec["volumes"] if "hostPath" in volume], name


def test_every_container_is_closed(everything: list[Any]) -> None:
    for name, container in containers(everything):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        resources = container["resources"]
        assert {"cpu", "memory"} <= set(resources["requests"]), name
        assert "memory" in resources["limits"], name
        assert {"livenessProbe", "readinessProbe"} <= set(container), name


def test_what_is_mounted_is_there(everything: list[Any]) -> None:
    names = {(resource["kind"], resource["metadata"]["name"]) for resource in everything}
    for pod, spec in pod_specs(everything):
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        mounted = {m["name"] for c in spec["containers"] for m in c["volumeMounts"]}
        assert mounted == set(volumes), pod
        for volume in volumes.values():
            match volume:
                case {"configMap": {"name": name}}:
                    assert ("ConfigMap", name) in names
                case {"persistentVolumeClaim": {"claimName": name}}:
                    assert ("PersistentVolumeClaim", name) in names
                case {"secret": {"secretName": name}}:
                    # made by hand: the docs show how
                    deploy = (ROOT / "docs/sre/deploy.md").read_text(encoding="utf-8")
                    assert f"create secret generic {name} " in deploy
                case _:
                    assert "emptyDir" in volume
        assert ("ServiceAccount", spec["serviceAccountName"]) in names


def test_selectors_find_the_pods(everything: list[Any]) -> None:
    pods = [r["spec"]["template"] for r in of_kind(everything, "Deployment")]
    services = of_kind(everything, "Service")
    for resource in everything:
        spec = resource.get("spec", {})
        match resource["kind"]:
            case "Deployment":
                wanted, among = spec["selector"]["matchLabels"], [spec["template"]]
            case "Service":
                wanted, among = spec["selector"], pods
            case "ServiceMonitor":
                wanted, among = spec["selector"]["matchLabels"], services
            case "PodDisruptionBudget":
                wanted, among = spec["selector"]["matchLabels"], pods
            case "NetworkPolicy":
                wanted, among = spec["podSelector"]["matchLabels"], pods
            case _:
                continue
        found = [x for x in among if wanted.items() <= x["metadata"]["labels"].items()]
        number = len(pods) if resource["kind"] == "NetworkPolicy" else 1
        assert len(found) == number, (resource["kind"], resource["metadata"]["name"])


def test_ports_are_named_as_the_containers_name_them(everything: list[Any]) -> None:
    named = {port["name"] for _, c in containers(everything) for port in c.get("ports", [])}
    for _, container in containers(everything):
        own = {port["name"] for port in container.get("ports", [])}
        probes = [container[key] for key in container if key.endswith("Probe")]
        assert {probe["httpGet"]["port"] for probe in probes} <= own
        assert {probe["httpGet"]["path"] for probe in probes} <= {"/-/healthy", "/-/ready"}
    for service in of_kind(everything, "Service"):
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
    for policy in of_kind(everything, "NetworkPolicy"):
        rules = policy["spec"].get("ingress", [])
        assert {port["port"] for rule in rules for port in rule["ports"]} <= named
    for monitor in of_kind(everything, "ServiceMonitor"):
        assert {end["port"] for end in monitor["spec"]["endpoints"]} <= named


def test_commands_and_environment_are_the_programs(everything: list[Any]) -> None:
    for name, container in containers(everything):
        assert "command" not in container, name  # the image's entry point
        assert known_options([str(word) for word in container["args"]]) == [], name
        variables = {variable["name"] for variable in container.get("env", [])}
        assert variables <= set(ENVIRONMENT), name


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
