"""Where nobody names rules, the shipped ones are checked and tested: a note has to say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Run

NOTE = "note: no driftwatch.yaml is here, and no file is named: these are the shipped rules\n"
RULES = """\
groups:
  - name: mine
    rules:
      - {alert: A, when: "slo_missed", severity: ticket, annotations: {summary: a target is missed}}
"""


@pytest.mark.parametrize("words", [("check",), ("rules", "test", "--run", "^EngineStuck")])
def test_shipped_rules_are_called_so(run: Run, words: tuple[str, ...]) -> None:
    Path("rules").mkdir()  # a folder of that name is not read by itself
    Path("rules/mine.yaml").write_text("not: rules\n")
    code, _, err = run(*words)
    assert (code, err) == (0, NOTE)


def test_named_and_configured_rules_have_no_note(run: Run) -> None:
    Path("mine.yaml").write_text(RULES)
    assert run("check", "mine.yaml") == (0, "0 errors in 1 file, 1 rule\n", "")
    Path("driftwatch.yaml").write_text("rules: [mine.yaml]\n")
    assert run("check")[::2] == (3, "")  # it has no sources and no receivers
