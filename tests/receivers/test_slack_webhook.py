"""Slack: what is sent, and what becomes of each of Slack's answers."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fakes.slack_server import TOKEN_PATH, SlackServer
from page_cases import AT, BUDGET, CAP, CASES, Case, case

from driftwatch.errors import DeliveryError
from driftwatch.model import Reason
from driftwatch.notify.headline import marked
from driftwatch.receivers.http import Limits
from driftwatch.receivers.registry import sample_pages
from driftwatch.receivers.sender import message_of
from driftwatch.receivers.slack import SlackSender
from driftwatch.receivers.slack_blocks import BODY_LIMIT, blocks

CANARY = "canary-slack-token"


@pytest.fixture
def slack() -> Iterator[SlackServer]:
    with SlackServer() as server:
        yield server


def sender(server: SlackServer, **rest: Any) -> SlackSender:
    return SlackSender("oncall", server.url, **rest)


def refused(of: SlackSender, page: dict[str, Any] | None = None) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        of.send(message_of(CAP.page() if page is None else page))
    error = caught.value
    told = "".join(traceback.format_exception(error)) + repr(error) + repr(of)
    assert CANARY not in told
    assert error.__context__ is None
    assert error.__cause__ is None
    return error


def body_texts(message: dict[str, Any]) -> list[str]:
    found = []
    for block in message["blocks"][1:]:
        if block["type"] == "section":
            found.append(block["text"]["text"])
        elif block["type"] == "context":
            found += [element["text"] for element in block["elements"]]
    return found


@pytest.mark.parametrize("name", CASES)
def test_slack_takes_every_page(slack: SlackServer, name: str) -> None:
    for page in (CASES[name].page(), CASES[name].resolved()):
        sender(slack).send(message_of(page))
        taken = slack.accepted[-1]
        assert taken.payload["text"] == marked(page, page.summary)
        assert taken.mentions == ()
        assert len(body_texts(dict(taken.payload))[0]) <= BODY_LIMIT
    assert len(slack.requests) == 2


def test_the_mark_is_slacks_alone_and_fits_a_phone() -> None:
    for name in CASES:
        for page in (CASES[name].page(), CASES[name].resolved()):
            text = blocks(page)["text"]
            assert len(text) <= 120
            assert not re.search("[🔴🟠✅⚪]", page.summary)
            marks = {"FIRING": "🔴", "RESOLVED": "✅", "CLOSED": "⚪"}
            wanted = marks.get(page.summary.split()[0], "")
            assert re.findall("[🔴🟠✅⚪]", text) == [*wanted]


def test_slack_takes_the_test_page(slack: SlackServer) -> None:
    sender(slack).send(message_of(sample_pages("oncall", AT)[0]))
    assert slack.accepted[0].payload["text"].startswith("TEST driftwatch: a test page for oncall")


def test_the_reader_sees_times_on_the_own_clock() -> None:
    body = body_texts(blocks(BUDGET.page()))[0]
    assert body.startswith("*Since* <!date^1794969900^{time}|02:45 UTC>: prompts grew ×2.3 ")
    later = replace(BUDGET, incident=replace(BUDGET.incident, started_at=AT.replace(day=16)))
    body = body_texts(blocks(later.page()))[0]
    assert "^{date_short_pretty} {time}|2026-11-16 02:56 UTC>" in body


def test_links_are_buttons_and_the_rest_are_commands() -> None:
    message = blocks(CAP.page())
    buttons = message["blocks"][-1]["elements"]
    assert [b["url"] for b in buttons] == [
        "https://driftwatch.example.net/incidents/3f9c1a7be204",
        "https://wiki.example.net/vllm/batch-limit",
    ]
    assert "`driftwatch ack 3f9c1a7be204`" in body_texts(message)[-1]
    assert all(b["type"] != "actions" for b in blocks(BUDGET.page())["blocks"])


EVIL = [
    "<!channel>",
    "<!here> & <@U012AB3CD>",
    "*bold* _it_ ~no~ `code` ```block```",
    "a`b",
    "<https://evil.example|login>",
    "&lt;!channel&gt;",
    "line\nbreak\r\n*Wrong if* nothing",
    "\u202eedoc\u200b",
    "x" * 500,
    "<" * 400,
]


def _named(text: str) -> Case:
    target = {"instance": text, "engine": "0", "pool": text, "model_name": text}
    made = case("BatchLimitBinding", "page", CAP.finding.evidence, labels=target)
    assert CAP.finding.advice is not None
    words = {"reason": Reason("other", text), "undo": text, "wrong_if": text, "price": (text,)}
    evil = CAP.finding.advice.model_copy(update=words)
    diagnosis = replace(CAP.finding.diagnosis, advice=text, meaning=text)  # type: ignore[type-var]
    finding = replace(made.finding, advice=evil, diagnosis=diagnosis)
    return replace(made, finding=finding)


@pytest.mark.parametrize("text", EVIL)
def test_a_label_can_neither_mention_nor_link_nor_format(slack: SlackServer, text: str) -> None:
    page = _named(text).page()
    sender(slack).send(message_of(page))
    taken = slack.accepted[0]
    assert taken.mentions == ()
    for part in [taken.payload["text"], *body_texts(dict(taken.payload))]:
        opened = re.findall(r"<[^>]*>?", part)
        assert all(re.fullmatch(r"<!date\^\d+\^[^>]*>", one) for one in opened), opened
        for line in part.split("\n"):
            if line.startswith("`"):
                assert line.count("`") == 2
                continue
            label = re.match(r"\*[A-Z][a-z ]+:?\* ", line)
            rest = line[label.end() :] if label else line
            assert not set(rest) & set("*~`"), rest
            assert not re.search(r"(?<!\w)_|_(?!\w)", rest), rest
    assert slack.requests[0].body.count(b"<!channel>") == 0


def test_a_long_body_loses_its_lightest_lines_first() -> None:
    words = "a reason of many words that goes on and on " * 8
    page = _named(words).page()
    body = body_texts(blocks(page))
    assert sum(map(len, body)) <= BODY_LIMIT
    assert body[0].startswith("*Since*")
    assert "*Cost*" in body[0]
    assert "*Why*" not in body[0]


@pytest.mark.parametrize(
    ("status", "body", "permanent"),
    [
        (400, "invalid_payload", True),
        (403, "action_prohibited", True),
        (404, "no_service", True),
        (410, "channel_is_archived", True),
        (302, "", True),
        (307, "", True),
        (408, "", False),
        (500, "rollup_error", False),
        (503, "", False),
    ],
)
def test_what_an_answer_means(slack: SlackServer, status: int, body: str, permanent: bool) -> None:
    slack.fail_next(status, body, Location="http://127.0.0.1:1/elsewhere")
    error = refused(sender(slack))
    assert error.permanent is permanent
    assert str(status) in error.message
    assert body in error.message
    assert len(slack.requests) == 1


def test_too_many_requests_names_the_time(slack: SlackServer) -> None:
    slack.fail_next(429, "rate_limited", Retry_After="30")
    error = refused(sender(slack))
    assert (error.permanent, error.retry_after_seconds) == (False, 30.0)
    assert len(slack.requests) == 1


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        ({"Retry_After": "Wed, 18 Nov 2026 03:00:40 GMT", "Date": "nonsense"}, None),
        ({"Retry_After": "soon"}, None),
        ({"Retry_After": "-5"}, None),
        ({"Retry_After": "99999999999999999"}, 3600.0),
        ({}, None),
    ],
)
def test_odd_retry_after(slack: SlackServer, sent: dict[str, str], seconds: float | None) -> None:
    slack.fail_next(429, **sent)
    assert refused(sender(slack)).retry_after_seconds == seconds


def test_a_redirect_is_not_followed(slack: SlackServer) -> None:
    with SlackServer() as other:
        for status in (301, 302, 303, 307, 308):
            slack.fail_next(status, Location=other.url)
            assert "redirects are not followed" in refused(sender(slack)).message
        assert other.requests == []


def test_no_answer_is_a_time_out(slack: SlackServer) -> None:
    slack.hang_next()
    error = refused(sender(slack, limits=Limits(seconds=1.0, whole=True)))
    assert error.permanent is False
    assert error.message == "oncall: no answer within 1 s"


def test_nobody_there() -> None:
    with SlackServer() as server:
        url = server.url
    error = refused(SlackSender("oncall", url))
    assert (error.message, error.permanent) == ("oncall: connection refused", False)


def test_another_token(slack: SlackServer) -> None:
    wrong = SlackSender("oncall", slack.url + "x")
    assert refused(wrong).message == "oncall answered 403: invalid_token"


def test_a_page_that_is_not_slack(slack: SlackServer) -> None:
    slack.fail_next(200, "<html>please log in</html>")
    error = refused(sender(slack))
    assert error.permanent is True
    assert "not as Slack does" in error.message


def test_an_answer_that_repeats_the_secret(slack: SlackServer) -> None:
    slack.fail_next(404, f"nothing at {TOKEN_PATH} ({slack.url})")
    assert "<secret>" in refused(sender(slack)).message


@pytest.mark.parametrize(
    "url",
    [
        f"ftp://host/{CANARY}",
        f"file:///etc/{CANARY}",
        CANARY,
        f"http://host:99999/{CANARY}",
        f"http://127.0.0.1:1/{CANARY} x\n",
        f"http://[::1/{CANARY}",
    ],
)
def test_a_url_that_is_none(url: str) -> None:
    assert refused(SlackSender("oncall", url)).message.startswith("oncall: ")


def test_a_metadata_address_is_refused() -> None:
    error = refused(SlackSender("oncall", f"http://169.254.169.254/{CANARY}"))
    assert error.permanent is True
    assert "refused" in error.message


def test_the_environment_sets_no_proxy(slack: SlackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    sender(slack).send(message_of(CAP.page()))
    assert len(slack.accepted) == 1


def test_nothing_is_logged(slack: SlackServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sender(slack).send(message_of(CAP.page()))
    slack.fail_next(500)
    refused(sender(slack))
    assert caplog.records == []
