"""The part of the configuration that is about detection, and what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftwatch.errors import ConfigError, UsageError
from driftwatch.service.configuration import plan_of
from driftwatch.settings import load_settings


def _file(folder: Path, text: str) -> Path:
    path = folder / "driftwatch.yaml"
    path.write_text(f"sources: [{{pages: [http://h:8000/metrics]}}]\n{text}")
    return path


def test_a_pools_model_is_a_name_or_a_config_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "driftwatch.yaml"

    def pool_model(text: str) -> str | None:
        serving = f"pools: [{{name: chat, serving: {{model: {text}}}}}]\n"
        path.write_text("sources: [{prometheus: http://p:9090}]\n" + serving)
        return plan_of(path).pools[0].model

    assert pool_model("Qwen/Qwen2.5-7B-Instruct") == "Qwen/Qwen2.5-7B-Instruct"
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


def test_the_budget_reaches_the_plan(tmp_path: Path) -> None:
    path = _file(tmp_path, "detection:\n  false_episodes_per_server_month: 0.1\n")
    plan = plan_of(path)
    assert plan.false_episodes_per_server_month == 0.1
    assert not plan.accepts_proposals  # a service never does


def test_without_the_section_the_defaults_hold(tmp_path: Path) -> None:
    path = _file(tmp_path, "")
    assert plan_of(path).false_episodes_per_server_month == 0.25


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{false_episodes_per_server_month: 0}", "a number above 0"),
        ("{false_episodes_per_server_month: 101}", "at most 100"),
        ("{holiday: []}", "unknown key holiday"),
    ],
)
def test_what_is_wrong_is_said_at_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(_file(tmp_path, f"detection: {text}\n"))
    (problem,) = caught.value.problems
    assert problem.line == 2
    assert said in problem.message
