"""The page's JSON against its published schema."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator
from page_cases import AT, BUDGET, CAP, CASES, DRIFT, FORMS, KV, Case, case

from driftwatch.evidence import BY_NAME
from driftwatch.model import Step
from driftwatch.notify.columns import SHORT, page_columns
from driftwatch.notify.headline import headline, lines
from driftwatch.notify.page import http_url
from driftwatch.notify.page_values import public
from driftwatch.notify.phrases.fill import PHRASES
from driftwatch.pipeline.build_page import build_page
from driftwatch.receivers.registry import sample_pages
from driftwatch.rulebook.page_form import GROUPS, PageForm
from driftwatch.rulebook.page_form import PHRASES as DESCRIBED

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "page.schema.json").read_text("utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)


def wrong(page: Any) -> list[str]:
    return sorted(f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(page))


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", CASES)
def test_a_page_is_valid_and_holds_only_described_fields(name: str) -> None:
    page, over = public(CASES[name].page()), public(CASES[name].resolved())
    for one in (page, over, json.loads(orjson.dumps(page))):
        assert wrong(one) == []
        assert list(_unknown(one, SCHEMA, "page")) == []
    page["evidence"]["running_requests"]["extra"] = 1
    assert list(_unknown(page, SCHEMA, "page")) == ["page.evidence.running_requests.extra"]


def test_the_test_page_is_valid_and_marked() -> None:
    page = sample_pages("oncall", AT)[0]
    assert wrong(page) == []
    assert page["test"] is True
    assert page["summary"].startswith("TEST ")
    assert "nothing is wrong" in page["summary"]


def _schemas(node: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, sub in (node.get("properties") or {}).items():
        yield f"{path}.{name}", sub
        yield from _schemas(sub, f"{path}.{name}")
    for name, sub in (node.get("$defs") or {}).items():
        yield f"{path}#{name}", sub
        yield from _schemas(sub, f"{path}#{name}")


def test_every_field_is_described() -> None:
    fields = [(p, s) for p, s in _schemas(SCHEMA, "page") if "allOf" not in p]
    assert len(fields) > 60
    assert [path for path, schema in fields if not schema.get("description")] == []


def _unknown(value: Any, schema: Any, path: str) -> Iterator[str]:
    """Fields of a page that the schema does not describe (it lets later releases add some)."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] | {
            k: v for k, v in schema.items() if k != "$ref"
        }
    for option in schema.get("anyOf", ()):
        if "$ref" in option and isinstance(value, dict):
            yield from _unknown(value, option, path)
            return
    if isinstance(value, dict):
        known, more = schema.get("properties", {}), schema.get("additionalProperties")
        for name, sub in value.items():
            if name in known:
                yield from _unknown(sub, known[name], f"{path}.{name}")
            elif isinstance(more, dict):
                yield from _unknown(sub, more, f"{path}.{name}")
            elif path != "page.reference":
                yield f"{path}.{name}"
    elif isinstance(value, list):
        for item in value:
            yield from _unknown(item, schema.get("items", {}), f"{path}[]")


def test_a_field_of_a_later_release_passes() -> None:
    page = CAP.page() | {"cost": {"gpu_hours": 0.3}}
    assert wrong(page) == []


def test_a_resolved_page_carries_what_was_sent() -> None:
    fired, resolved = BUDGET.page(), BUDGET.resolved()
    for field in ("evidence", "slo", "diagnosis", "recommendation", "reference", "incident"):
        assert resolved[field] == fired[field]
    assert resolved["event"] == "resolved"
    assert resolved["times"]["resolved_at"] == "2026-11-18T03:56:00Z"


def test_a_page_carries_what_matters_and_its_path() -> None:
    page = CAP.page()
    assert 20 <= len(page["evidence"]) <= 100
    walked = {column for step in page["diagnosis"]["path"] for column in step["evidence"]}
    assert walked <= set(page["evidence"])
    order = [c for c in BY_NAME if c in page["evidence"]]
    assert list(page["evidence"]) == order


def test_the_choice_of_columns_names_columns() -> None:
    for form in (*FORMS.values(), PageForm(columns=GROUPS)):
        assert page_columns(form.columns) <= set(BY_NAME)
    assert set(SHORT) <= set(BY_NAME)


def test_every_phrase_that_a_template_may_name_is_written() -> None:
    assert PHRASES.keys() == DESCRIBED.keys()


def test_not_a_number_is_null_with_a_reason() -> None:
    odd = {**CAP.finding.evidence, "running_requests": float("nan"), "scrapes": float("inf")}
    page = replace(CAP, finding=replace(CAP.finding, evidence=odd)).page()
    assert page["evidence"]["running_requests"] == {
        "value": None,
        "unit": "requests",
        "reason": "not a finite number",
    }
    assert wrong(page) == []
    json.dumps(page, allow_nan=False)


def test_an_unknown_answer_always_has_a_reason() -> None:
    step = Step("n", "Anything?", "unknown", {"kv_cache_usage_ratio": None})
    diagnosis = replace(CAP.finding.diagnosis, path=(step,))  # type: ignore[type-var]
    finding = replace(CAP.finding, diagnosis=diagnosis, reasons={})
    page = replace(CAP, finding=finding).page()
    assert page["diagnosis"]["path"][0]["reason"] == "kv_cache_usage_ratio unknown"
    assert wrong(page) == []


def _named(instance: str, engine: str = "0") -> Case:
    made = case("EngineStuck", "page", {}, labels={"instance": instance, "engine": engine})
    return made


def test_commands_are_quoted_for_a_shell() -> None:
    links = _named("$(reboot);`id` 'x'", "1").page()["links"]
    assert shlex.split(links["silence"]) == [
        "driftwatch",
        "silence",
        "alert=EngineStuck",
        "instance=$(reboot);`id` 'x'",
        "engine=1",
        "--for",
        "2h",
    ]
    explain = shlex.split(links["explain"])
    assert explain == ["driftwatch", "explain", "$(reboot);`id` 'x'/1", "--at", "2026-11-18T02:56Z"]


def test_commands_of_a_page() -> None:
    assert CAP.page()["links"] == {
        "runbook": "https://wiki.example.net/vllm/batch-limit",
        "driftwatch": "https://driftwatch.example.net/incidents/3f9c1a7be204",
        "explain": "driftwatch explain host:8000 --at 2026-11-18T02:56Z",
        "ack": "driftwatch ack 3f9c1a7be204",
        "silence": "driftwatch silence alert=BatchLimitBinding instance=host:8000 --for 2h",
    }
    assert KV.page()["links"]["explain"].startswith("driftwatch explain host:8000/1 ")
    assert DRIFT.page()["links"]["explain"] is None
    assert "pool=rag-8b" in DRIFT.page()["links"]["silence"]


@pytest.mark.parametrize(
    "text",
    [None, "", "javascript:alert(1)", "file:///etc/passwd", "https://a b", "http://x\n", "ftp://x"],
)
def test_only_plain_addresses_become_links(text: str | None) -> None:
    assert http_url(text) is None


def test_a_page_that_an_earlier_release_stored_is_shown() -> None:
    page = BUDGET.page()
    del page["recommendation"]["reason_code"], page["form"]
    for event in ("firing", "resolved"):
        assert headline({**page, "event": event})
        assert [line.label for line in lines({**page, "event": event})]


def test_a_page_without_any_finding_or_page() -> None:
    page = build_page(None, CAP.incident, "firing", AT)
    assert wrong(page) == []
    assert page["summary"] == "FIRING host:8000: BatchLimitBinding is true"
