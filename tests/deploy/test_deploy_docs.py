"""docs/sre/deploy.md against the files: paths, numbers, names."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import pytest
from deploy_cases import DEPLOY, ROOT, documents
from fakes import victoria_metrics_server

from driftwatch import __version__
from driftwatch.service.target_metrics import MOST_TARGETS

UNNAMED = {"tests", "rules", "dashboards", "datasources", "templates", "ci", "files"}
PAGE = (ROOT / "docs/sre/deploy.md").read_text(encoding="utf-8")


def test_every_path_exists() -> None:
    named = set(re.findall(r"(?<![\w/.])(?:deploy|scripts)/[\w./-]*\w", PAGE))
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_folder_of_deploy_is_told_of() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_dir() and path.name not in UNNAMED:
            assert path.name in PAGE, path


@pytest.mark.parametrize("page", ["docs/sre/deploy.md", "docs/sre/operations.md"])
def test_the_bound_is_the_programs(page: str) -> None:
    assert f"Above {MOST_TARGETS:,}" in (ROOT / page).read_text(encoding="utf-8")


def test_what_the_configuration_calls_a_credential_is_what_the_unit_loads() -> None:
    unit = (DEPLOY / "systemd/driftwatch.service").read_text(encoding="utf-8")
    (name, folder) = re.findall(r"^LoadCredential=(\w+):(\S+)$", unit, flags=re.M)[0]
    assert f"install -m 0600 slack.url {folder}/" in PAGE
    assert f"/run/credentials/driftwatch.service/{name}_slack.url" in PAGE


def test_the_heartbeat_is_the_alert_that_always_fires() -> None:
    (text,) = documents(DEPLOY / "prometheus/rules/driftwatch.yml")
    beats = [
        r["alert"] for r in text["groups"][0]["rules"] if r["labels"]["severity"] == "heartbeat"
    ]
    assert [f"**{name}**" in PAGE for name in beats] == [True]


@pytest.mark.parametrize("page", ["docs/sre/deploy.md", "deploy/prometheus/prometheus.yml"])
def test_what_victoria_metrics_needs_is_what_the_tests_start_it_with(page: str) -> None:
    """It drops labels of cache_config_info else: two backends are compared so."""
    source = Path(inspect.getfile(victoria_metrics_server)).read_text(encoding="utf-8")
    (flag,) = re.findall(r'"(-maxLabelsPerTimeseries=[0-9]+)"', source)
    assert flag in (ROOT / page).read_text(encoding="utf-8")


def test_nothing_is_said_on_two_pages() -> None:
    """A copy grows old: a link does not."""
    where: dict[str, set[str]] = {}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for part in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
            if len(part) >= 200:
                where.setdefault(" ".join(part.split()), set()).add(path.name)
    assert len(where) > 100
    assert [(part[:60], pages) for part, pages in where.items() if len(pages) > 1] == []


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.findall(r"^## (\S+)", text, flags=re.M)[0] == __version__ == project["version"]


def test_images_carry_this_version() -> None:
    texts = [(ROOT / name).read_text("utf-8") for name in ("Dockerfile", "docs/sre/deploy.md")]
    tags = {tag for text in texts for tag in re.findall(r"driftwatch:([0-9]+\.[\w.-]*)", text)}
    assert tags == {__version__}
