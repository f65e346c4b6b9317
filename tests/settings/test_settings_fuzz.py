"""Configurations with changes: a named problem at its place, or settings that can be used."""

from __future__ import annotations

import pytest
from file_changes import changed_lines, changed_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_settings_file import FULL, SMALLEST

from driftwatch.errors import ConfigError, Problem
from driftwatch.service.needs import configured_argument_problems, unmet
from driftwatch.settings import load_settings
from driftwatch.yaml_positions import LINE_BREAK, parse_yaml, plain

TEXTS = {"driftwatch.yaml": FULL, "smallest.yaml": SMALLEST}
PLAIN = {name: plain(parse_yaml(text, name).root) for name, text in TEXTS.items()}


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(files=st.one_of(changed_lines(TEXTS), changed_values(PLAIN)))
def test_files_with_changes(
    files: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ((name, text),) = files.items()
    path = tmp_path_factory.mktemp("settings") / name
    path.write_text(text, encoding="utf-8", newline="")
    problems: list[Problem] = []
    try:
        read = load_settings(path, environ={})
    except ConfigError as error:
        assert error.problems
        problems += error.problems
    else:
        problems += unmet(read, path)
        problems += configured_argument_problems(read, path)
    lines = LINE_BREAK.split(text)
    for one in problems:
        assert one.message
        if one.line is not None:
            assert 1 <= one.line <= len(lines), one
            assert one.column is not None
            assert 1 <= one.column <= len(lines[one.line - 1]) + 1, one
            assert "CANARY" not in one.message, one
