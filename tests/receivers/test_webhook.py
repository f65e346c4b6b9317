"""The generic webhook: what arrives, what becomes of each answer, where it never connects."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.webhook_server import WebhookServer
from page_cases import AT, BUDGET, CAP, CASES

from driftwatch import address_guard as guard
from driftwatch.errors import DeliveryError
from driftwatch.notify.page import Page
from driftwatch.receivers.http import Limits
from driftwatch.receivers.registry import sample_pages
from driftwatch.receivers.sender import message_of
from driftwatch.receivers.webhook import WebhookSender

SCHEMA = Page.model_json_schema()
KEY = b"canary-signing-key"


@pytest.fixture
def hook() -> Iterator[WebhookServer]:
    with WebhookServer(SCHEMA, KEY) as server:
        yield server


def sender(server: WebhookServer, **rest: Any) -> WebhookSender:
    return WebhookSender("ops", server.url, **{"secret": KEY, **rest})


def refused(of: WebhookSender, page: dict[str, Any] | None = None) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        of.send(message_of(CAP.page() if page is None else page))
    error = caught.value
    told = "".join(traceback.format_exception(error)) + repr(error) + repr(of)
    assert "canary" not in told
    assert error.__context__ is None
    return error


@pytest.mark.parametrize("name", ["cap", "coverage_pool", "drift"])
def test_a_page_arrives_whole_and_valid(hook: WebhookServer, name: str) -> None:
    fired, resolved = CASES[name].page(), CASES[name].resolved()
    sender(hook).send(message_of(fired))
    sender(hook).send(message_of(resolved))
    assert hook.accepted == [fired.document(), resolved.document()]


def test_the_test_page_arrives(hook: WebhookServer) -> None:
    sender(hook).send(message_of(sample_pages("ops", AT)[0]))
    assert hook.accepted[0]["test"] is True


def test_a_repeated_delivery_is_one_event(hook: WebhookServer) -> None:
    for _ in range(3):
        sender(hook).send(message_of(CAP.page()))
    assert len(hook.requests) == 3
    assert len(hook.accepted) == 1
    keys = {request.headers["idempotency-key"] for request in hook.requests}
    assert keys == {"3f9c1a7be204-firing"}


def test_the_signature_is_over_time_and_body(hook: WebhookServer) -> None:
    assert refused(sender(hook, secret=b"another")).message == "ops answered 401: wrong signature"
    assert "401" in refused(sender(hook, secret=None)).message
    sender(hook).send(message_of(CAP.page()))
    assert hook.requests[-1].headers["content-type"] == "application/json"


def test_a_page_its_schema_does_not_know(hook: WebhookServer) -> None:
    page = CAP.page().model_copy(update={"severity": "critical"})
    error = refused(sender(hook), page)
    assert error.permanent is True
    assert error.message.startswith("ops answered 422: $.severity")


@pytest.mark.parametrize(
    ("status", "permanent"),
    [
        *((status, True) for status in (301, 307, 400, 403, 404, 410)),
        *((status, False) for status in (408, 425, 500, 502, 503)),
    ],
)
def test_what_an_answer_means(hook: WebhookServer, status: int, permanent: bool) -> None:
    hook.fail_next(status, "why", Location=hook.url)
    error = refused(sender(hook))
    assert error.permanent is permanent
    assert len(hook.requests) == 1


def test_too_many_requests_names_the_time(hook: WebhookServer) -> None:
    hook.fail_next(429, Retry_After="7")
    error = refused(sender(hook))
    assert (error.permanent, error.retry_after_seconds) == (False, 7.0)


def test_a_date_counts_from_the_answers_own_clock() -> None:
    from driftwatch.receivers.sender import retry_after

    wait = retry_after(
        {"Date": "Wed, 18 Nov 2026 03:00:00 GMT", "Retry-After": "Wed, 18 Nov 2026 03:00:40 GMT"}
    )
    assert wait == 40.0


def test_no_answer_is_a_time_out(hook: WebhookServer) -> None:
    hook.hang_next()
    error = refused(sender(hook, limits=Limits(seconds=0.3)))
    assert (error.message, error.permanent) == ("ops: no answer within 0.3 s", False)


def test_nobody_there() -> None:
    with WebhookServer(SCHEMA) as server:
        url = server.url
    error = refused(WebhookSender("ops", url))
    assert (error.message, error.permanent) == ("ops: connection refused", False)


def test_an_answer_that_repeats_the_secret(hook: WebhookServer) -> None:
    hook.fail_next(400, f"no {hook.url} {KEY.decode()}")
    assert "<secret>" in refused(sender(hook)).message


def test_an_answer_that_repeats_the_login(hook: WebhookServer) -> None:
    url = hook.url.replace("://", "://ops:can%40ary-password@")
    written = ("can@ary-password", "ops:can%40ary-password", "b3BzOmNhbkBhcnktcGFzc3dvcmQ=")
    for one in written:
        hook.fail_next(401, f"not {one}")
        message = refused(WebhookSender("ops", url)).message
        assert message == "ops answered 401: not <secret>"
        basic = hook.requests[-1].headers["authorization"]
        assert basic == f"Basic {written[2]}"


def test_the_environment_sets_neither_proxy_nor_password(
    hook: WebhookServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password canary\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    sender(hook).send(message_of(BUDGET.page()))
    assert "authorization" not in hook.requests[0].headers


@pytest.mark.parametrize(
    "url",
    ["ftp://host/canary", "canary", "http://[::1/canary", "http:///canary", "http://a b/canary"],
)
def test_a_url_that_is_none(url: str) -> None:
    error = refused(WebhookSender("ops", url))
    assert error.permanent is True


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.1.1",
        "fe80::1",
        "fe80::1%eth0",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "0.0.0.0",
        "::",
        "224.0.0.1",
    ],
)
def test_addresses_that_are_refused(address: str) -> None:
    assert guard.refused(address)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.7", "192.168.1.1", "203.0.113.9"])
def test_addresses_of_receivers(address: str) -> None:
    assert not guard.refused(address)


def test_a_metadata_address_is_refused_at_connect() -> None:
    for host in ("169.254.169.254", "[fe80::1]", "2852039166", "[::ffff:a9fe:a9fe]"):
        error = refused(WebhookSender("ops", f"http://{host}/canary"))
        assert error.permanent is True
        assert "link-local or a metadata service" in error.message


def test_a_name_is_judged_by_its_address(
    hook: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(hook.address.rpartition(":")[2])
    real = socket.getaddrinfo
    answers = {"rebound.example": "169.254.169.254", "fine.example": "127.0.0.1"}

    def resolve(host: Any, *rest: Any, **named: Any) -> Any:
        return real(answers.get(host, host), *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    path = hook.url.rpartition(":")[2].partition("/")[2]
    refused(WebhookSender("ops", f"http://rebound.example:{port}/{path}", KEY))
    assert hook.requests == []
    WebhookSender("ops", f"http://fine.example:{port}/{path}", KEY).send(message_of(CAP.page()))
    assert len(hook.accepted) == 1


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
