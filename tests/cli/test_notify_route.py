"""`driftwatch notify route`: who is told, in which order, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Run

CONFIG = """\
sources: [{pages: [http://host:8000/metrics]}]
receivers:
  - {name: oncall, stdout: {}}
  - {name: lead, stdout: {}, severities: [page]}
  - {name: chat-team, stdout: {}, severities: [ticket], notices: each}
pools:
  - {name: rag-8b, match: {job: rag}}
  - {name: batch-13b, match: {job: batch}, receivers: [chat-team]}
routes:
  - matchers: [pool=chat-8b]
    receivers: [chat-team]
  - matchers: [severity=page, 'pool=~"rag-.*"']
    receivers: [oncall]
    repeat_every: 1h
    escalate: [{after: 15m, to: [lead]}]
"""


@pytest.fixture(autouse=True)
def _configuration(run: Run, tmp_path: Path) -> None:
    (tmp_path / "driftwatch.yaml").write_text(CONFIG, encoding="utf-8")


def test_the_screens(run: Run, golden: Callable[[str, str], None]) -> None:
    screens = []
    for words, expected in (
        ("alert=BatchLimitBinding pool=rag-8b severity=page", 0),
        ("BatchLimitBinding pool=batch-13b", 0),
        ("LengthDrift pool=batch-13b", 0),
        ("LengthDrift pool=rag-8b", 0),
        ("BatchLimitBinding", 4),
    ):
        code, out, err = run("notify", "route", *words.split(), terminal=True)
        assert (code, err) == (expected, ""), words
        assert max(map(len, out.splitlines())) <= 80
        screens.append(f"$ driftwatch notify route {words}\n{out}")
    golden("cli/notify-route.txt", "\n".join(screens))


def test_piped_each_line_is_one_receiver(run: Run) -> None:
    code, out, _ = run("notify", "route", "BatchLimitBinding", "pool=rag-8b")
    assert code == 0
    why = "route 2 (driftwatch.yaml:12): severity=page pool=~rag-.*"
    until = "until somebody acknowledges"
    assert [line.split("\t") for line in out.splitlines()] == [
        ["BatchLimitBinding", "page", "now", "oncall", "", why, ""],
        ["BatchLimitBinding", "page", "after 15 min", "lead", f"unless{until[5:]}", why, ""],
        ["BatchLimitBinding", "page", "every 60 min", "oncall", until, why, ""],
    ]


def test_json_names_the_place_the_order_and_what_is_missing(run: Run) -> None:
    code, out, _ = run("notify", "route", "BatchLimitBinding", "--json")
    document = json.loads(out)
    assert (code, document["schema_version"]) == (4, 1)
    (answer,) = document["answers"]
    assert answer["missing"] == ["pool"]
    assert [(way["if"], way["place"], way["receivers"]) for way in answer["ways"]] == [
        (["pool=chat-8b"], "driftwatch.yaml:10", ["chat-team"]),
        (["pool=~rag-.*"], "driftwatch.yaml:12", ["oncall"]),
        (["pool=batch-13b"], "driftwatch.yaml:8", ["chat-team"]),
        ([], "driftwatch.yaml:3", ["oncall", "lead"]),
    ]
    second = answer["ways"][1]
    assert (second["decided_by"], second["route"], second["repeat_seconds"]) == ("route", 2, 3600)
    assert second["escalations"] == [{"after_seconds": 900, "receivers": ["lead"]}]


def test_the_receivers_of_a_rule_win_and_its_severity_is_that_of_the_pool(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "rules.yaml").write_text(
        """\
groups:
  - name: own
    rules:
      - alert: Full
        when: waiting_requests > 0
        severity: page
        receivers: [chat-team]
        overrides: [{pool: rag-8b, severity: ticket}]
""",
        encoding="utf-8",
    )
    (tmp_path / "driftwatch.yaml").write_text(f"{CONFIG}rules: [rules.yaml]\n", encoding="utf-8")
    code, out, _ = run("notify", "route", "Full", "pool=rag-8b", "--json")
    (answer,) = json.loads(out)["answers"]
    assert code == 0
    assert answer["severity"] == "ticket"
    (way,) = answer["ways"]
    assert (way["decided_by"], way["place"], way["receivers"]) == (
        "rule",
        "rules.yaml:4",
        ["chat-team"],
    )
    # without the pool both of its severities are possible
    _, out, _ = run("notify", "route", "Full", "--json")
    assert [one["severity"] for one in json.loads(out)["answers"]] == ["page", "ticket"]


def test_nobody_is_a_problem(run: Run, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    text = "receivers: [{name: oncall, stdout: {}, severities: [page]}]\n"
    (tmp_path / "driftwatch.yaml").write_text(text, encoding="utf-8")
    code, out, _ = run("notify", "route", "severity=ticket", terminal=True)
    assert code == 1
    golden("cli/notify-route-nobody.txt", out)
    code, _, _ = run("notify", "route", "severity=notice")
    assert code == 0  # nobody wants notices: nothing is lost


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["severity=pag"], "there is no severity pag\nhelp: did you mean page?"),
        (["BatchLimitBindng"], "no alert BatchLimitBindng\nhelp: did you mean BatchLimitBinding?"),
        (["rule=X"], "there is no rule X\nhelp: rules: "),
        (["pool=a", "pool=b"], "label pool is given twice"),
        (["1=x"], "'1=x' is no label"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(run: Run, words: list[str], problem: str) -> None:
    code, out, err = run("notify", "route", *words)
    assert (code, out) == (2, "")
    assert problem in err


def test_a_pool_that_nobody_configured_is_named(run: Run) -> None:
    code, _, err = run("notify", "route", "severity=page", "pool=rag-8c")
    assert code == 0
    assert err == "warning: no pool of the configuration is called rag-8c; did you mean rag-8b?\n"
