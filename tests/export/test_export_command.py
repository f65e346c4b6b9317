"""``driftwatch rules export``: files in, a file out, and what is left out."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from fakes import prometheus_server

from driftwatch.cli.main import cli
from driftwatch.errors import ConfigError
from driftwatch.export.alerts import FORMATS

Golden = Callable[[str, str], None]

RULES = """
groups:
  - name: queue
    rules:
      - alert: QueueLong
        given: observed_10m_seconds >= 480
        when: waiting_capacity_requests > 20 AND (slo_missed IS NULL OR slo_missed)
        until: waiting_capacity_requests < 5
        keep_firing_for: 5m
        severity: page
        receivers: [oncall, chat]
        inhibited_by: [Stuck]
        labels: {team: "serving {{ x }}"}
        annotations:
          summary: '{{ more }} than 20 wait, $HOME'
          runbook_url: https://runbooks.example/queue
          run-book: a name that Prometheus refuses
      - alert: Stuck
        when: seconds_since_last_token >= 120
        for: 3m
        severity: page
        inhibited_by: [QueueLong]
      - alert: PoolEmpty
        when: running_requests = 0
        severity: notice
        inhibited_by: [Stuck]
  - name: others
    rules:
      - {alert: Lost, when: coverage_missing_seconds > 60, severity: ticket}
      - {alert: SameText, when: engine_kind = binding_limit, severity: ticket}
      - alert: Quiet
        when: requests_per_second = 0
        severity: notice
        enabled: false
        reason: nights are quiet
"""

CONFIG = """
sources: [{pages: ['http://h:8000/metrics']}]
receivers: [{name: oncall, stdout: {}}, {name: chat, stdout: {}}]
rules:
  files: [rules.yaml]
  overrides:
    - {alert: QueueLong, pools: [batch-*], when: waiting_capacity_requests > 200}
    - {alert: PoolEmpty, pools: [dev], enabled: false, reason: nobody minds}
"""


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command in a folder with rules.yaml."""
    monkeypatch.chdir(tmp_path)
    Path("rules.yaml").write_text(RULES, encoding="utf-8")
    Path("driftwatch.yaml").write_text(CONFIG, encoding="utf-8")

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["rules", "export", *arguments], standalone_mode=False)

    return invoke


def test_the_file_and_what_is_left_out(export: Callable[..., Result], golden: Golden) -> None:
    answer = export("--to", "prometheus")
    assert answer.return_value == 3
    golden("export/prometheus.yaml", answer.stdout)
    golden("export/prometheus.txt", answer.stderr)
    again = export("--to", "prometheus", "-o", "file.yaml")
    assert (again.stdout, again.return_value) == ("", 3)
    assert Path("file.yaml").read_text(encoding="utf-8") == answer.stdout
    operator = export("--to", "kubernetes")
    assert operator.stderr == answer.stderr
    document = yaml.safe_load(operator.stdout)
    assert document["kind"] == "PrometheusRule"
    assert document["spec"] == yaml.safe_load(answer.stdout)


@pytest.mark.prometheus
@pytest.mark.skipif(not prometheus_server.installed(), reason=prometheus_server.NOT_INSTALLED)
def test_promtool_takes_the_file(export: Callable[..., Result]) -> None:
    export("--to", "prometheus", "-o", "rules.yml")
    ran = subprocess.run(
        ["promtool", "check", "rules", "--lint=all", "--lint-fatal", "rules.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_nothing_left_out_is_exit_0_and_a_note_names_what_differs(
    export: Callable[..., Result],
) -> None:
    rule = "alert: A, when: running_requests > 1, severity: page, for: 5m"
    text = f"groups: [{{name: g, rules: [{{{rule}}}]}}]"
    Path("rules.yaml").write_text(text, encoding="utf-8")
    config = CONFIG.partition("  overrides")[0]
    Path("driftwatch.yaml").write_text(config, encoding="utf-8")
    for to in FORMATS:
        answer = export("--to", to)
        assert (answer.return_value, "Differs: `for` of A" in answer.stderr) == (0, True), to


def test_rules_with_problems_are_not_exported(export: Callable[..., Result]) -> None:
    text = "groups: [{name: g, rules: [{alert: A, when: runing_requests > 1, severity: page}]}]"
    Path("rules.yaml").write_text(text, encoding="utf-8")
    answer = export("--to", "prometheus")
    assert answer.stdout == ""
    assert isinstance(answer.exception, ConfigError)
