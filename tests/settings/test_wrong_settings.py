"""The corpus of wrong configurations: what `driftwatch check` prints of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from driftwatch.errors import ConfigError
from driftwatch.rulebook.render import render_problems
from driftwatch.settings import load_settings

WRONG = [
    "source: []",
    "pools: [{name: a, slo: {ttft: 1, tpot_seconds: 1}}]",
    "pools: [{match: {}}]",
    "sources: [{prometheus: 'http://h', stp: 15s}]",
    "sources: [{}]",
    "sources: [{pages: ['http://h'], nvml: true}]",
    "sources: [{pages: []}]",
    "sources: [{prometheus: 'file:///etc/passwd'}]",
    "pools: [{name: a, serving: {max_num_seqs: 1024, max_num_batched_tokens: 512}}]",
    "pools: [{name: a, serving: {max_num_seqs: 0}}]",
    "pools: [{name: a, serving: {max_num_seqs: true}}]",
    "pools: [{name: a, serving: {max_num_seqs: '8'}}]",
    "pools: [{name: a, gpus_per_replica: .nan}]",
    "pools: [{name: a, slo: {share: 0, ttft_seconds: 1}}]",
    "pools: [{name: a, slo: {share: 0.9}}]",
    "pools: [{name: a, tuned_for: {}}]",
    "pools: [{name: a, match: {job: 5, foo}}]",
    "pools: [{name: a}, {name: b}, {name: a}]",
    "receivers: [{name: a, stdout: {}, slack: {webhook_url_file: x}}]",
    "receivers: [{name: a}]",
    "receivers: [{name: a, slack: {}}]",
    "receivers: [{name: a, stdout: {}, severities: []}]",
    "receivers: [{name: a, stdout: {}, severities: [pge]}]",
    "interval: 15",
    "pools: [{name: a, slo: {ttft_seconds: 1, share: 95}}]",
    "sources: [{labels: {a: b}, promethues: 'http://h'}]",
    "pools: [{name: a b}]",
    "pools: [{name: a, match: {b-c: d}}]",
    "receivers: [{name: a, stdout: {}, severities: [pges]}]",
    "interval: 0s",
    "listen: 18795",
    "listen: 'h:70000'",
    "pool_by: []",
    "pools: 5",
    "- a",
    "a: [",
    "tasks: {run_by: workers}",
    "detection: {false_episodes_per_server_month: 0.1}",
    "report: {weekday: friday}",
    "{receivrs: [{name: mail, stdout: {}}], report: {receivers: [mail, slak]}}",
    "pools: [{name: a, slo: {ttft_seconds: 5000, tpot_seconds: 60}}]",
    "pools: [{name: a, serving: {max_num_seqs: 25.5}, slo: {tpot_seconds: 50ms}}]",
    "interval: 5 min",
    "sources: [{prometheus: 'http://h/api/v1/'}, {prometheus: 'http://h/graph'}]",
    "receivers: [{name: a, alertmanager: {urls: ['http://h/api/v2/alerts']}}]",
    "receivers: [{name: a, alertmanager: {urls: 'http://h'}}]",
    "pools: [{name: a, serving: {model: ' x'}}]",
    "receivers: [{name: a, pagerduty: {routing_key: x}}]",
    *(
        f"receivers: [{{name: a, slack: {slack}}}]"
        for slack in (
            "{webhook_url_file: url, bot_token_file: bot, channel: C1A}",
            "{bot_token_file: bot}",
            "{webhook_url_file: url, channel: C024BE91L}",
            "{bot_token_file: bot, channel: '#oncall'}",
            "{bot_token_file: bot, channel: C1A, users: [U1A]}",
            "{bot_token_file: bot, app_token_file: app, channel: C1A, users: ['@ana']}",
            "{bot_token_file: bot, channel: C1A, api_url: 'ftp://slack.com/'}",
        )
    ),
]


def test_wrong_configurations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    parts = []
    for text in WRONG:
        path = Path("driftwatch.yaml")
        path.write_text(f"{text}\n", encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            load_settings(path, environ={})
        parts.append(render_problems(caught.value.problems))
    golden("settings/wrong.txt", "\n\n".join(parts) + "\n")
