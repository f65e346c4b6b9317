"""The page's JSON against its published schema."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from jsonschema import Draft202012Validator
from page_cases import AT, BUDGET, CAP, CASES, case

from driftwatch.model import Step
from driftwatch.notify.page import Amount, Page, http_url
from driftwatch.pipeline.build_page import build_page

SCHEMA = Page.model_json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def wrong(page: Page) -> list[str]:
    found = VALIDATOR.iter_errors(page.document())
    return sorted(f"{error.json_path}: {error.message}" for error in found)


@pytest.mark.parametrize("name", CASES)
def test_a_page_is_read_as_it_was_written_and_fits_its_schema(name: str) -> None:
    for one in (CASES[name].page(), CASES[name].resolved()):
        assert wrong(one) == []
        assert Page.read(one.text()) == one


def test_a_resolved_page_carries_what_was_sent() -> None:
    fired, resolved = BUDGET.page(), BUDGET.resolved()
    for field in ("evidence", "slo", "diagnosis", "advice", "baseline", "incident"):
        assert getattr(resolved, field) == getattr(fired, field)
    assert resolved.event == "resolved"
    assert resolved.times.resolved_at == datetime(2026, 11, 18, 3, 56, tzinfo=UTC)


def test_not_a_number_is_null_with_a_reason() -> None:
    odd = {**CAP.finding.evidence, "running_requests": float("nan"), "scrapes": float("inf")}
    page = replace(CAP, finding=replace(CAP.finding, evidence=odd)).page()
    assert page.evidence["running_requests"] == Amount(
        unit="requests", reason="not a finite number"
    )
    assert wrong(page) == []


def test_an_unknown_answer_always_has_a_reason() -> None:
    step = Step("n", "Anything?", "unknown", {"kv_cache_usage_ratio": None})
    diagnosis = replace(CAP.finding.diagnosis, path=(step,))  # type: ignore[type-var]
    finding = replace(CAP.finding, diagnosis=diagnosis, reasons={})
    page = replace(CAP, finding=finding).page()
    assert page.diagnosis.path[0].reason == "kv_cache_usage_ratio unknown"
    assert wrong(page) == []


def test_commands_are_quoted_for_a_shell() -> None:
    labels = {"instance": "$(reboot);`id` 'x'", "engine": "1"}
    links = case("EngineStuck", "page", {}, labels=labels).page().links
    assert shlex.split(links.silence)[2:5] == [
        *("alert=EngineStuck", "instance=$(reboot);`id` 'x'", "engine=1")
    ]
    assert shlex.split(links.explain) == ["driftwatch", "explain", "$(reboot);`id` 'x'/1"]


@pytest.mark.parametrize(
    "text",
    [None, "", "javascript:alert(1)", "file:///etc/passwd", "https://a b", "http://x\n", "ftp://x"],
)
def test_only_plain_addresses_become_links(text: str | None) -> None:
    assert http_url(text) is None


def test_a_page_without_any_finding_or_page() -> None:
    page = build_page(None, CAP.incident, "firing", AT)
    assert wrong(page) == []
    assert page.summary == "FIRING host:8000: BatchLimitBinding is true"
