"""What the chart gives: valid by Kubernetes' own schemas, closed, of one piece with the program."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
from deploy_cases import (
    MODES,
    ROOT,
    containers,
    helm_rendered,
    known_options,
    of_kind,
    pod_specs,
)

from driftwatch.settings import ENVIRONMENT

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
