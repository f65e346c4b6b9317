"""The helps of the verbs that are asked after the fact, whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner

from driftwatch.cli.main import cli


@pytest.mark.parametrize("verb", ["explain", "recommend", "verify"])
def test_a_help_reads_as_designed(verb: str, golden: Callable[[str, str], None]) -> None:
    result = CliRunner().invoke(cli, [verb, "--help"], prog_name="driftwatch", terminal_width=80)
    assert result.exit_code == 0
    golden(f"{verb}/help.txt", result.output)
