"""Hostile labels in what every receiver sends: no mention, link, tag, header, control."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from html.parser import HTMLParser
from typing import Any

import orjson
import pytest
from made_incidents import with_values
from page_cases import CAP, DRIFT

from driftwatch.notify.terminal import render
from driftwatch.receivers.apprise import job_of
from driftwatch.receivers.email import mail_of
from driftwatch.receivers.sender import message_of
from driftwatch.receivers.slack_blocks import blocks
from driftwatch.settings.receivers import EmailReceiver

AT = datetime(2026, 11, 18, 2, 56, tzinfo=UTC)
PIECES = [
    *("<!channel>", "<!here>", "<@U012AB3CD>", "<https://evil.example|Runbook>", "@everyone"),
    *("*b*", "_u_", "~s~", "`c`", "```", "[x](https://evil.example)", "![x](http://e/x.png)"),
    *(
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "<a href=javascript:1>",
        "&lt;",
    ),
    *("\x1b[2J", "\x1b]8;;http://evil\x07", "\x9b31m", "\x07", "\x00", "\x7f", "\b" * 5),
    *("\u202e", "\u2066", "\u200b", "\u200f", "\ufeff", "\u2028", "\x85"),
    *("\r\nBcc: eve@example.org", "\nSubject: x", "\r\n\r\n", "\r\n.\r\n", "=?utf-8?q?x?="),
    *('"} 1\nfake{x="', "\\", "{{ 7*7 }}", "{% raw %}", "${jndi:ldap://e}", "%s%n", "'; DROP--"),
]
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
HEADERS = {
    *("From", "To", "Date", "Auto-Submitted", "Message-ID", "Subject", "MIME-Version"),
    "Content-Type",
}
TAGS = {"html", "head", "meta", "body", "p", "b", "br", "code", "a", "small"}


def pages(text: str) -> Iterator[dict[str, Any]]:
    """Pages of a cap and of a drift, with the text wherever one comes from outside."""
    for case in (CAP, DRIFT):
        named = case.incident.servers[0].model_copy(update={"instance": text or "host:8000"})
        incident = with_values(
            case.incident,
            labels={name: text or label for name, label in case.incident.labels.items()},
            pool=text or case.incident.pool,
            servers=(named,),
        )
        notes = {"summary": text, "description": text, "runbook_url": text}
        hostile = replace(case, incident=incident, annotations=notes)
        yield hostile.page()
        yield hostile.resolved()


def strings(document: Any) -> Iterator[tuple[str, str]]:
    """(key, text) of every text of a JSON document."""
    if isinstance(document, dict):
        for key, inner in document.items():
            if isinstance(inner, str):
                yield key, inner
            else:
                yield from strings(inner)
    elif isinstance(document, list):
        for inner in document:
            yield from strings(inner)


class Tags(HTMLParser):
    """The elements and links of a letter."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.own: list[tuple[str, str | None]] = []  # attributes that hold nothing from outside
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        if tag in ("meta", "body"):
            self.own += attrs
            return
        self.links += [value or "" for _, value in attrs]


def held_by_slack(page: dict[str, Any]) -> None:
    for key, text in strings(blocks(page)):
        if key == "url":
            assert text.startswith(("http://", "https://")), text
            continue
        rest = re.sub(r"<!date\^\d+\^[^<>]*>", "", text)
        assert "<" not in rest and ">" not in rest, text
        assert not CONTROL.search(text), text


MAIL = EmailReceiver.model_validate(
    {"host": "localhost", "tls": "none", "from": "a@b.example", "to": ["c@d.example"]}
)


def held_by_mail(page: dict[str, Any]) -> None:
    raw = mail_of(message_of(page), MAIL, AT).as_bytes()
    mail = message_from_bytes(raw, EmailMessage, policy=policy.default)
    assert set(mail.keys()) <= HEADERS | {"In-Reply-To", "References"}
    assert mail["To"] == "c@d.example"
    plain, html = mail.get_body(("plain",)), mail.get_body(("html",))
    assert plain is not None and html is not None
    assert not CONTROL.search(plain.get_content().replace("\r\n", "\n"))
    tags = Tags(html.get_content())
    assert tags.names <= TAGS
    assert tags.own == [
        *(("name", "color-scheme"), ("content", "light dark")),
        ("style", "font:16px/1.45 sans-serif;max-width:40em"),
    ]
    assert all(link.startswith(("http://", "https://")) for link in tags.links)


def held_by_apprise(page: dict[str, Any]) -> None:
    job = job_of(message_of(page))
    links = [text for text in page.links.document().values() if text and text.startswith("http")]
    body = job["body"]
    for link in links:
        body = body.replace(link, "")
    for sign in ("<", ">", "@", "](", "`", "*", "://", "|"):
        assert sign not in job["title"] + body, sign
    assert not CONTROL.search(job["title"] + job["body"])


def held_by_terminal(page: dict[str, Any]) -> None:
    text = render(page)
    assert not CONTROL.search(text), text


def held_by_json(page: dict[str, Any]) -> None:
    document = page.document()
    line = orjson.dumps(document)
    assert b"\n" not in line and b"\x1b" not in line
    assert orjson.loads(line).keys() == document.keys()


HOLDERS = (held_by_slack, held_by_mail, held_by_apprise, held_by_terminal, held_by_json)


@pytest.mark.parametrize("holder", HOLDERS)
def test_no_piece_of_the_corpus_acts(holder: Any) -> None:
    for piece in PIECES:
        for page in pages(f"{piece}x {piece}"):
            holder(page)
