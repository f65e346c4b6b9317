from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from pydantic import SecretStr

from driftwatch.errors import ConfigError, Problem
from driftwatch.rulebook.render import render_problems
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
    step: 30s
    basic_auth: {username: watch, password_file: password}
  - {prometheus: "http://p2:9090", bearer_token_file: /etc/token}
  - {pages: ["http://a:8000/metrics", "http://b:8000/metrics"], labels: {pool: x}}
  - {recording: scrapes.jsonl.gz}
interval: 10s
connect_timeout: 1s
read_timeout: 5s
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
retention: 1d
external_url: https://driftwatch.example/
"""


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
    assert (source.prometheus, source.step) == ("http://prometheus:9090", 15.0)
    (pool,) = settings.pools
    assert (pool.name, pool.match, pool.gpus_per_replica) == ("rag-8b", {"job": "vllm-rag"}, 1)
    assert (pool.serving.max_num_seqs, pool.serving.max_num_batched_tokens) == (256, 512)
    assert pool.slo is not None and (pool.slo.ttft_seconds, pool.slo.share) == (1.0, 0.95)
    (receiver,) = settings.receivers
    assert receiver.severities == ("page", "ticket", "notice")
    assert receiver.slack is not None
    assert receiver.slack.webhook_url_file == tmp_path / "slack.url"
    assert settings.pool_by == ("namespace", "model_name")
    assert settings.rules == ()
    assert settings.database == tmp_path / "driftwatch.db"
    assert settings.listen_address == ("127.0.0.1", 9095)
    assert (settings.interval, settings.retention) == (15.0, 3_600.0)


def test_every_setting(tmp_path: Path) -> None:
    settings = load(tmp_path, FULL)
    first, second, pages, recording = settings.sources
    assert isinstance(first, PrometheusSource) and first.basic_auth is not None
    assert (first.step, first.basic_auth.username) == (30.0, "watch")
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
    assert settings.rules == (tmp_path / "rules", tmp_path / "more/*.yaml", Path("/abs/r.yaml"))
    assert settings.listen_address == ("::1", 9100)
    assert (settings.interval, settings.connect_timeout, settings.read_timeout) == (10, 1, 5)


def test_secrets_are_read_at_use(tmp_path: Path) -> None:
    settings = load(tmp_path, FULL)
    first = settings.sources[0]
    assert isinstance(first, PrometheusSource) and first.basic_auth is not None
    with pytest.raises(ConfigError) as caught:
        first.basic_auth.read_password()
    (problem,) = caught.value.problems
    assert (problem.path, problem.code) == (str(tmp_path / "password"), "unreadable")
    (tmp_path / "password").write_text("pw\n", encoding="utf-8")
    assert first.basic_auth.read_password() == "pw"
    assert first.read_bearer_token() is None
    hook, inline, signed = (one.webhook or one.slack for one in settings.receivers[1:])
    (tmp_path / "hook.url").write_text("https://h/x", encoding="utf-8")
    (tmp_path / "hook.key").write_text("k", encoding="utf-8")
    assert hook is not None and inline is not None and signed is not None
    assert [one.read_url() for one in (hook, inline, signed)] == [
        "https://h/x",
        "https://hooks/CANARY1",
        "https://host/CANARY2",
    ]
    assert settings.receivers[1].webhook is not None
    assert settings.receivers[1].webhook.read_secret() == "k"


@pytest.mark.parametrize("content", [None, "", "ftp://h/x", "https://h/x y"])
def test_a_url_from_a_file_is_checked_too(tmp_path: Path, content: str | None) -> None:
    (receiver,) = load(tmp_path, SMALLEST).receivers
    if content is not None:
        (tmp_path / "slack.url").write_text(content, encoding="utf-8")
    assert receiver.slack is not None
    with pytest.raises(ConfigError) as caught:
        receiver.slack.read_url()
    (problem,) = caught.value.problems
    assert problem.path == str(tmp_path / "slack.url")
    assert not content or content not in str(caught.value)


def test_secrets_are_nowhere_printed(tmp_path: Path) -> None:
    settings = load(tmp_path, FULL)
    dumped = settings.model_dump(mode="json")
    printed = [repr(settings), repr(settings.receivers), str(settings), str(dumped)]
    printed += [settings.model_dump_json(), orjson.dumps(dumped).decode()]
    assert [text for text in printed if "CANARY" in text] == []
    assert all("<secret>" in text for text in printed[:2])
    assert set(dumped["receivers"][2]["slack"]["webhook_url"]) == {"*"}
    assert set(dumped["receivers"][3]["webhook"]["secret"]) == {"*"}
    signed = settings.receivers[3].webhook
    assert signed is not None and isinstance(signed.secret, SecretStr)


CANARIES = [
    "receivers: [{name: a, slack: {webhook_urll: https://CANARY/x}}]",
    "receivers: [{name: a, slack: {webhook_url: ftp://CANARY/x}}]",
    "receivers: [{name: a, slack: https://CANARY/x}]",
    "receivers: [{name: a, webhook: {url: https://h/CANARY, secrett: CANARY}}]",
    "receivers: [{name: a, webhook: {secret: CANARY, url: https://h/CANARY, typo: 1}}]",
    "receivers: [{name: a, webhook: {url: https://h/CANARY, secret: [CANARY]}}]",
    "receivers: [{name: a, webhook: {url: 'https://h/CANARY', url_file: x}}]",
    "sources: [{prometheus: 'http://u:CANARY@host'}]",
    "sources: [{prometheus: 'http://host', basic_auth: {username: u, pasword: CANARY}}]",
    "sources: [{prometheus: 'http://host', basic_auth: CANARY}]",
    "sources: [{prometheus: 'http://host', bearer_token: CANARY}]",
    "sources:\n  - prometheus: http://host\n    basic_auth:\n      password: CANARY\n      user: x",
    "database: postgresql://u:CANARY@host/d",
    "receivers:\n  - name: a\n    webhook: {secret: 'CANARY",
    "receivers:\n  - name: a\n    webhook: {secret: CANARY, secret: CANARY}",
    "receivers:\n  - name: a\n    webhook: {secret: !x CANARY}",
    "receivers:\n  - name: a\n    webhook: {secret: &x CANARY}",
]


@pytest.mark.parametrize("text", CANARIES)
def test_no_error_holds_a_secret(tmp_path: Path, text: str) -> None:
    found = problems(tmp_path, text + "\n")
    assert found
    assert "CANARY" not in repr(found)
    assert "CANARY" not in render_problems(found)


@pytest.mark.parametrize(
    ("text", "code", "place", "message", "help_text"),
    [
        ("source: []", "unknown-key", (1, 1), "unknown key source", "did you mean sources?"),
        (
            "pools: [{name: a, slo: {ttft: 1, tpot_seconds: 1}}]",
            "unknown-key",
            (1, 25),
            "unknown key ttft",
            "did you mean ttft_seconds?",
        ),
        ("pools: [{match: {}}]", "missing-key", (1, 10), "name is missing", None),
        (
            "sources: [{prometheus: 'http://h', stp: 15s}]",
            "unknown-key",
            (1, 36),
            "unknown key stp",
            "did you mean step?",
        ),
        (
            "sources: [{}]",
            "value",
            (1, 11),
            "a source has exactly one of prometheus, pages, recording, dcgm, nvml",
            None,
        ),
        (
            "sources: [{pages: ['http://h'], recording: x}]",
            "value",
            (1, 12),
            "a source has exactly one of prometheus, pages, recording, dcgm, nvml",
            None,
        ),
        ("sources: [{pages: []}]", "value", (1, 19), "at least one is wanted here", None),
        (
            "sources: [{prometheus: 'file:///etc/passwd'}]",
            "value",
            (1, 24),
            None,
            None,
        ),
        (
            "pools: [{name: a, serving: {max_num_seqs: 1024, max_num_batched_tokens: 512}}]",
            "value",
            (1, 19),
            "max_num_batched_tokens 512 is below max_num_seqs 1024: vLLM refuses to start",
            None,
        ),
        ("pools: [{name: a, serving: {max_num_seqs: 0}}]", "value", (1, 43), None, None),
        ("pools: [{name: a, serving: {max_num_seqs: true}}]", "value", (1, 43), None, None),
        ("pools: [{name: a, serving: {max_num_seqs: '8'}}]", "value", (1, 43), None, None),
        ("pools: [{name: a, gpus_per_replica: .nan}]", "value", (1, 37), None, None),
        ("pools: [{name: a, slo: {share: 0, ttft_seconds: 1}}]", "value", (1, 32), None, None),
        ("pools: [{name: a, slo: {share: 1.1, ttft_seconds: 1}}]", "value", (1, 32), None, None),
        (
            "pools: [{name: a, slo: {share: 0.9}}]",
            "value",
            (1, 19),
            "an slo has ttft_seconds, tpot_seconds or both",
            None,
        ),
        ("pools: [{name: a, tuned_for: {}}]", "value", (1, 19), None, None),
        (
            "pools: [{name: a, match: {job: 5}}]",
            "value",
            (1, 32),
            "text is wanted here",
            "put it in quotes",
        ),
        (
            "pools: [{name: a}, {name: b}, {name: a}]",
            "duplicate",
            (1, 38),
            "a second one of pools is called a, first in line 1",
            None,
        ),
        (
            "receivers: [{name: a, stdout: {}, slack: {webhook_url_file: x}}]",
            "value",
            (1, 14),
            "give exactly one of slack, webhook, stdout",
            None,
        ),
        ("receivers: [{name: a}]", "value", (1, 14), None, None),
        ("receivers: [{name: a, slack: {}}]", "value", (1, 23), None, None),
        ("receivers: [{name: a, stdout: {}, severities: []}]", "value", (1, 47), None, None),
        ("receivers: [{name: a, stdout: {}, severities: [pge]}]", "value", (1, 48), None, None),
        ("interval: 15", "value", (1, 11), None, None),
        (
            "pools: [{name: a, slo: {ttft_seconds: 1, share: 95}}]",
            "value",
            (1, 49),
            "a number at most 1 is wanted here",
            "write 0.95",
        ),
        (
            "sources: [{labels: {a: b}, promethues: 'http://h'}]",
            "value",
            (1, 28),
            "a source has exactly one of prometheus, pages, recording, dcgm, nvml",
            "did you mean prometheus?",
        ),
        (
            "pools: [{name: a b}]",
            "value",
            (1, 16),
            "a name has letters, digits, _, . and - and begins with a letter or a digit",
            None,
        ),
        (
            "pools: [{name: a, match: {b-c: d}}]",
            "value",
            (1, 32),
            "a label's name has letters, digits and _ and does not begin with a digit",
            None,
        ),
        (
            "pools: [{name: a, serving: {max_num_batched_tokens: '512'}}]",
            "value",
            (1, 53),
            "a whole number is wanted here",
            "write 512, without quotes",
        ),
        (
            "receivers: [{name: a, stdout: {}, severities: [pges]}]",
            "value",
            (1, 48),
            "one of page, ticket, notice is wanted here",
            None,
        ),
        ("interval: 0s", "value", (1, 11), None, None),
        ("retention: -1h", "value", (1, 12), "a duration cannot be negative: -1h", None),
        (
            "retention: 3000000d",
            "value",
            (1, 12),
            "a number at most 3.1536e+08 is wanted here",
            None,
        ),
        ("listen: localhost", "value", (1, 9), None, None),
        ("listen: 'h:70000'", "value", (1, 9), None, None),
        ("pool_by: []", "value", (1, 10), None, None),
        ("pools: 5", "value", (1, 8), "a list is wanted here", None),
        ("- a", "type", (1, 1), None, None),
        ("a: [", "yaml", (2, 1), None, None),
    ],
)
def test_what_is_wrong(
    tmp_path: Path,
    text: str,
    code: str,
    place: tuple[int, int],
    message: str | None,
    help_text: str | None,
) -> None:
    (problem,) = problems(tmp_path, text + "\n")
    assert (problem.code, (problem.line, problem.column)) == (code, place), problem
    assert message is None or problem.message == message
    assert message is None or problem.help_text == help_text
    assert problem.path == str(tmp_path / "driftwatch.yaml")


def test_only_what_may_be_secret_is_hidden(tmp_path: Path) -> None:
    shown = render_problems(
        problems(
            tmp_path,
            "pools:\n"
            "  - {name: a, serving: {max_num_batched_tokens: '512'}}\n"
            "  - {name: b, tuned_for: {prompt_tokens: 'many'}}\n"
            "receivers: [{name: a, slack: {webhook_url_file: 12}}]\n",
        )
    )
    assert "<secret>" not in shown
    for value in ("'512'", "'many'", "webhook_url_file: 12"):
        assert value in shown


def test_all_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "source: []\ninterval: 15\npools: [{nam: a, slo: {share: 2}}]\nlisten: x\nlisten: y\n"
    found = [(p.line, p.column, p.code) for p in problems(tmp_path, text)]
    assert found == [
        (1, 1, "unknown-key"),
        (2, 11, "value"),
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


@pytest.mark.parametrize("content", ["CANARY\nCANARY", "CANARY\x00", "CAN\x1bARY", "CAN\x85ARY"])
def test_a_secret_of_several_lines_is_refused_by_its_file(tmp_path: Path, content: str) -> None:
    settings = load(tmp_path, FULL)
    api, hook = settings.sources[0], settings.receivers[1].webhook
    assert isinstance(api, PrometheusSource) and api.basic_auth is not None and hook is not None
    token = PrometheusSource.model_validate(
        {"prometheus": "http://p:9090", "bearer_token_file": tmp_path / "token"}
    )
    reads = {
        "password": api.basic_auth.read_password,
        "token": token.read_bearer_token,
        "hook.key": hook.read_secret,
    }
    for name, read in reads.items():
        (tmp_path / name).write_text(f"{content}\n", encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            read()
        (problem,) = caught.value.problems
        assert (problem.path, problem.code) == (str(tmp_path / name), "value")
        assert "several lines" in problem.message or "a control character" in problem.message
        assert "CAN" not in str(caught.value) + render_problems(caught.value.problems)


@pytest.mark.parametrize("tenant", [r"CANARY\nHost: x", r"CANARY\0", "CANARY\u20ac", " CANARY"])
def test_a_tenant_is_what_a_header_can_hold(tmp_path: Path, tenant: str) -> None:
    found = problems(tmp_path, f'sources: [{{prometheus: "http://p:9090", tenant: "{tenant}"}}]\n')
    assert "a header cannot" in repr(found)
    assert "CANARY" not in repr(found)


def test_a_file_that_is_missing_names_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path / "none.yaml")
    (problem,) = caught.value.problems
    assert problem.message == "cannot be read: no such file or directory"
    assert problem.help_text is not None and "driftwatch init" in problem.help_text
