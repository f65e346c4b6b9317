"""A new rule with a new leaf, its page and its runbook: two files in rules/ and a heading."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e_cases import pages
from test_other_rules import going_on, recording

from driftwatch.errors import ConfigError
from driftwatch.installation import shipped

RULE = """\
groups:
  - name: adapters
    rules:
      - alert: AdaptersThrash
        # a third of the scrapes: two of our adapters share a slot
        when: waiting_deferred_share_10m_ratio >= 0.3
        for: 2m
        severity: page
        tree: adapters
        page:
          says: ["{waiting_deferred_requests} requests wait for an adapter, {present}"]
          since: []
          cause: ["{meaning}"]
          also: ["KV cache {kv_cache_usage_ratio}"]
          family: traffic
        annotations: {runbook_url: "https://wiki.example.net/runbook#adaptersthrash"}
"""
TREE = """\
tree: adapters
start: adapters_wait
nodes:
  adapters_wait:
    question: Do most requests wait for an adapter?
    when: waiting_deferred_share_10m_ratio >= 0.3
    show: [waiting_deferred_requests]
    yes: adapter_slots
    no: no_adapter_waits
leaves:
  adapter_slots:
    kind: none
    meaning: the server swaps adapters
    advice: Raise max_loras or route by adapter
  no_adapter_waits: {kind: healthy, meaning: no request waits for an adapter}
"""


def test_two_files_make_a_rule_its_leaf_its_page_and_its_runbook(
    run: Any, shared_data: Path, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    shutil.copytree(shipped("rules"), tmp_path / "rules")
    (tmp_path / "rules" / "adapters.yaml").write_text(RULE)
    (tmp_path / "rules" / "trees" / "adapters.yaml").write_text(TREE)
    config = tmp_path / "driftwatch.yaml"
    config.write_text(
        "sources: [{pages: ['http://host:8000/metrics']}]\n"
        "receivers: [{name: oncall, stdout: {}}]\n"
        "rules: {files: [rules], runbook: 'https://wiki.example.net/runbook#{alert}'}\n"
    )
    checked = run("check", "-c", config)
    assert checked.output == "0 errors in 18 files, 27 rules, 1 switched off\n"
    page = (shared_data / "vllm-0.32" / "metrics_lora_during.txt").read_text()
    history = recording(tmp_path / "r.jsonl", lambda seconds: going_on(page, seconds), 15)
    replayed = run("replay", history, "-c", config)
    assert replayed.exit_code == 0
    own, others, _ = replayed.output.partition("\n\nFIRING")
    assert others
    golden("e2e/own-rule.txt", own.replace(f"{tmp_path}/", "") + "\n")
    (told,) = [
        page
        for page in pages(run("replay", history, "-c", config, "--json"))
        if page["alert"] == "AdaptersThrash"
    ]
    assert told["diagnosis"]["leaf"] == "adapter_slots"
    assert told["links"]["runbook"] == "https://wiki.example.net/runbook#adaptersthrash"


def test_a_rule_with_an_unknown_receiver_starts_nothing(run: Any, tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    rule = RULE.replace("tree: adapters", "receivers: [oncal]")
    (tmp_path / "rules" / "adapters.yaml").write_text(rule)
    config = tmp_path / "driftwatch.yaml"
    config.write_text(
        "sources: [{pages: ['http://host:8000/metrics']}]\n"
        "receivers: [{name: oncall, stdout: {}}]\nrules: [rules]\n"
    )
    for command in (("run",), ("replay", tmp_path / "none.jsonl")):
        refused = run(*command, "-c", config)
        assert isinstance(refused.exception, ConfigError)
        (problem,) = refused.exception.problems
        assert (problem.code, problem.line) == ("unknown-receiver", 9)
        assert problem.help_text == "did you mean oncall?"
