"""The manifests: valid by Kubernetes' own schemas, closed, and of one piece with the program."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from click.testing import CliRunner
from deploy_cases import DEPLOY, ROOT, documents, known_options, kustomizations, kustomized, merged
from ruamel.yaml import YAML

from driftwatch import __version__
from driftwatch.rulebook.book import load_rulebook
from driftwatch.service.configuration import plan_of_settings
from driftwatch.settings import ENVIRONMENT, load_settings

FOLDER = DEPLOY / "kubernetes"
FULL = FOLDER / "overlays" / "full"
# the oldest release that has everything used here and the newest whose schemas are at hand
RELEASES = ("1.27", kubernetes_validate.latest_version())

# CRDs have no schema in Kubernetes: what these files use of them, and nothing else
_NAMED = {"type": "object", "required": ["name"]}
_SELECTOR = {
    "type": "object",
    "required": ["matchLabels"],
    "additionalProperties": False,
    "properties": {"matchLabels": {"type": "object", "minProperties": 1}},
}
_ENDPOINT = {
    "type": "object",
    "required": ["port", "path", "interval", "scrapeTimeout"],
    "additionalProperties": False,
    "properties": {
        "port": {"type": "string"},
        "path": {"type": "string", "pattern": "^/"},
        "interval": {"type": "string", "pattern": "^[0-9]+s$"},
        "scrapeTimeout": {"type": "string", "pattern": "^[0-9]+s$"},
        "honorLabels": {"type": "boolean"},
        "relabelings": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["sourceLabels", "targetLabel"],
                "additionalProperties": False,
                "properties": {
                    "sourceLabels": {"type": "array", "items": {"pattern": "^__meta_kubernetes_"}},
                    "targetLabel": {"type": "string"},
                },
            },
        },
    },
}


def _monitor(endpoints: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["selector", endpoints],
        "additionalProperties": False,
        "properties": {
            "selector": _SELECTOR,
            endpoints: {"type": "array", "minItems": 1, "items": _ENDPOINT},
        },
    }


CUSTOM = {
    "ServiceMonitor": _monitor("endpoints"),
    "PodMonitor": _monitor("podMetricsEndpoints"),
    # its groups are compared with those that promtool checks: test_prometheus_files.py
    "PrometheusRule": {
        "type": "object",
        "required": ["groups"],
        "additionalProperties": False,
        "properties": {"groups": {"type": "array", "minItems": 1}},
    },
}


@pytest.fixture(scope="module")
def everything() -> list[Any]:
    return kustomized(FULL)


def _of_kind(resources: list[Any], *kinds: str) -> list[Any]:
    return [resource for resource in resources if resource["kind"] in kinds]


def _pod_specs(resources: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for resource in _of_kind(resources, "Deployment", "DaemonSet"):
        yield resource["metadata"]["name"], resource["spec"]["template"]["spec"]


def _containers(resources: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, spec in _pod_specs(resources):
        assert "initContainers" not in spec  # they would be left unchecked
        for container in spec["containers"]:
            yield f"{name}/{container['name']}", container


def test_what_can_be_applied_is_found() -> None:
    names = [str(path.relative_to(FOLDER)) for path in kustomizations()]
    assert names == ["base", "overlays/full"]
    assert len(list(_containers(kustomized(FULL)))) == 2


def test_every_file_is_part_of_a_kustomization() -> None:
    used: set[Path] = set()
    for file in FOLDER.rglob("kustomization.yaml"):
        (text,) = documents(file)
        used.add(file)
        names = [*text.get("resources", []), *(p["path"] for p in text.get("patches", []))]
        names += [name for made in text.get("configMapGenerator", []) for name in made["files"]]
        used |= {(file.parent / name).resolve() for name in names}
    files = {path.resolve() for path in FOLDER.rglob("*") if path.is_file()}
    assert files - used == set()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("folder", kustomizations(), ids=lambda path: path.name)
def test_kubernetes_schemas_take_it(folder: Path, release: str) -> None:
    checked = 0
    for resource in kustomized(folder):
        if resource["kind"] in CUSTOM:
            assert resource["apiVersion"] == "monitoring.coreos.com/v1"
            jsonschema.validate(resource["spec"], CUSTOM[resource["kind"]])
            continue
        kubernetes_validate.validate(resource, release, strict=True)
        checked += 1
    assert checked >= 7


def test_a_misspelt_field_is_noticed(everything: list[Any]) -> None:
    (deployment,) = _of_kind(everything, "Deployment")
    wrong = merged(deployment, {"spec": {"template": {"spec": {"runAsNonRoot": True}}}})
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, RELEASES[-1], strict=True)


def test_every_pod_is_closed(everything: list[Any]) -> None:
    for name, spec in _pod_specs(everything):
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] > 0 and context["runAsGroup"] > 0, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["automountServiceAccountToken"] is False, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert not [volume for volume in spec["volumes"] if "hostPath" in volume], name


def test_every_container_is_closed(everything: list[Any]) -> None:
    for name, container in _containers(everything):
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


def test_the_namespace_refuses_pods_that_are_not(everything: list[Any]) -> None:
    (namespace,) = _of_kind(everything, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_nobody_has_rights(everything: list[Any]) -> None:
    assert _of_kind(everything, "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding") == []
    (account,) = _of_kind(everything, "ServiceAccount")
    assert account["automountServiceAccountToken"] is False


def test_there_is_one_process_with_one_database(everything: list[Any]) -> None:
    (deployment,) = _of_kind(everything, "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    (claim,) = _of_kind(everything, "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_what_is_mounted_is_there(everything: list[Any]) -> None:
    names = {(resource["kind"], resource["metadata"]["name"]) for resource in everything}
    for pod, spec in _pod_specs(everything):
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
    pods = [r["spec"]["template"] for r in _of_kind(everything, "Deployment", "DaemonSet")]
    services = _of_kind(everything, "Service")
    for resource in everything:
        spec = resource.get("spec", {})
        match resource["kind"]:
            case "Deployment" | "DaemonSet":
                wanted, among = spec["selector"]["matchLabels"], [spec["template"]]
            case "Service":
                wanted, among = spec["selector"], pods
            case "ServiceMonitor":
                wanted, among = spec["selector"]["matchLabels"], services
            case "PodMonitor":
                wanted, among = spec["selector"]["matchLabels"], pods
            case "NetworkPolicy":
                wanted, among = spec["podSelector"]["matchLabels"], pods
            case _:
                continue
        found = [x for x in among if wanted.items() <= x["metadata"]["labels"].items()]
        assert len(found) == 1, (resource["kind"], resource["metadata"]["name"])


def test_ports_are_named_as_the_containers_name_them(everything: list[Any]) -> None:
    named = {port["name"] for _, c in _containers(everything) for port in c["ports"]}
    for _, container in _containers(everything):
        own = {port["name"] for port in container["ports"]}
        probes = [container[key] for key in container if key.endswith("Probe")]
        assert {probe["httpGet"]["port"] for probe in probes} <= own
    for service in _of_kind(everything, "Service"):
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
    for policy in _of_kind(everything, "NetworkPolicy"):
        rules = policy["spec"].get("ingress", [])
        assert {port["port"] for rule in rules for port in rule["ports"]} <= named
    for monitor in _of_kind(everything, "ServiceMonitor", "PodMonitor"):
        ends = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
        assert {end["port"] for end in ends} <= named


def test_commands_and_environment_are_the_programs(everything: list[Any]) -> None:
    for name, container in _containers(everything):
        assert "command" not in container, name  # the image's entry point
        assert known_options([str(word) for word in container["args"]]) == [], name
        variables = {variable["name"] for variable in container.get("env", [])}
        known = set(ENVIRONMENT) if container["args"][0] == "run" else set()
        # read by the NVIDIA container runtime
        assert variables - known <= {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}, name


def test_it_listens_where_it_is_asked(everything: list[Any]) -> None:
    for name, container in _containers(everything):
        environment = {v["name"]: v["value"] for v in container["env"]}
        words = container["args"]
        where = (
            environment["DRIFTWATCH_LISTEN"]
            if words[0] == "run"
            else words[words.index("--listen") + 1]
        )
        assert where == f"0.0.0.0:{container['ports'][0]['containerPort']}", name


def test_probes_ask_pages_that_are_served(everything: list[Any]) -> None:
    from prometheus_client import CollectorRegistry

    from driftwatch.service.endpoint import Endpoint

    endpoint = Endpoint(("127.0.0.1", 0), CollectorRegistry(), lambda: None, lambda: None)
    try:
        import requests

        host, port = endpoint.address
        for name, container in _containers(everything):
            for key in (key for key in container if key.endswith("Probe")):
                path = container[key]["httpGet"]["path"]
                assert requests.get(f"http://{host}:{port}{path}", timeout=5).ok, (name, path)
    finally:
        endpoint.close()


@pytest.mark.parametrize("folder", kustomizations(), ids=lambda path: path.name)
def test_the_configuration_in_the_map_can_be_used(folder: Path, tmp_path: Path) -> None:
    """Laid out as the pod sees it, with the mount points moved below a folder."""
    from driftwatch.cli.check import command

    resources = kustomized(folder)
    (spec,) = [spec for name, spec in _pod_specs(resources) if name == "driftwatch"]
    maps = {r["metadata"]["name"]: r["data"] for r in _of_kind(resources, "ConfigMap")}
    (container,) = spec["containers"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {m["mountPath"]: volumes[m["name"]] for m in container["volumeMounts"]}

    def moved(text: str) -> str:
        return re.sub(r"(?<![\w.-])(/(?:etc|var|opt)/[\w-]+)", rf"{tmp_path}\1", text)

    for path, volume in mounts.items():
        inside = tmp_path / path.lstrip("/")
        inside.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            for name, text in maps[volume["configMap"]["name"]].items():
                (inside / name).write_text(moved(text))
        if "secret" in volume:
            (inside / "slack.url").write_text("https://hooks.slack.example/services/T/B/x")
    # the image has the shipped rules there
    assert (
        "COPY --from=build /src/rules /opt/driftwatch/rules\n" in (ROOT / "Dockerfile").read_text()
    )
    shutil.copytree(ROOT / "rules", tmp_path / "opt/driftwatch/rules")
    config = tmp_path / container["args"][-1].lstrip("/")
    settings = load_settings(config, environ={})
    assert [receiver.name for receiver in settings.receivers] == ["oncall"]
    # no shipped rule is lost to rules of one's own, and none of those comes without being asked for
    used = {rule.id: rule for rule in plan_of_settings(settings).rules}
    ours = load_rulebook().rules
    assert {rule.id: rule.enabled for rule in ours}.items() <= {
        name: rule.enabled for name, rule in used.items()
    }.items()
    more = set(used) - {rule.id for rule in ours}
    assert more == ({"QueueLong"} if folder == FULL else set())
    assert not any(used[name].enabled for name in more)
    ran = CliRunner().invoke(command, ["-c", str(config)], standalone_mode=False)
    assert (ran.exception, ran.return_value or 0) == (None, 0), ran.output
    environment = {v["name"]: v["value"] for v in container["env"]}
    assert str(Path(environment["DRIFTWATCH_DATABASE"]).parent) in mounts


def test_images_carry_this_version() -> None:
    files = [ROOT / "Dockerfile", ROOT / "docs/sre/deploy.md", *FOLDER.rglob("*.yaml")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    tags = [
        tag
        for text in texts
        for tag in re.findall(r"(?:driftwatch:|newTag: )([0-9]+\.[\w.-]*)", text)
    ]
    assert set(tags) == {__version__}
    assert len(tags) >= 6


def test_what_the_docs_apply_is_an_overlay_with_an_image_of_ones_own() -> None:
    """The base's image is a placeholder that nobody can pull."""
    docs = (ROOT / "docs/sre/deploy.md").read_text(encoding="utf-8")
    applied = re.findall(r"kubectl apply -k (\S+)", docs)
    assert applied == ["deploy/kubernetes/overlays/YOURS"]
    assert docs.index(f"cp -r deploy/kubernetes/overlays/full {applied[0]}") < docs.index(
        f"kubectl apply -k {applied[0]}"
    )
    (block,) = re.findall(r"^images:\n(?:  .*\n)+", docs, flags=re.M)
    (image,) = YAML(typ="safe").load(block)["images"]
    (text,) = documents(FULL / "kustomization.yaml")
    (shipped,) = text["images"]
    assert (image["name"], image["newTag"]) == (shipped["name"], shipped["newTag"])
    for _, container in _containers(kustomized(FULL)):
        assert container["image"].split(":")[0] == image["name"]


def _kubectl_kustomize(folder: Path) -> list[Any] | None:
    """What kubectl builds; None where there is none, or one without components (before 1.21)."""
    if shutil.which("kubectl") is None:
        return None
    ran = subprocess.run(
        ["kubectl", "kustomize", folder], capture_output=True, text=True, check=False
    )
    if "unknown field" in ran.stderr:
        return None
    assert ran.returncode == 0, ran.stderr
    return [found for found in YAML(typ="safe").load_all(ran.stdout) if found]


@pytest.mark.parametrize("folder", kustomizations(), ids=lambda path: path.name)
def test_kustomize_builds_the_same(folder: Path) -> None:
    built = _kubectl_kustomize(folder)
    if built is None:
        pytest.skip("no kubectl that can build a kustomization with components")
    made = kustomized(folder)

    def names(resources: list[Any]) -> set[tuple[str, str]]:
        # a generated name ends in a hash of its content
        return {
            (
                r["kind"],
                re.sub(r"-[a-z0-9]{10}$", "", r["metadata"]["name"])
                if r["kind"] == "ConfigMap"
                else r["metadata"]["name"],
            )
            for r in resources
        }

    assert names(built) == names(made)
    assert {r["metadata"].get("namespace") for r in built} == {"driftwatch", None}
    # what the schema and policy tests saw is what is applied
    for (_, theirs), (_, ours) in zip(
        sorted(_containers(built), key=lambda pair: pair[0]),
        sorted(_containers(made), key=lambda pair: pair[0]),
        strict=True,
    ):
        same = {key: value for key, value in theirs.items() if key not in ("volumeMounts",)}
        assert same == {key: value for key, value in ours.items() if key != "volumeMounts"}
        mounted = [{m["mountPath"] for m in c["volumeMounts"]} for c in (theirs, ours)]
        assert mounted[0] == mounted[1]
