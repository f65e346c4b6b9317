"""Every code that a problem of a file may have is a heading of docs/sre/checks.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from driftwatch.rulebook.lint_conditions import LINTS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "sre" / "checks.md"
SOURCES = (
    *(ROOT / "driftwatch").glob("*.py"),
    *(ROOT / "driftwatch" / "rulebook").glob("*.py"),
    *(ROOT / "driftwatch" / "settings").glob("*.py"),
    *(ROOT / "driftwatch" / "vllm_arguments").glob("*.py"),
    ROOT / "driftwatch" / "service" / "configuration.py",
)
# function → which of its arguments is a code
CODE_AT = {
    "fault": (0,),
    "refuse": (2,),
    "no": (0, 1),
    "add": (1,),
    "problem": (1,),
    "Problem": (3,),
    "_whole": (1,),
    "_warning": (1,),
    "_fail": (2,),
}
# made of a word that the code looks up
OF_NOUNS = {f"unknown-{noun}" for noun in ("tree", "alert", "receiver")}


def calls(path: Path) -> Iterator[str]:
    """Codes that stand in a module as text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        for at in CODE_AT.get(name, ()):
            code = node.args[at] if len(node.args) > at else None
            text = str(code.value) if isinstance(code, ast.Constant) else ""
            if re.fullmatch(r"[a-z]+(-[a-z]+)*", text):
                yield text


def headings() -> set[str]:
    return set(re.findall(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), re.M))


def test_every_code_of_the_source_has_a_heading() -> None:
    codes = {code for path in SOURCES for code in calls(path)}
    assert {"unknown-column", "duplicate-key", "not-allowed", "no-files", "cycle"} <= codes
    assert (codes | OF_NOUNS | LINTS.keys()) - headings() == set()


def test_every_code_that_a_case_prints_has_a_heading() -> None:
    files = [
        *(ROOT / "tests/cases/check").glob("*.txt"),
        *(ROOT / "tests/golden/rulebook").iterdir(),
    ]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    printed = set(re.findall(r": (?:error|warning)\[([a-z-]+)\]", text))
    assert printed - headings() == set()
    assert LINTS.keys() - printed == set(), "a lint without a case"


def test_every_heading_is_a_code() -> None:
    known = {code for path in SOURCES for code in calls(path)} | OF_NOUNS | LINTS.keys()
    assert headings() - known == set()
