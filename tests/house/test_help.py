"""``driftwatch --help`` answers at once: it lists every verb and imports none of them."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from driftwatch.cli.main import VERBS, cli, command_of

HEAVY = (
    "alembic",
    "apscheduler",
    "numpy",
    "polars",
    "prometheus_api_client",
    "pydantic",
    "requests",
    "scipy",
    "slack_sdk",
    "sqlalchemy",
    "sqlglot",
    "structlog",
    "yaml",
)


def test_help_imports_no_heavy_library() -> None:
    code = (
        "import sys, json; sys.argv = ['driftwatch', '--help']\n"
        "from driftwatch.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(ran.stdout.splitlines()[-1]))
    assert "click" in loaded
    assert loaded & set(HEAVY) == set()
    assert not any(name.startswith("driftwatch.cli.") for name in ran.stdout.splitlines())


def test_help_lists_every_verb_with_its_line() -> None:
    shown = " ".join(CliRunner().invoke(cli, ["--help"]).output.split())
    for verb, line in VERBS.items():
        assert f"{verb} {line}" in shown


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_there_and_says_what_it_does(verb: str) -> None:
    command = command_of(verb)
    assert isinstance(command, click.Command)
    assert command.help
    shown = CliRunner().invoke(cli, [verb, "--help"])
    assert shown.exit_code == 0, shown.output
    assert f"{verb}" in shown.output.splitlines()[0]


def test_a_wrong_verb_gets_a_hint_and_exit_code_2() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "from driftwatch.cli.main import main; main()", "explian"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "did you mean explain?" in ran.stderr
    assert "Traceback" not in ran.stderr
