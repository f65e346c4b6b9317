from __future__ import annotations

from pathlib import Path

import pytest

from driftwatch.errors import ConfigError, Problem
from driftwatch.settings import (
    PagesSource,
    PrometheusSource,
    RecordingSource,
    Settings,
    load_settings,
)

SMALLEST = """\
sources: [{prometheus: http://prometheus:9090}]
pools:
  - name: rag-8b
    match: {job: vllm-rag}
    gpus_per_replica: 1
    serving: {max_num_seqs: 256, max_num_batched_tokens: 512}
    slo: {ttft_seconds: 1.0, tpot_seconds: 0.05, share: 0.95}
receivers: [{name: oncall, slack: {webhook_url_file: slack.url}}]
"""
FULL = """\
sources:
  - prometheus: https://prometheus:9090/prefix
    basic_auth: {username: watch, password_file: password}
  - {prometheus: "http://p2:9090", bearer_token_file: /etc/token}
  - {pages: ["http://a:8000/metrics", "http://b:8000/metrics"], labels: {pool: x}}
  - {recording: scrapes.jsonl.gz}
interval: 10s
pools:
  - name: chat
    match: {model_name: llama, namespace: prod}
    gpus_per_replica: 2
    serving:
      max_num_seqs: 256
      max_num_batched_tokens: 8192
      max_num_active_seqs: 300
      max_model_len: 8192
      kv_cache_tokens: 432000
      api_server_count: 2
      startup_log: logs/start.log
      arguments: [vllm, serve, --max-num-seqs, "256"]
    slo: {tpot_seconds: 0.05}
    tuned_for: {prompt_tokens: 512, generation_tokens: 200}
pool_by: [cluster]
receivers:
  - {name: log, stdout: }
  - {name: hook, webhook: {url_file: hook.url, secret_file: hook.key}, severities: [ticket]}
  - {name: inline, slack: {webhook_url: "https://hooks/CANARY1"}}
  - {name: signed, webhook: {url: "https://host/CANARY2", secret: CANARY3}}
rules: [rules, "more/*.yaml", /abs/r.yaml]
database: state/dw.db
listen: "[::1]:9100"
external_url: https://driftwatch.example/
"""
LISTED = '[rules, "more/*.yaml", /abs/r.yaml]'


def write(folder: Path, text: str) -> Path:
    path = folder / "driftwatch.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, text: str) -> Settings:
    return load_settings(write(folder, text), environ={})


def problems(folder: Path, text: str) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return list(caught.value.problems)


def test_the_smallest_file(tmp_path: Path) -> None:
    settings = load(tmp_path, SMALLEST)
    (source,) = settings.sources
    assert isinstance(source, PrometheusSource)
    assert source.prometheus == "http://prometheus:9090"
    (pool,) = settings.pools
    assert (pool.name, pool.match, pool.gpus_per_replica) == ("rag-8b", {"job": "vllm-rag"}, 1)
    assert (pool.serving.max_num_seqs, pool.serving.max_num_batched_tokens) == (256, 512)
    assert pool.slo is not None and (pool.slo.ttft_seconds, pool.slo.share) == (1.0, 0.95)
    (receiver,) = settings.receivers
    assert receiver.severities == ("page", "ticket")
    assert receiver.slack is not None
    assert receiver.slack.webhook_url_file == tmp_path / "slack.url"
    assert settings.pool_by == ("namespace", "model_name")
    assert settings.rules.files == ()
    assert settings.database == tmp_path / "driftwatch.db"
    assert settings.listen_address == ("127.0.0.1", 9095)
    assert settings.interval == 15.0


def test_every_setting(tmp_path: Path) -> None:
    settings = load(tmp_path, FULL)
    first, second, pages, recording = settings.sources
    assert isinstance(first, PrometheusSource) and first.basic_auth is not None
    assert first.basic_auth.username == "watch"
    assert isinstance(second, PrometheusSource)
    assert second.bearer_token_file == Path("/etc/token")
    assert isinstance(pages, PagesSource) and len(pages.pages) == 2
    assert pages.labels == {"pool": "x"}
    assert isinstance(recording, RecordingSource)
    assert recording.recording == tmp_path / "scrapes.jsonl.gz"
    (pool,) = settings.pools
    assert pool.serving.startup_log == tmp_path / "logs" / "start.log"
    assert pool.serving.arguments == ("vllm", "serve", "--max-num-seqs", "256")
    assert pool.tuned_for is not None and pool.tuned_for.prompt_tokens == 512
    assert settings.receivers[0].stdout is not None
    assert settings.receivers[1].severities == ("ticket",)
    files = (tmp_path / "rules", tmp_path / "more/*.yaml", Path("/abs/r.yaml"))
    assert settings.rules.files == files
    as_mapping = FULL.replace(f"rules: {LISTED}", f"rules: {{files: {LISTED}}}")
    assert load(tmp_path, as_mapping).rules == settings.rules
    assert settings.listen_address == ("::1", 9100)
    assert settings.interval == 10


def test_all_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "source: []\ninterval: 15\npools: [{nam: a, slo: {share: 2}}]\nlisten: x\nlisten: y\n"
    found = [(p.line, p.column, p.code) for p in problems(tmp_path, text)]
    assert found == [
        (1, 1, "unknown-key"),
        (2, 11, "duration"),
        (3, 10, "missing-key"),
        (3, 10, "unknown-key"),
        (3, 31, "value"),
        (4, 9, "value"),
        (5, 1, "duplicate-key"),
    ]


def test_an_empty_file_and_none(tmp_path: Path) -> None:
    assert [p.code for p in problems(tmp_path, "# nothing\n")] == ["empty"]
    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path / "none.yaml", environ={})
    assert caught.value.problems[0].code == "unreadable"


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "database: a.db\nlisten: wrong\n")
    environ = {"DRIFTWATCH_DATABASE": "b.db", "DRIFTWATCH_LISTEN": "0.0.0.0:1"}
    settings = load_settings(path, environ=environ)
    assert settings.database == tmp_path / "b.db"
    assert settings.listen_address == ("0.0.0.0", 1)
    with pytest.raises(ConfigError) as caught:
        load_settings(path, environ={"DRIFTWATCH_LISTEN": "nowhere"})
    (problem,) = caught.value.problems
    assert (problem.path, problem.line) == ("environment DRIFTWATCH_LISTEN", None)


def test_settings_do_not_change(tmp_path: Path) -> None:
    settings = load(tmp_path, SMALLEST)
    with pytest.raises(ValueError, match="frozen"):
        settings.interval = 1.0  # type: ignore[misc]


def test_a_file_that_is_missing_names_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path / "none.yaml")
    (problem,) = caught.value.problems
    assert problem.message == "cannot be read: no such file or directory"
    assert problem.help_text is not None and "driftwatch init" in problem.help_text
