"""The pages as people see them, byte for byte. ``python tests/notify/test_golden.py`` rewrites."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from page_cases import CASES

from driftwatch.notify.slack import blocks
from driftwatch.notify.terminal import render

GOLDEN = Path(__file__).parent / "golden"


def rendered(name: str) -> dict[str, str]:
    """File name → what it must hold."""
    firing, resolved = CASES[name].page(), CASES[name].resolved()
    files = {
        f"{name}.firing.txt": render(firing) + "\n",
        f"{name}.resolved.txt": render(resolved) + "\n",
        f"{name}.slack.json": _json(blocks(firing)),
        f"{name}.page.json": _json(firing),
    }
    if name in ("cap", "budget"):
        files[f"{name}.ascii.txt"] = render(firing, ascii=True) + "\n"
        files[f"{name}.narrow.txt"] = render(firing, width=48) + "\n"
        files[f"{name}.resolved.slack.json"] = _json(blocks(resolved))
        files[f"{name}.resolved.page.json"] = _json(resolved)
    return files


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


@pytest.mark.parametrize("name", CASES)
def test_rendered_as_recorded(name: str) -> None:
    for file, text in rendered(name).items():
        assert (GOLDEN / file).read_text("utf-8") == text, file


def test_no_golden_file_is_left_over() -> None:
    made = {file for name in CASES for file in rendered(name)}
    assert {path.name for path in GOLDEN.iterdir()} == made


if __name__ == "__main__":
    for _name in CASES:
        for _file, _text in rendered(_name).items():
            (GOLDEN / _file).write_text(_text, "utf-8")
