"""JSON; the tests of a configuration's rules."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from driftwatch.cli.main import main
from driftwatch.installation import shipped

RULES = """\
groups:
  - name: mine
    rules:
      - alert: QueueLong
        when: waiting_capacity_requests > 20
        severity: page
        annotations: {summary: more than 20 requests wait}
"""
TESTS = """\
tests:
  - name: a queue & <more>
    base: healthy
    series: {rag-8b-0: {waiting_capacity_requests: 20 21}}
    expect:
      - {at: 0m, alerts: [QueueLong]}
      - {at: 1m, alerts: [QueueLong]}
  - name: no queue
    base: healthy
    series: {rag-8b-0: {}}
    expect: [{alerts: []}]
  - name: after the end
    recording: run_cap
    expect: [{at: 99m, alerts: []}]
"""

Run = Callable[..., tuple[int, str]]
FOLDERS = ("my-rules", "my-rules/tests")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    (tmp_path / "my-rules" / "tests").mkdir(parents=True)
    (tmp_path / "my-rules" / "mine.yaml").write_text(RULES, encoding="utf-8")
    (tmp_path / "my-rules" / "tests" / "mine.yaml").write_text(TESTS, encoding="utf-8")
    (tmp_path / "driftwatch.yaml").write_text(
        "sources: [{prometheus: http://localhost:9090}]\nrules: [my-rules]\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)

    def typed(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["driftwatch", "rules", "test", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().out

    return typed


def test_a_folder_of_rules_stands_for_its_tests(run: Run) -> None:
    tests = [json.loads(run(name, "--json")[1])["tests"] for name in FOLDERS]
    assert [len(one) for one in tests] == [3, 3]


def test_json(run: Run) -> None:
    code, text = run("--json", "--coverage")
    document = json.loads(text)
    assert code == 2  # one could not be run
    assert (document["schema_version"], document["passed"], document["failed"]) == (1, 1, 2)
    failed, passed, not_run = document["tests"]
    assert failed["failures"] == [
        {
            "line": 6,
            "subject": "rag-8b-0",
            "at_seconds": 0.0,
            "differences": [{"field": "alerts", "expected": ["QueueLong"], "actual": []}],
        }
    ]
    assert (failed["path"], failed["line"]) == ("my-rules/tests/mine.yaml", 2)
    assert (passed["passed"], passed["failures"], passed["error"]) == (True, [], None)
    assert not_run["error"] == "the recording ends at 29m"
    assert document["coverage"][0] == {
        "kind": "rules that fire",
        "shipped": False,
        "total": 1,
        "tested": 1,
        "missing": [],
    }


def test_the_last_line_alone_where_all_is_as_expected(run: Run) -> None:
    assert run("--run", "no queue") == (0, "1 passed\n")


def test_shipped_tests_test_the_shipped_rules_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "driftwatch.yaml").write_text(
        f"rules:\n  files: [{shipped('rules')}, my-rules]\n"
        "  overrides: [{alert: SlowerAtEqualLoad, enabled: false, reason: r}]\n",
        encoding="utf-8",
    )
    code, text = run(
        "--json", "--run", "prompts ×2.3 fill the token budget|SlowerAtEqualLoad stays"
    )
    assert (code, [one["passed"] for one in json.loads(text)["tests"]]) == (0, [True, True])
