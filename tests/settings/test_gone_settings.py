"""A setting of an earlier version gets an error that names what to use instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftwatch.errors import ConfigError
from driftwatch.settings.file import load_settings
from driftwatch.settings.gone import GONE


def text_with(path: str) -> str:
    """A configuration with the key at a path of GONE."""
    lines, indent, item = [], 0, ""
    for part in path.split("."):
        if part == "*":
            item = "- "
            continue
        lines.append(f"{' ' * indent}{item}{part}:")
        indent += 2 + len(item)
        item = ""
    return "\n".join(lines)


@pytest.mark.parametrize("path", GONE)
def test_it_is_the_only_thing_said_of_the_key(path: str, tmp_path: Path) -> None:
    """Neither an unknown key nor a wrong value is reported beside it."""
    file = tmp_path / "driftwatch.yaml"
    file.write_text(text_with(path) + " 1\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(file, environ={})
    key = path.rsplit(".", 1)[-1]
    said = [problem for problem in caught.value.problems if key in problem.message]
    assert [(problem.code, problem.help_text) for problem in said] == [("gone", GONE[path])]
    assert (said[0].line, said[0].column) == (
        path.replace(".*", "").count(".") + 1,
        1 + file.read_text().splitlines()[-1].index(key),
    )
