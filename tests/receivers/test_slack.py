"""Slack: what is sent, escaped and bounded; one message an incident; what each answer means."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from fakes.loopback import Answer
from fakes.slack_server import SlackServer
from fakes.slack_workspace import BOT_TOKEN, Posted, SlackWorkspace
from page_cases import AT, CAP, CASES
from receiver_cases import acknowledged, message, refused, repeat, report
from secret_file import secret

from driftwatch.errors import DeliveryError
from driftwatch.notify.headline import marked
from driftwatch.receivers.registry import sample_pages
from driftwatch.receivers.slack import SlackClient, SlackSender
from driftwatch.receivers.slack_blocks import BODY_LIMIT
from driftwatch.settings.receivers import SlackReceiver

CHANNEL, ANA = "C0000ONCALL", "U0000ANA"
App = Callable[..., SlackSender]


@pytest.fixture
def hook() -> Iterator[SlackServer]:
    with SlackServer() as server:
        yield server


@pytest.fixture
def slack() -> Iterator[SlackWorkspace]:
    with SlackWorkspace({CHANNEL: (ANA,)}, {ANA: "Ana"}) as server:
        yield server


def webhook(server: SlackServer) -> SlackSender:
    return SlackSender("oncall", SlackReceiver(webhook_url_file=secret(server.url)))


@pytest.fixture
def app(slack: SlackWorkspace) -> App:
    def make(token: str = BOT_TOKEN, *, clicks: bool = True, **rest: Any) -> SlackSender:
        files = {"bot_token_file": secret(token)}
        files |= {"app_token_file": secret("xapp-canary")} if clicks else {}
        settings = SlackReceiver(channel=CHANNEL, api_url=slack.api_url, **files)
        return SlackSender("oncall", settings, **rest)

    return make


def body_texts(sent: dict[str, Any]) -> list[str]:
    found = []
    for block in sent["blocks"][1:]:
        if block["type"] == "section":
            found.append(block["text"]["text"])
        elif block["type"] == "context":
            found += [element["text"] for element in block["elements"]]
    return found


def words(posted: Posted) -> list[str]:
    """The buttons of a message."""
    rows = [block for block in posted.payload["blocks"] if block["type"] == "actions"]
    return [one["text"]["text"] for row in rows for one in row["elements"]]


def line(posted: Posted) -> str:
    return str(posted.payload["text"])


@pytest.mark.parametrize("name", CASES)
def test_slack_takes_every_page(hook: SlackServer, name: str) -> None:
    for page in (CASES[name].page(), CASES[name].resolved(), sample_pages("oncall", AT)[0]):
        webhook(hook).send(message(page))
        taken = hook.accepted[-1]
        assert taken.payload["text"] == marked(page, page.summary)
        assert len(taken.payload["text"]) <= 120
        assert taken.mentions == ()
        assert len(body_texts(dict(taken.payload))[0]) <= BODY_LIMIT
    assert len(hook.requests) == 3


def test_slack_takes_a_report(hook: SlackServer, slack: SlackWorkspace, app: App) -> None:
    webhook(hook).send(report())
    app().send(report())
    assert hook.accepted[0].payload["text"].startswith("Report 2026-W47")
    assert line(slack.top(CHANNEL)[0]).startswith("Report 2026-W47")


@pytest.mark.parametrize(
    ("status", "body", "permanent"),
    [(200, "<html>log in</html>", True), (200, "", False), (404, "no_service", True)],
)
def test_what_a_webhooks_answer_means(
    hook: SlackServer, status: int, body: str, permanent: bool
) -> None:
    hook.fail_next(status, body)
    error = refused(webhook(hook))
    assert error.permanent is permanent
    assert error.message.startswith("oncall answered")


def test_one_message_from_firing_to_resolved(slack: SlackWorkspace, app: App) -> None:
    of = app()
    where = of.send(message(CAP.page()))
    (posted,) = slack.top(CHANNEL)
    assert line(posted).startswith("🔴 FIRING ")
    assert words(posted) == ["Acknowledge", "Silence 2 h", "Open", "Runbook"]
    assert where == {"channel": CHANNEL, "ts": posted.ts}

    of.send(replace(acknowledged(), conversation=where))
    assert line(posted).startswith("🟠 ACKNOWLEDGED by ana 02:56 UTC · host:8000: ")
    assert words(posted) == ["Silence 2 h", "Open", "Runbook"]

    of.send(message(CAP.resolved(), where))
    assert line(posted).startswith("✅ RESOLVED host:8000 after 66 min")
    assert words(posted) == ["Useful", "Not useful", "Open", "Runbook"]
    assert slack.top(CHANNEL) == [posted]
    # a resolve says nothing in the thread
    (note,) = slack.thread(posted)
    assert line(note).startswith("*Changed* <!date^1794970560^{time}|02:56 UTC>: acknowledged, by")
    assert "reply_broadcast" not in note.payload
    assert slack.mentions == []


def test_what_nobody_has_acknowledged_is_told_in_the_channel_too(
    slack: SlackWorkspace, app: App
) -> None:
    of = app()
    where = of.send(message(CAP.page()))
    of.send(replace(repeat(), conversation=where))
    of.send(replace(acknowledged(None), conversation=where))
    (posted,) = slack.top(CHANNEL)
    first, second = slack.thread(posted)
    assert line(first).startswith("STILL FIRING after 11 min · ")
    assert "no longer acknowledged, by ana" in line(second)
    assert all(note.payload["reply_broadcast"] is True for note in (first, second))
    assert line(posted).startswith("🔴 UPDATE ")


@pytest.mark.parametrize("before", [None, {"subject": "host:8000"}])
def test_a_message_that_is_gone_or_never_was_is_posted_anew(
    slack: SlackWorkspace, app: App, before: dict[str, str] | None
) -> None:
    of = app()
    where = before or of.send(message(CAP.page()))
    slack.messages.clear()
    now = of.send(replace(acknowledged(), conversation=where))
    (posted,) = slack.top(CHANNEL)
    assert line(posted).startswith("🟠 ACKNOWLEDGED by ana ")
    assert now is not None and now["ts"] == posted.ts


def test_a_short_limit_is_waited_out_and_a_longer_one_is_the_outboxs(
    slack: SlackWorkspace,
    app: App,
) -> None:
    slack.fail_call("chat.postMessage", "ratelimited", 429, Retry_After="1")
    app().send(message(CAP.page()))
    assert len(slack.top(CHANNEL)) == 1
    for status, seconds in ((429, 70.0), (200, 30.0)):
        wish = {"Retry_After": "70"} if status == 429 else {}
        slack.fail_call("chat.postMessage", "ratelimited", status, **wish)
        error = refused(app())
        assert (error.permanent, error.retry_after_seconds) == (False, seconds)


@pytest.mark.parametrize(
    ("code", "permanent"),
    [
        *((code, True) for code in ("channel_not_found", "is_archived", "not_in_channel")),
        *((code, True) for code in ("invalid_auth", "invalid_blocks", "a_code_of_tomorrow")),
        *((code, False) for code in ("fatal_error", "internal_error", "service_unavailable")),
    ],
)
def test_what_slacks_refusals_mean(
    slack: SlackWorkspace, app: App, code: str, permanent: bool
) -> None:
    slack.fail_call("chat.postMessage", code)
    error = refused(app())
    assert error.permanent is permanent
    assert code in error.message


def test_a_missing_scope_is_named_and_a_token_is_not(slack: SlackWorkspace, app: App) -> None:
    slack.scopes.discard("chat:write")
    assert refused(app()).message == (
        "oncall: Slack answered missing_scope to chat.postMessage; add chat:write to the app's bot "
        "scopes and install it again"
    )
    assert "invalid_auth" in refused(app("xoxb-canary-wrong")).message


def test_what_is_not_slack(slack: SlackWorkspace, app: App) -> None:
    for body in ("<html>log in</html>", "[]", '{"error": "x"}', ""):
        slack.failing["chat.postMessage"] = deque([Answer(200, body)])
        assert "not as Slack does" in refused(app()).message


def test_slack_sdk_stays_within_the_bounds(
    slack: SlackWorkspace, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    slack.failing["chat.postMessage"] = deque([Answer(200, "{" + "x" * 2_000_000)])
    assert refused(app()).permanent is False
    slack.failing["chat.postMessage"] = deque([Answer(302, "", {"Location": slack.api_url})])
    assert "redirects are not followed" in refused(app()).message
    slack.silent.append("chat.postMessage")
    assert refused(app(seconds=0.5)).message == "oncall: no complete answer within 0.5 s"
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    app().send(message(CAP.page()))
    with pytest.raises(DeliveryError, match="refused") as caught:
        SlackClient("oncall", BOT_TOKEN, "http://169.254.169.254/api/").auth_test()
    assert caught.value.permanent is True
