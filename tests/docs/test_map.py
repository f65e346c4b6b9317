"""docs/architecture.md is the map of the source: every package, in the order of the walls."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `(driftwatch/\w+)/` \| (.+?) \|$", MAP, flags=re.M))


def packages() -> set[str]:
    return {
        f"driftwatch/{path.parent.name}"
        for path in (ROOT / "driftwatch").glob("*/__init__.py")
        if not path.parent.name.startswith("_")
    }


def test_every_package_is_on_the_map_and_no_other() -> None:
    assert set(ROWS) == packages()
    assert [name for name, text in ROWS.items() if len(text.split()) < 3] == []


def test_the_map_is_ordered_as_the_imports_are() -> None:
    """Who imports stands below whom it imports, as in the layers of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(c for c in project["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    level = {
        name.replace(".", "/"): number
        for number, layer in enumerate(reversed(layers["layers"]))
        for name in re.findall(r"driftwatch\.\w+", layer)
    }
    levels = [level[name] for name in ROWS]
    assert levels == sorted(levels)


def test_every_package_has_its_layer() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(c for c in project["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    named = {
        name.replace(".", "/")
        for layer in layers["layers"]
        for name in re.findall(r"driftwatch\.\w+", layer)
    }
    assert packages() <= named


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+/[\w.*]*)`", MAP))))
def test_what_the_map_names_exists(path: str) -> None:
    assert list(ROOT.glob(path.rstrip("/"))), path
