from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from driftwatch.cli.main import cli

SOURCES = "sources: [{pages: ['http://host:8000/metrics']}]\n"
CONFIG = SOURCES + "receivers: [{name: oncall, stdout: {}}]\n"
RULE = """\
groups:
  - name: g
    rules:
      - {alert: A, when: scrapes > 1, severity: page, receivers: [oncall],
         annotations: {summary: slow, runbook_url: "https://runbooks.example/a"}}
"""
CLEAN = """\
groups:
  - name: g
    rules:
      # the SLO of the configuration
      - {alert: A, when: slo_missed, severity: ticket, annotations: {summary: slow}}
"""


def check(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["check", *map(str, arguments)], standalone_mode=False)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_clean_configuration(tmp_path: Path) -> None:
    assert "0 errors in 15 files (15 shipped), 26 rules (26 shipped), 1 switched" in check().stdout
    config, rule = write(tmp_path, "c.yaml", CONFIG), write(tmp_path, "r.yaml", CLEAN)
    result = check("--config", config, rule)
    assert (result.return_value, result.output) == (0, "0 errors in 2 files, 1 rule\n")
    own = write(tmp_path, "own.yaml", CONFIG + "rules: ['r*.yaml']\n")
    assert check("-c", own).output == "0 errors in 2 files, 1 rule\n"


BROKEN = (
    SOURCES
    + """\
receivers: [{name: oncall, stdout: {}}, {name: mail, emial: {}}]
pools:
  - {name: a, serving: {max_num_seqs: 0}, slo: {ttft_seconds: 500}}
rules:
  files: [r.yaml]
  overrides:
    - {alert: D, per: pool, when: kv_cache_usage_ratio > 90}
"""
)
_OF_A = ("unknown-column", "unknown-column", "value", "unknown-receiver")
BROKEN_RULES = """\
groups:
  - name: g
    rules:
      - {alert: A, when: scrape > 1 AND slo_mised, severity: pages, receivers: [onkall]}
      - {alert: C, when: kv_cache_usage_ratio > 90, severity: ticket, enabled: nope}
      - {alert: D, when: scrapes > 1, severity: page}
"""


def test_no_error_hides_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one of a value, in the configuration or in a file of rules."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "driftwatch.yaml", BROKEN)
    write(tmp_path, "r.yaml", BROKEN_RULES)
    result = check("--json")
    answer = json.loads(result.output)
    assert (result.return_value, answer["ok"], answer["files"], answer["rules"]) == (1, False, 2, 3)
    found = answer["problems"]
    places = [(one["path"], one["line"], one["code"]) for one in found]
    assert [one for one in places if one[2] not in ("no-summary", "no-runbook")] == [
        ("driftwatch.yaml", 2, "unknown-key"),
        ("driftwatch.yaml", 4, "value"),
        ("driftwatch.yaml", 4, "unit"),
        ("driftwatch.yaml", 8, "unknown-key"),
        ("driftwatch.yaml", 8, "never-holds"),
        *(("r.yaml", 4, code) for code in _OF_A),
        ("r.yaml", 5, "never-holds"),
        ("r.yaml", 5, "type"),
    ]
    assert found[0]["docs"] == "docs/sre/checks.md#unknown-key"
    # of a file that is no YAML only that, and of a name that it may hold nothing
    write(tmp_path, "r.yaml", "groups: [\n")
    codes = {one["code"] for one in json.loads(check("--json").output)["problems"]}
    assert "yaml" in codes and "unknown-alert" not in codes


def test_what_a_file_is_for_is_decided_by_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Configuration, rules, tests and a manifest lie in one folder, as they do in repositories."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "driftwatch.yaml", CONFIG + "rules: [q.yaml]\n")
    write(tmp_path, "q.yaml", CLEAN)
    write(tmp_path, "deploy.yaml", "apiVersion: apps/v1\nkind: Deployment\n")
    (tmp_path / "tests").mkdir()
    test = "tests: [{name: t, series: {a: {slo_missed: truex3}}, expect: [{alerts: [A]}]}]\n"
    write(tmp_path, "tests/q.yaml", test)
    for arguments in ((), ("driftwatch.yaml",), (".",), ("*.yaml",)):
        files = 2 if arguments in ((), ("driftwatch.yaml",)) else 1
        result = check(*arguments)
        assert (result.return_value, result.output) == (
            0,
            f"0 errors in {files} files, 1 rule\n".replace("1 files", "1 file"),
        )
    for tests in ((), ("tests",), (".",), ("tests/q.yaml",)):
        result = CliRunner().invoke(cli, ["rules", "test", *tests], standalone_mode=False)
        assert (result.return_value, result.output) == (0, "1 passed\n")
    named = check("tests/q.yaml")
    assert named.return_value == 1
    assert "these are tests of rules\n" in named.output
    assert " help: driftwatch rules test tests/q.yaml\n" in named.output


def test_what_run_needs_is_looked_at_too(tmp_path: Path) -> None:
    config = write(
        tmp_path,
        "c.yaml",
        "sources: [{prometheus: 'http://p:9090', bearer_token_file: no.token}]\n"
        "pools:\n"
        "  - {name: a, serving: {startup_log: no.log}}\n"
        "receivers:\n"
        "  - {name: a, slack: {webhook_url_file: no.url}}\n"
        "  - {name: b, webhook: {url_file: is.url, secret_file: https://host/CANARY}}\n"
        "  - {name: c, slack: {bot_token_file: xoxb-1-CANARY, channel: C024BE91L}}\n"
        f"  - {{name: d, pagerduty: {{routing_key_file: {'0c' * 16}}}}}\n",
    )
    write(tmp_path, "is.url", "https://host/path\n")
    result = check("-c", config)
    assert result.return_value == 1
    lines = [line for line in result.output.splitlines() if "error[file]" in line]
    places = [line.removeprefix(f"{config}:").partition(":")[0] for line in lines]
    assert places == ["1", "3", "5", "6", "7", "8"]
    for name, line in zip(("no.token", "no.log", "no.url"), lines[:3], strict=True):
        assert f"{tmp_path / name}: " in line
        assert "no such file or directory" in line
    assert "a file's name is wanted here, not a URL" in lines[3]
    assert all("a file's name is wanted here, not a secret" in line for line in lines[4:])
    assert "CANARY" not in result.output and "0c0c" not in result.output


def test_a_configuration_that_does_nothing_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "driftwatch.yaml", "interval: 15s\n")
    result = check()  # the file that lies here
    assert result.return_value == 3
    assert result.output.splitlines() == [
        "driftwatch.yaml: warning[no-sources] no sources: nothing is watched",
        " help: sources: [{pages: [http://host:8000/metrics]}]",
        "driftwatch.yaml: warning[no-receivers] no receivers: nobody gets a page",
        " help: receivers: [{name: oncall, slack: {webhook_url_file: slack.url}}]",
        "2 warnings in 16 files (15 shipped), 26 rules (26 shipped), 1 switched off",
    ]


@pytest.mark.parametrize(
    "rest", ["page: {says: ['{typo}']}", "\t for: 3m\n        page: {says: [x]}"]
)
def test_a_page_that_says_something_wrong_lacks_no_summary(tmp_path: Path, rest: str) -> None:
    rule = "groups:\n  - name: g\n    rules:\n      - alert: A\n        when: restarted\n"
    found = check(write(tmp_path, "r.yaml", f"{rule}        severity: ticket\n        {rest}\n"))
    assert found.return_value != 0 and "no-summary" not in found.output, found.output
