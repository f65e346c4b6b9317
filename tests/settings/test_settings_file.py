"""A configuration as read, whole and with changes: settings, or a named problem at its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from settings_cases import FULL, SMALLEST

from driftwatch.errors import ConfigError, Problem, UsageError
from driftwatch.service.configuration import plan_of
from driftwatch.settings import PagesSource, PrometheusSource, Settings, load_settings

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
    found = load(tmp_path, SMALLEST)
    (source,), (pool,), (receiver,) = found.sources, found.pools, found.receivers
    assert isinstance(source, PrometheusSource)
    assert (source.prometheus, source.budget) == ("http://prometheus:9090", 60.0)
    assert (pool.name, pool.match, pool.gpus_per_replica) == ("rag-8b", {"job": "vllm-rag"}, 1)
    assert (pool.serving.max_num_seqs, pool.serving.max_num_batched_tokens) == (256, 512)
    assert pool.slo is not None and (pool.slo.ttft_seconds, pool.slo.share) == (1.0, 0.95)
    assert receiver.slack is not None and receiver.severities == ("page", "ticket")
    assert receiver.slack.webhook_url_file == tmp_path / "slack.url"
    assert found.pool_by == ("namespace", "model_name")
    assert (found.rules.files, found.report) == ((), None)
    assert found.database == tmp_path / "driftwatch.db"
    assert (found.listen_address, found.interval) == (("127.0.0.1", 9095), 15.0)
    with pytest.raises(ValueError, match="frozen"):
        found.interval = 1.0  # type: ignore[misc]


def test_every_kind_of_setting(tmp_path: Path) -> None:
    found = load(tmp_path, FULL)
    first, second, pages = found.sources
    assert isinstance(first, PrometheusSource) and first.basic_auth is not None
    assert first.basic_auth.username == "watch"
    assert isinstance(second, PrometheusSource)
    assert second.bearer_token_file == Path("/etc/token")
    assert isinstance(pages, PagesSource) and len(pages.pages) == 2
    assert pages.labels == {"pool": "x"}
    (pool,) = found.pools
    assert pool.serving.startup_log == tmp_path / "logs" / "start.log"
    assert pool.serving.arguments == ("vllm", "serve", "--max-num-seqs", "256")
    assert pool.serving.model == "Qwen/Qwen2.5-32B"
    assert pool.tuned_for is not None and pool.tuned_for.prompt_tokens == 512
    assert found.receivers[0].stdout is not None
    assert found.receivers[1].severities == ("ticket",)
    assert found.report is not None and found.report.receivers == ("log",)
    files = (tmp_path / "rules", tmp_path / "more/*.yaml", Path("/abs/r.yaml"))
    assert found.rules.files == files
    as_mapping = FULL.replace(f"rules: {LISTED}", f"rules: {{files: {LISTED}}}")
    assert load(tmp_path, as_mapping).rules == found.rules
    assert (found.listen_address, found.interval) == (("::1", 9100), 10)


def test_a_pools_model_is_a_name_or_a_config_beside_the_file(tmp_path: Path) -> None:
    def pool_model(text: str) -> str | None:
        serving = f"pools: [{{name: chat, serving: {{model: {text}}}}}]\n"
        path = write(tmp_path, "sources: [{prometheus: http://p:9090}]\n" + serving)
        return plan_of(path).pools[0].model

    config = tmp_path / "qwen.json"
    with pytest.raises(UsageError, match=r"qwen\.json: No such file"):
        pool_model("qwen.json")
    config.write_text("{}")
    with pytest.raises(UsageError, match="hidden_size is missing"):
        pool_model("qwen.json")
    sizes = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size")
    config.write_text(json.dumps(dict.fromkeys((*sizes, "vocab_size", "n_positions"), 8)))
    assert pool_model("qwen.json") == str(config)
    with pytest.raises(ConfigError, match="the path of a file is wanted"):
        pool_model('"-"')


def test_all_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "source: []\ninterval: 15\npools: [{nam: a, slo: {share: 2}}]\nlisten: x\nlisten: y\n"
    found = [(p.line, p.column, p.code) for p in problems(tmp_path, text)]
    assert found == [
        (1, 1, "unknown-key"),
        (2, 11, "duration"),
        (3, 10, "unknown-key"),
        (3, 31, "value"),
        (4, 9, "value"),
        (5, 1, "duplicate-key"),
    ]


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "database: a.db\nlisten: wrong\n")
    environ = {"DRIFTWATCH_DATABASE": "b.db", "DRIFTWATCH_LISTEN": "0.0.0.0:1"}
    found = load_settings(path, environ=environ)
    assert found.database == tmp_path / "b.db"
    assert found.listen_address == ("0.0.0.0", 1)
    with pytest.raises(ConfigError) as caught:
        load_settings(path, environ={"DRIFTWATCH_LISTEN": "nowhere"})
    (problem,) = caught.value.problems
    assert (problem.path, problem.line) == ("environment DRIFTWATCH_LISTEN", None)


def test_a_file_that_is_missing_or_empty(tmp_path: Path) -> None:
    assert [p.code for p in problems(tmp_path, "# nothing\n")] == ["empty"]
    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path / "none.yaml")
    (problem,) = caught.value.problems
    assert problem.message == "cannot be read: no such file or directory"
    assert problem.help_text is not None and "driftwatch init" in problem.help_text
