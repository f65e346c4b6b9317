"""The Dockerfile without Docker: its files are there, its pip commands work, it runs as nobody."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from deploy_cases import ROOT, known_options

from driftwatch import __version__
from driftwatch.settings import ENVIRONMENT

DOCKERFILE = ROOT / "Dockerfile"


def _instructions() -> list[tuple[str, str]]:
    """(instruction, the rest) in order; lines that go on are joined, comments left out."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line]  # type: ignore[misc]


def _all(name: str) -> list[str]:
    return [rest for instruction, rest in _instructions() if instruction == name]


def _copied() -> list[str]:
    """What is copied from the checkout."""
    words = [shlex.split(rest) for rest in _all("COPY") if not rest.startswith("--from")]
    return [name for sources in words for name in sources[:-1]]


def test_hadolint_has_nothing_to_say() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    ran = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout + ran.stderr


def test_it_runs_as_nobody_and_numerically() -> None:
    user, group = _all("USER")[-1].split(":")
    assert int(user) > 1000
    assert int(group) > 1000
    names = [name for name, _ in _instructions()]
    assert names.index("USER") > max(i for i, name in enumerate(names) if name == "RUN")


@pytest.mark.helm
def test_what_is_copied_is_enough_to_install_and_run(tmp_path: Path) -> None:
    """The last RUNs of the build stage, with a folder in place of the virtual environment."""
    source, target = tmp_path / "src", tmp_path / "site"
    source.mkdir()
    for name in _copied():
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, source / name)
    install, version, check = (part.strip() for part in _all("RUN")[2].split("&&"))
    pip = shlex.split(install)
    assert pip[:4] == ["/opt/driftwatch/bin/python", "-m", "pip", "install"]
    ran = subprocess.run(
        [sys.executable, *pip[1:], "--target", target, "--quiet", "--disable-pip-version-check"],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    for text in (version, check):
        _, *words = shlex.split(text.replace("/src/", f"{source}/"))
        ran = subprocess.run(
            [sys.executable, "-m", "driftwatch", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(target)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
    kernel = _all("RUN")[3].replace("/opt/driftwatch/bin/python", sys.executable)
    subprocess.run(
        ["bash", "-c", kernel.replace("/opt/driftwatch", str(target))],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(target)},
        check=True,
    )
    kept = {path.name.split(".")[0] for path in (target / "kernel").rglob("*.nbc")}
    assert kept == {"loop"}
    (loop,) = target.rglob("simulate/kernel/loop.py")
    assert loop.stat().st_mtime == 1_700_000_000


def test_dependencies_come_from_the_lock_with_hashes() -> None:
    (line,) = [rest for rest in _all("RUN") if "requirements.lock" in rest]
    assert "--require-hashes --no-deps -r requirements.lock" in line
    assert "requirements.lock" in _copied()


def test_what_it_starts_is_a_command_and_its_environment_is_read() -> None:
    assert json.loads(_all("ENTRYPOINT")[0]) == ["driftwatch"]
    assert known_options(json.loads(_all("CMD")[0])) == []
    names = set(re.findall(r"\b(DRIFTWATCH_\w+)=", " ".join(_all("ENV"))))
    assert names == set(ENVIRONMENT)


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.findall(r"^## (\S+)", text, flags=re.M)[0] == __version__ == project["version"]


def test_images_carry_this_version() -> None:
    texts = [(ROOT / name).read_text("utf-8") for name in ("Dockerfile", "docs/sre/deploy.md")]
    tags = {tag for text in texts for tag in re.findall(r"driftwatch:([0-9]+\.[\w.-]*)", text)}
    assert tags == {__version__}
