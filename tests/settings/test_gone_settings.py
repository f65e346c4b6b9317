"""A setting of an earlier version gets an error that names what to use instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from driftwatch.cli.main import cli
from driftwatch.errors import ConfigError
from driftwatch.rulebook.lint import check_rulebook
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


def test_a_source_of_a_kind_that_is_gone_is_not_of_the_wrong_kind_as_well(tmp_path: Path) -> None:
    file = tmp_path / "driftwatch.yaml"
    file.write_text("sources:\n  - match: {job: vllm}\n    remote_write: 0.0.0.0:9091\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(file, environ={})
    assert [(one.code, one.line) for one in caught.value.problems] == [("gone", 3)]


def test_a_key_of_a_rule_that_is_gone_is_no_unknown_key_as_well(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "groups:\n  - name: g\n    rules:\n"
        "      - alert: A\n        when: scrapes > 1\n        severity: notice\n"
        "        mute_time_intervals: [nights]\n"
    )
    found = [one for one in check_rulebook((file,)).problems if one.line == 7]
    assert [one.code for one in found] == ["gone"]


@pytest.mark.parametrize("words", ["notify test x", "unack x", "rules check", "baseline show x"])
def test_a_verb_that_is_gone_names_its_successor(words: str) -> None:
    result = CliRunner().invoke(cli, words.split())
    assert result.exit_code == 2
    assert " is gone: " in result.output
