"""docs/sre/deploy.md against the files: paths, numbers, names."""

from __future__ import annotations

import re
import tomllib

from deploy_cases import ROOT

from driftwatch import __version__


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.findall(r"^## (\S+)", text, flags=re.M)[0] == __version__ == project["version"]


def test_images_carry_this_version() -> None:
    texts = [(ROOT / name).read_text("utf-8") for name in ("Dockerfile", "docs/sre/deploy.md")]
    tags = {tag for text in texts for tag in re.findall(r"driftwatch:([0-9]+\.[\w.-]*)", text)}
    assert tags == {__version__}
