"""Secrets are read at use, and stand in nothing that is printed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import orjson
import pytest
from settings_cases import FULL, SMALLEST
from test_settings_file import load, problems

from driftwatch.errors import ConfigError
from driftwatch.rulebook.render import render_problems
from driftwatch.settings import PrometheusSource


def test_secrets_are_read_at_use(tmp_path: Path) -> None:
    settings = load(tmp_path, FULL)
    first = settings.sources[0]
    assert isinstance(first, PrometheusSource) and first.basic_auth is not None
    with pytest.raises(ConfigError) as caught:
        first.basic_auth.read("password")
    (problem,) = caught.value.problems
    assert (problem.path, problem.code) == (str(tmp_path / "password"), "unreadable")
    (tmp_path / "password").write_text("pw\n", encoding="utf-8")
    assert first.basic_auth.read("password") == "pw"
    assert first.read("bearer_token") is None
    hook, inline = (one.webhook for one in settings.receivers[1:])
    (tmp_path / "hook.url").write_text("https://h/x", encoding="utf-8")
    (tmp_path / "hook.key").write_text("k", encoding="utf-8")
    assert hook is not None and inline is not None
    assert [one.read_url() for one in (hook, inline)] == ["https://h/x", "https://host/CANARY"]
    assert hook.read("secret") == "k"


@pytest.mark.parametrize("content", [None, "", "ftp://h/x", "https://h/x y"])
def test_a_url_from_a_file_is_checked_too(tmp_path: Path, content: str | None) -> None:
    (receiver,) = load(tmp_path, SMALLEST).receivers
    if content is not None:
        (tmp_path / "slack.url").write_text(content, encoding="utf-8")
    assert receiver.slack is not None
    with pytest.raises(ConfigError) as caught:
        receiver.slack.read_url("webhook_url")
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


CANARIES = [
    "receivers: [{name: a, slack: {webhook_url: https://CANARY/x}}]",
    "receivers: [{name: a, webhook: {url: ftp://CANARY/x}}]",
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


@pytest.mark.parametrize("content", ["CANARY\nCANARY", "CANARY\x00", "CAN\x1bARY", "CAN\x85ARY"])
def test_a_secret_of_several_lines_is_refused_by_its_file(tmp_path: Path, content: str) -> None:
    settings = load(tmp_path, FULL)
    api, hook = settings.sources[0], settings.receivers[1].webhook
    assert isinstance(api, PrometheusSource) and api.basic_auth is not None and hook is not None
    token = PrometheusSource.model_validate(
        {"prometheus": "http://p:9090", "bearer_token_file": tmp_path / "token"}
    )
    reads = {
        "password": partial(api.basic_auth.read, "password"),
        "token": partial(token.read, "bearer_token"),
        "hook.key": partial(hook.read, "secret"),
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
