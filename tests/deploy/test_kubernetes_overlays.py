"""The overlays: usable configuration, images of this version, and as kustomize builds them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deploy_cases import (
    BUILT,
    FOLDER,
    FULL,
    ROOT,
    containers,
    documents,
    kubernetes_tool,
    kustomizations,
    kustomized,
    of_kind,
    pod_specs,
)
from ruamel.yaml import YAML

from driftwatch import __version__
from driftwatch.rulebook.book import load_rulebook
from driftwatch.service.configuration import plan_of_settings
from driftwatch.settings import load_settings


@pytest.mark.parametrize("built", BUILT)
def test_the_configuration_in_the_map_can_be_used(built: str, tmp_path: Path) -> None:
    """Laid out as the pod sees it, with the mount points moved below a folder."""
    from driftwatch.cli.check import command

    resources = BUILT[built]()
    (spec,) = [spec for pod, spec in pod_specs(resources) if pod == "driftwatch"]
    maps = {r["metadata"]["name"]: r["data"] for r in of_kind(resources, "ConfigMap")}
    (container,) = [one for one in spec["containers"] if one["name"] == "driftwatch"]
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
            (inside / "web.token").write_text("0123456789abcdef")
            (inside / "database-password").write_text("secret")
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
    assert more == ({"QueueLong"} if built in ("full", "helm-single") else set())
    assert not any(used[name].enabled for name in more)
    ran = CliRunner().invoke(command, ["-c", str(config)], standalone_mode=False)
    assert (ran.exception, ran.return_value or 0) == (None, 0), ran.output
    environment = {v["name"]: v["value"] for v in container["env"]}
    database = environment["DRIFTWATCH_DATABASE"]
    if built == "helm-shards":
        # as the variable says, that the image has
        secrets = tmp_path / "etc/driftwatch-secrets"
        assert str(settings.database).replace(str(secrets), "/etc/driftwatch-secrets") == database
        assert settings.database_password_file in (tmp_path / "etc/driftwatch-secrets").iterdir()
    else:
        assert str(Path(database).parent) in mounts


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
    for _, container in containers(kustomized(FULL)):
        assert container["image"].split(":")[0] == image["name"]


@pytest.mark.parametrize("folder", kustomizations(), ids=lambda path: path.name)
def test_kustomize_builds_the_same(folder: Path) -> None:
    kubectl = kubernetes_tool("kubectl")
    ran = subprocess.run(
        [kubectl, "kustomize", folder], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    built = [found for found in YAML(typ="safe").load_all(ran.stdout) if found]
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
        sorted(containers(built), key=lambda pair: pair[0]),
        sorted(containers(made), key=lambda pair: pair[0]),
        strict=True,
    ):
        same = {key: value for key, value in theirs.items() if key not in ("volumeMounts",)}
        assert same == {key: value for key, value in ours.items() if key != "volumeMounts"}
        mounted = [{m["mountPath"] for m in c["volumeMounts"]} for c in (theirs, ours)]
        assert mounted[0] == mounted[1]
