"""Rules beside each other: nothing is reported that a row contradicts."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_lint_truth import COLUMNS, DTYPES, comparisons, rows

from driftwatch.condition import parse_condition
from driftwatch.evidence import BY_NAME
from driftwatch.rulebook.lint import check_rulebook

TODAY = date(2026, 1, 1)
joined = st.lists(comparisons, min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from((" AND ".join(parts), " OR ".join(parts)))
)


def write(path: Path, conditions: list[str], more: str = "") -> Path:
    items = "".join(
        f'- {{alert: A{number}, when: "{text}", severity: ticket{more}, '
        "annotations: {summary: s}}\n      "
        for number, text in enumerate(conditions)
    )
    path.write_text(f"groups:\n  - name: g\n    rules: # why\n      {items}\n", encoding="utf-8")
    return path


def answers(text: str, some: list[dict[str, Any]]) -> list[bool | None]:
    schema = {name: DTYPES[BY_NAME[name].dtype] for name in COLUMNS}
    frame = pl.DataFrame(some, schema=schema)
    return frame.select(parse_condition(text).expression).to_series().to_list()


@settings(max_examples=150, deadline=None)
@given(joined, joined, st.lists(rows, min_size=1, max_size=8))
def test_a_needless_rule_is_true_only_with_the_other(
    tmp_path_factory: pytest.TempPathFactory, first: str, second: str, some: list[dict[str, Any]]
) -> None:
    path = write(tmp_path_factory.mktemp("pair") / "r.yaml", [first, second])
    texts = {"A0": first, "A1": second}
    for problem in check_rulebook([path], today=TODAY).problems:
        if problem.code not in ("shadowed", "duplicate-rule", "contradictory"):
            continue
        name = problem.message.split(" ")[0]
        other = "A1" if name == "A0" else "A0"
        pairs = list(zip(answers(texts[name], some), answers(texts[other], some), strict=True))
        if problem.code != "contradictory":
            assert all(b is True for a, b in pairs if a), (name, problem.message)
        else:
            assert not any(a is False and b is False for a, b in pairs), problem.message
        if problem.code == "duplicate-rule":
            assert all(a is True for a, b in pairs if b), (name, problem.message)


def codes(tmp_path: Path, rules: str) -> list[str]:
    path = tmp_path / "r.yaml"
    path.write_text(f"groups:\n  - name: g\n    rules:\n{rules}", encoding="utf-8")
    of_pairs = {"shadowed", "duplicate-rule", "contradictory", "never-fires"}
    checked = check_rulebook([path], today=TODAY)
    return [problem.code for problem in checked.problems if problem.code in of_pairs]


def rule(name: str, when: str, more: str = "") -> str:
    return f"      - {{alert: {name}, when: {when}, severity: ticket{more}}}\n"


LOW, HIGH = "waiting_requests > 5", "waiting_requests > 50"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ("", "", ["shadowed"]),
        (", for: 5m", ", for: 5m", ["shadowed"]),
        (", for: 10m", ", for: 5m", []),  # the other one fires later
        (", labels: {a: b}", "", []),  # other people read it
        ("", ", receivers: [ana]", []),
        ("", ", enabled: false, reason: r", []),
        (", overrides: [{pool: x, enabled: false}]", "", []),
        (", given: observed_10m_seconds >= 480", "", []),  # unknown where the first is true
        (
            ", given: observed_10m_seconds >= 480",
            ", given: observed_10m_seconds >= 500",
            ["shadowed"],
        ),
        (", inhibited_by: [High]", "", []),  # High is the special case, and stays
        (", inhibited_by: [Other]", "", []),
        ("", ", inhibited_by: [Low]", ["never-fires"]),
        (", inhibited_by: [High]", ", inhibited_by: [Low]", []),
        (", inhibited_by: [Other]", ", inhibited_by: [Low]", []),
    ],
)
def test_when_the_other_rule_says_the_same(
    tmp_path: Path, low: str, high: str, expected: list[str]
) -> None:
    rules = rule("Low", LOW, low) + rule("High", HIGH, high) + rule("Other", "restarted")
    assert codes(tmp_path, rules) == expected
