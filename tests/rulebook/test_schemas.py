"""The JSON Schemas: every shipped file fits, wrong ones do not."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from driftwatch.cli.catalogue import FILES, NAMES, schema_of
from driftwatch.yaml_positions import parse_yaml, plain

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "rules" / "schemas"
KIND_OF_FOLDER = {"rules": "rules", "trees": "tree", "tests": "test"}
SHIPPED = sorted((ROOT / "rules").rglob("*.yaml"))
BIG = "      - {alert: Big, when: scrapes > 1, severity: page}\n"


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


@pytest.mark.parametrize(
    "body",
    [
        "alert: A, when: scrapes > 1, severity: critical",
        "alert: A, when: scrapes > 1, severity: page, fro: 5m",
        "alert: A, when: scrapes > 1, severity: page, for: 5 minutes",
        "when: scrapes > 1, severity: page",
    ],
)
def test_a_wrong_rule_is_caught(body: str) -> None:
    assert problems("rules", f"groups:\n  - name: g\n    rules:\n      - {{{body}}}\n{BIG}")


@pytest.mark.parametrize("noun", NAMES)
def test_every_noun_has_a_schema(noun: str) -> None:
    schema = schema_of(noun)
    Draft202012Validator.check_schema(schema)
    assert schema["title"] == f"driftwatch {noun}"
    kinds = (schema, *schema["$defs"].values()) if noun in FILES else ()
    for one in (one for kind in kinds for one in kind.get("properties", {}).values()):
        whole = Draft202012Validator({**one, "$defs": schema["$defs"]})
        assert "default" not in one or whole.is_valid(one["default"])
