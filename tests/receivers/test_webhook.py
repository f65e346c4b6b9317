"""The generic webhook: what arrives, signed and with a key, in both formats."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from fakes.webhook_server import WebhookServer
from page_cases import AT, CAP, CASES
from receiver_cases import refused, report
from secret_file import secret

from driftwatch.notify.page import Page
from driftwatch.receivers.registry import sample_pages
from driftwatch.receivers.sender import message_of
from driftwatch.receivers.webhook import WebhookSender
from driftwatch.settings.receivers import WebhookReceiver

SCHEMA = Page.model_json_schema()
KEY = b"canary-signing-key"


@pytest.fixture
def hook() -> Iterator[WebhookServer]:
    with WebhookServer(SCHEMA, KEY) as server:
        yield server


def sender(server: WebhookServer, **rest: Any) -> WebhookSender:
    key = rest.pop("secret", KEY.decode())
    file = None if key is None else secret(key)
    settings = WebhookReceiver(url=server.url, secret_file=file)
    return WebhookSender("ops", settings, **rest)


@pytest.mark.parametrize("name", ["cap", "coverage_pool", "drift"])
def test_a_page_arrives_whole_and_valid(hook: WebhookServer, name: str) -> None:
    pages = CASES[name].page(), CASES[name].resolved(), sample_pages("ops", AT)[0]
    for page in pages:
        sender(hook).send(message_of(page))
    assert hook.accepted == [page.document() for page in pages]


def test_the_signature_is_over_time_and_body(hook: WebhookServer) -> None:
    assert refused(sender(hook, secret="another")).message == "ops answered 401: wrong signature"
    assert "401" in refused(sender(hook, secret=None)).message
    hook.fail_next(400, f"no {hook.url} {KEY.decode()}")
    assert refused(sender(hook)).message == "ops answered 400: no <secret> <secret>"


def test_a_report_arrives_as_json() -> None:
    with WebhookServer({}) as hook:
        sender(hook, secret=None).send(report())
        assert hook.accepted == [orjson.loads(orjson.dumps(report().document))]


def example(language: str) -> str:
    """The example of the docs in a language, in the section on webhooks."""
    docs = (Path(__file__).parents[2] / "docs" / "sre" / "receivers.md").read_text("utf-8")
    section = docs.partition("## Webhook\n")[2]
    return section.partition(f"```{language}\n")[2].partition("```")[0]


def test_the_documented_check_of_a_signature_in_python(hook: WebhookServer) -> None:
    sender(hook).send(message_of(CAP.page()))
    (request,) = hook.requests
    at = request.headers["x-driftwatch-timestamp"]
    signed = request.headers["x-driftwatch-signature"]
    names: dict[str, Any] = {}
    exec(example("python"), names)
    verified = names["verified"]
    assert verified(request.body, at, signed, KEY)
    assert not verified(request.body + b" ", at, signed, KEY)
    assert not verified(request.body, str(int(at) + 1), signed, KEY)
    assert not verified(request.body, at, signed, b"another")
    # a replay: the whole message of an hour ago, rightly signed then
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    sender(hook, now=lambda: long_ago).send(message_of(CAP.page()))
    old = hook.requests[-1]
    headers = [old.headers[f"x-driftwatch-{name}"] for name in ("timestamp", "signature")]
    assert not verified(old.body, *headers, KEY)
