"""The JSON Schemas: every shipped file fits, wrong ones do not."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from test_tree_files import TREE
from test_wrong_files import RULES, SHAPES, TREES

from driftwatch.cli.rules import schema_files
from driftwatch.cli.rules.schema_files import schema_of
from driftwatch.yaml_positions import parse_yaml, plain

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "rules" / "schemas"
KIND_OF_FOLDER = {"rules": "rules", "trees": "tree", "tests": "test"}
SHIPPED = sorted((ROOT / "rules").rglob("*.yaml"))
BIG = "      - {alert: Big, when: scrapes > 1, severity: page}\n"
# What only the loader sees: names in other files or places of the file, the words of a condition,
# a graph's ways, and that what is read is YAML's text as it stands.
RULES_OF_LOADER = frozenset(
    (
        "alert: A, when: restarted, severity: page, tree: batch-size-drif",
        "alert: A, when: restarted and, severity: page",
        "alert: A, when: 1 > 2, severity: page",
        "alert: A, when: scrapes > 1, severity: page, inhibited_by: [Bigger]",
        "alert: A, when: scrapes > 1, severity: page, inhibited_by: [A]",
        "alert: A, when: scrapes > 1, severity: page, until: scrapes_ < 1",
    )
)
SHAPES_OF_LOADER = frozenset((SHAPES[-1],))
TREES_OF_LOADER = frozenset(
    new for old, new in TREES if old.startswith(("yes:", "no:", "start: first", "ttft_", "  good"))
) - {"", "  undetermined:"} | {"not_asked: {scrapes: "}


@cache
def validator(kind: str) -> Draft202012Validator:
    schema = schema_of(kind)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def problems(kind: str, text: str) -> list[str]:
    document: Any = plain(parse_yaml(text, "f.yaml").root)
    return [error.message for error in validator(kind).iter_errors(document)]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda f: f.stem)
def test_a_shipped_file_fits_and_names_its_schema(file: Path) -> None:
    kind, text = KIND_OF_FOLDER[file.parent.name], file.read_text(encoding="utf-8")
    assert problems(kind, text) == []
    begin, _, named = text.splitlines()[0].partition("$schema=")
    assert begin == "# yaml-language-server: "
    assert (file.parent / named).resolve() == SCHEMAS / f"{kind}.schema.json"


@pytest.mark.parametrize("body", RULES)
def test_a_wrong_rule_is_caught(body: str) -> None:
    text = f"groups:\n  - name: g\n    rules:\n      - {{{body}}}\n{BIG}"
    assert bool(problems("rules", text)) is (body not in RULES_OF_LOADER)


@pytest.mark.parametrize("text", SHAPES)
def test_a_wrong_shape_is_caught(text: str) -> None:
    assert bool(problems("rules", text)) is (text not in SHAPES_OF_LOADER)


@pytest.mark.parametrize(("old", "new"), TREES)
def test_a_wrong_tree_is_caught(old: str, new: str) -> None:
    assert problems("tree", TREE) == []
    wrong = problems("tree", TREE.replace(old, new, 1))
    assert bool(wrong) is (new not in TREES_OF_LOADER)


@pytest.mark.parametrize(
    "text",
    [
        "sources: [{prometheus: http://p:9090, pages: [http://a/metrics]}]",
        "sources: [{prometheus: http://p:9090, step: 15}]",
        "pools: [{name: -a}]",
        "pools: [{name: a, slo: {share: 95}}]",
        "pools: [{name: a, serving: {max_num_seq: 256}}]",
        "receivers: [{name: a, severities: [critical]}]",
        "report: {weekday: Monday}",
        "recievers: []",
        "rules: {files: r.yaml}",
        "rules: {overrides: [{alert: A, pools: [a]}]}",
        "rules: {overrides: [{alert: A, enabled: false}]}",
        "rules: {overrides: [{when: scrapes > 1}]}",
    ],
)
def test_a_wrong_configuration_is_caught(text: str) -> None:
    assert problems("config", text)


def test_a_field_without_a_description_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_files, "DESCRIPTIONS", {})
    with pytest.raises(ValueError, match=r"\w+\.\w+ has no description"):
        schema_of("rules")
