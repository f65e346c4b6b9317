"""What of a report its published schema does not describe, or describes otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "report.schema.json"


def closed(part: Any) -> Any:
    """The schema where no object may have a field that it does not describe."""
    if isinstance(part, list):
        return [closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    return {
        key: False if key == "additionalProperties" and value is True else closed(value)
        for key, value in part.items()
    }


@cache
def validator() -> Draft202012Validator:
    schema = closed(json.loads(SCHEMA.read_text(encoding="utf-8")))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def problems(document: Mapping[str, Any]) -> list[str]:
    """Each with its place."""
    return [f"{e.json_path}: {e.message}" for e in validator().iter_errors(document)]
