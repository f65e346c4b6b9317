"""A Slack app: one message an incident, edited in place, with a thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fakes.slack_workspace import SlackWorkspace
from page_cases import CAP, CASES
from slack_cases import CHANNEL, acknowledged, sender, told, workspace

from driftwatch.errors import DeliveryError
from driftwatch.receivers.sender import message_of


@pytest.fixture
def slack() -> Iterator[SlackWorkspace]:
    with workspace() as server:
        yield server


def words(message: Any) -> list[str]:
    """The buttons of a message."""
    rows = [block for block in message.payload["blocks"] if block["type"] == "actions"]
    return [one["text"]["text"] for row in rows for one in row["elements"]]


def line(message: Any) -> str:
    return str(message.payload["text"])


def test_one_message_from_firing_to_resolved(slack: SlackWorkspace) -> None:
    of = sender(slack)
    where = of.send(told(CAP.page()))
    (message,) = slack.top(CHANNEL)
    assert line(message).startswith("🔴 FIRING ")
    assert words(message) == ["Acknowledge", "Silence 2 h", "Open", "Runbook"]
    assert where == {"channel": CHANNEL, "ts": message.ts}

    where = of.send(told(acknowledged(CAP.page()), where, event="updated"))
    assert line(message).startswith("🟠 ACKNOWLEDGED by Ana 03:05 UTC · host:8000: ")
    assert len(line(message)) <= 120
    assert words(message) == ["Silence 2 h", "Open", "Runbook"]

    where = of.send(told(CAP.resolved(), where))
    assert line(message).startswith("✅ RESOLVED host:8000 after 71 min")
    assert words(message) == ["Useful", "Not useful", "Open", "Runbook"]
    assert slack.top(CHANNEL) == [message]
    (note,) = slack.thread(message)
    assert line(note).startswith("*Changed* <!date^")
    assert "reply_broadcast" not in note.payload
    assert slack.mentions == []


@pytest.mark.parametrize("name", ["cap", "coverage_pool", "drift"])
def test_slack_takes_a_page_and_its_edits(slack: SlackWorkspace, name: str) -> None:
    of, case = sender(slack), CASES[name]
    where = of.send(told(case.page()))
    where = of.send(told(acknowledged(case.page(), "<!channel>"), where, event="updated"))
    of.send(told(case.resolved(), where))
    (message,) = slack.top(CHANNEL)
    assert message.edits == 2
    assert slack.mentions == []
    assert len(line(message)) <= 140  # escaped


def test_advice_after_a_take_keeps_the_taker(slack: SlackWorkspace) -> None:
    of, page = sender(slack), CAP.page()
    where = of.send(told(page))
    where = of.send(told(acknowledged(page), where, event="updated"))
    news = acknowledged(page).model_copy(
        update={"changed": "the advice: none yet → add 2 replicas"}
    )
    where = of.send(told(news, where, event="updated"))
    (message,) = slack.top(CHANNEL)
    assert line(message).startswith("🟠 ACKNOWLEDGED by Ana 03:05 UTC · ")
    _, note = slack.thread(message)
    assert line(note).startswith("*Changed* <!date^")
    assert "the advice: none yet → add 2 replicas" in line(note)
    freed = page.model_copy(update={"changed": "not acknowledged any more, by Ben"})
    of.send(told(freed, where, event="updated"))
    assert line(message).startswith("🔴 FIRING ")


def test_a_repeat_speaks_up_in_the_thread_and_the_channel(slack: SlackWorkspace) -> None:
    of, page = sender(slack), CAP.page()
    where = of.send(told(page))
    of.send(told(page, where, number=1))
    (message,) = slack.top(CHANNEL)
    (note,) = slack.thread(message)
    assert line(note).startswith("*Still firing* <!date^")
    assert line(note).endswith(": for 11 min, and nobody has acknowledged it")
    assert note.payload["reply_broadcast"] is True


def test_without_an_app_token_commands_stand_where_buttons_would(slack: SlackWorkspace) -> None:
    sender(slack, clicks=False).send(told(CAP.page()))
    (message,) = slack.top(CHANNEL)
    assert words(message) == ["Open", "Runbook"]
    (commands,) = [b for b in message.payload["blocks"] if b["type"] == "context"]
    assert "`driftwatch ack 3f9c1a7be204`" in commands["elements"][0]["text"]


def test_a_deleted_message_is_posted_anew(slack: SlackWorkspace) -> None:
    of, page = sender(slack), CAP.page()
    where = of.send(told(page))
    slack.messages.clear()
    where = of.send(told(acknowledged(page), where, event="updated"))
    (message,) = slack.top(CHANNEL)
    assert line(message).startswith("🟠 ACKNOWLEDGED by Ana ")
    assert where is not None and where["ts"] == message.ts


@pytest.mark.parametrize("before", [{"subject": "host:8000"}, {"labels": "{}"}])
def test_a_receiver_that_was_of_another_kind_posts_the_message_anew(
    slack: SlackWorkspace, before: dict[str, str]
) -> None:
    sender(slack).send(told(CAP.resolved(), before))
    (message,) = slack.top(CHANNEL)
    assert line(message).startswith("✅ RESOLVED host:8000 ")


def test_what_was_taken_and_never_answered_is_found_again(slack: SlackWorkspace) -> None:
    from dataclasses import replace

    from driftwatch.receivers.slack import LIMITS

    of = sender(slack, limits=replace(LIMITS, seconds=0.5))
    slack.silent.append("chat.postMessage")
    with pytest.raises(DeliveryError, match="no answer within") as caught:
        of.send(told(CAP.page()))
    assert caught.value.permanent is False
    where = of.send(told(CAP.page()))
    (message,) = slack.top(CHANNEL)
    assert where == {"channel": CHANNEL, "ts": message.ts}
    # another receiver's message about the same incident is not this one
    sender(slack, name="second").send(told(CAP.page()))
    assert len(slack.top(CHANNEL)) == 2


def test_without_history_a_repeat_stands_twice(slack: SlackWorkspace) -> None:
    from dataclasses import replace

    from driftwatch.receivers.slack import LIMITS

    slack.scopes.discard("channels:history")
    of = sender(slack, limits=replace(LIMITS, seconds=0.5))
    slack.silent.append("chat.postMessage")
    with pytest.raises(DeliveryError):
        of.send(told(CAP.page()))
    where = of.send(told(CAP.page()))
    first, second = slack.top(CHANNEL)
    assert where is not None and where["ts"] == second.ts
    assert first.payload["metadata"] == second.payload["metadata"]


@pytest.mark.parametrize(("status", "seconds"), [(429, 7), (200, 30)])
def test_a_limit_names_the_time_to_wait(slack: SlackWorkspace, status: int, seconds: float) -> None:
    after = {"Retry_After": "7"} if status == 429 else {}
    slack.fail_call("chat.postMessage", "ratelimited", status, **after)
    with pytest.raises(DeliveryError) as caught:
        sender(slack).send(told(CAP.page()))
    assert caught.value.permanent is False
    assert caught.value.retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("code", "permanent"),
    [
        ("channel_not_found", True),
        ("is_archived", True),
        ("not_in_channel", True),
        ("invalid_auth", True),
        ("token_revoked", True),
        ("invalid_blocks", True),
        ("msg_too_long", True),
        ("a_code_of_tomorrow", True),
        ("ratelimited", False),
        ("fatal_error", False),
        ("internal_error", False),
        ("service_unavailable", False),
        ("request_timeout", False),
    ],
)
def test_what_slacks_refusals_mean(slack: SlackWorkspace, code: str, permanent: bool) -> None:
    slack.fail_call("chat.postMessage", code)
    with pytest.raises(DeliveryError) as caught:
        sender(slack).send(told(CAP.page()))
    assert caught.value.permanent is permanent
    assert code in caught.value.message or code == "ratelimited"
    assert "canary" not in repr(caught.value)


def test_a_missing_scope_is_named(slack: SlackWorkspace) -> None:
    slack.scopes.discard("chat:write")
    with pytest.raises(DeliveryError) as caught:
        sender(slack).send(told(CAP.page()))
    assert caught.value.message == (
        "oncall: Slack answered missing_scope to chat.postMessage; add chat:write to the app's bot "
        "scopes and install it again"
    )


def test_a_login_page_is_not_slack(slack: SlackWorkspace) -> None:
    from collections import deque

    from fakes.loopback import Answer

    for body in ("<html>log in</html>", "[]", '{"error": "x"}', ""):
        slack.failing["chat.postMessage"] = deque([Answer(200, body)])
        with pytest.raises(DeliveryError, match="not as Slack does"):
            sender(slack).send(told(CAP.page()))


def test_another_token_is_refused_and_never_told(slack: SlackWorkspace) -> None:
    of = sender(slack, token="xoxb-canary-wrong")
    with pytest.raises(DeliveryError, match="invalid_auth") as caught:
        of.send(told(CAP.page()))
    assert "canary" not in caught.value.message + repr(of)


def test_a_test_page_has_no_buttons_that_act(slack: SlackWorkspace) -> None:
    from page_cases import AT

    from driftwatch.receivers.registry import sample_pages

    sender(slack).send(message_of(sample_pages("oncall", AT)[0]))
    (message,) = slack.top(CHANNEL)
    assert line(message).startswith("TEST driftwatch: ")
    assert words(message) == []
