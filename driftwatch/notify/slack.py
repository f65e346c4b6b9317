"""The page as a Slack message, and its way through an incoming webhook."""

from __future__ import annotations

import logging
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import URLError

from slack_sdk.errors import SlackClientError
from slack_sdk.webhook import WebhookClient, WebhookResponse

from driftwatch.errors import DeliveryError
from driftwatch.notify.body import lines
from driftwatch.notify.delivery import refusal, url_secrets
from driftwatch.notify.guard import AddressRefused, GuardedHTTPConnection, GuardedHTTPSConnection
from driftwatch.notify.line import Line
from driftwatch.notify.numbers import clean, moment
from driftwatch.notify.page_values import Page, evaluated
from driftwatch.notify.report_message import is_report, report_blocks
from driftwatch.notify.webhook import failed
from driftwatch.notify.wording import lead, marked

BODY_LIMIT = 1200
TIMEOUT_SECONDS = 10

_COMMAND_LIMIT = 300
_BUTTONS = (("runbook", "Runbook"), ("driftwatch", "Open"))
# Slack's signs of formatting, by look-alikes: a label must not make bold what follows it. An
# underscore inside a word formats nothing and stays.
_LOOK_ALIKE = str.maketrans({"*": "∗", "~": "∼", "`": "ˋ"})


def blocks(page: Page) -> dict[str, Any]:
    """The message for an incoming webhook: line 1 on top, a short body, commands, links.

    Returns:
        ``text`` (phone preview) and ``blocks``: at most four, the body at most 1,200 characters.
    """
    top = escape(marked(page, lead(page)))
    made: list[dict[str, Any]] = [
        {"type": "section", "text": {"type": "plain_text", "text": top, "emoji": True}}
    ]
    commands = _commands(page)
    body = "\n".join(_shed([_line(page, line) for line in lines(page)], BODY_LIMIT - len(commands)))
    if body:
        made.append({"type": "section", "expand": True, "text": _mrkdwn(body)})
    if commands:
        made.append({"type": "context", "elements": [_mrkdwn(commands)]})
    if buttons := _buttons(page):
        made.append({"type": "actions", "elements": buttons})
    text = harmless(marked(page, page["summary"]))
    return {"text": text, "blocks": made, "unfurl_links": False, "unfurl_media": False}


def escape(text: str) -> str:
    """``& < >`` as Slack wants them: a label can neither mention nor link.

    >>> escape("<!channel> & co")
    '&lt;!channel&gt; &amp; co'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def harmless(text: str) -> str:
    """Escaped, and without a sign that would format the text around it.

    >>> harmless("*a* max_num_seqs _b_")
    '∗a∗ max_num_seqs ˍbˍ'
    """
    shown = text.translate(_LOOK_ALIKE)
    inside = [
        "ˍ" if ch == "_" and not (_is_word(shown, at - 1) and _is_word(shown, at + 1)) else ch
        for at, ch in enumerate(shown)
    ]
    return escape("".join(inside))


def _is_word(text: str, at: int) -> bool:
    return 0 <= at < len(text) and (text[at].isalnum() or text[at] == "_")


def _mrkdwn(text: str) -> dict[str, Any]:
    # verbatim: channel names, mentions and bare addresses in labels stay text
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _line(page: Page, line: Line) -> tuple[int, str]:
    parts = []
    if line.at is not None:
        today = evaluated(page).date()
        same_day = line.at.date() == today
        shown = "{time}" if same_day else "{date_short_pretty} {time}"
        parts.append(f"<!date^{int(line.at.timestamp())}^{shown}|{moment(line.at, today)}>")
    if line.text:
        parts.append(harmless(line.text))
    return line.weight, f"*{line.label}* {'; '.join(parts)}"


def _shed(weighed: list[tuple[int, str]], room: int) -> list[str]:
    """The lines, in order, without the lightest ones that do not fit."""
    kept = list(weighed)
    while kept and sum(len(text) + 1 for _, text in kept) > room:
        kept.remove(min(kept, key=lambda pair: pair[0]))
    return [text for _, text in kept]


def _commands(page: Page) -> str:
    if page["test"] or page["event"] in ("resolved", "verified"):
        return ""
    texts = [page["links"][name] for name in ("ack", "silence", "explain")]
    usable = (clean(text) for text in texts if text and len(text) <= _COMMAND_LIMIT)
    return "\n".join(harmless(text) if "`" in text else f"`{escape(text)}`" for text in usable)


def _buttons(page: Page) -> list[dict[str, Any]]:
    return [
        {
            "type": "button",
            "action_id": f"open_{name}",
            "text": {"type": "plain_text", "text": word},
            "url": page["links"][name],
        }
        for name, word in _BUTTONS
        if page["links"][name] and len(page["links"][name]) <= 3000
    ]


@dataclass(frozen=True, slots=True)
class SlackSender:
    """Posts to an incoming webhook.

    Attributes:
        name: receiver name, the only thing of it that errors print.
        url: the webhook's URL, a secret.
        timeout_seconds: time-out of the connection and of each read.
        allow_link_local: permit link-local and metadata addresses.
    """

    name: str
    url: str = field(repr=False)
    timeout_seconds: int = TIMEOUT_SECONDS
    allow_link_local: bool = False

    def send(self, page: Mapping[str, Any]) -> None:
        """Post the page, or a weekly report, once; retries are the outbox's business.

        Raises:
            DeliveryError: Slack did not take it.
        """
        message = report_blocks(page, harmless) if is_report(page) else blocks(page)
        failure = self._post(message)
        if failure is not None:
            # raised here, outside every handler: a library's error text holds the URL
            raise failure

    def _post(self, message: dict[str, Any]) -> DeliveryError | None:
        client = _Client(
            self.url,
            timeout=self.timeout_seconds,
            retry_handlers=[],
            logger=_silent(),
        )
        client.proxy = None  # the client takes one from the environment
        client.allow_link_local = self.allow_link_local
        try:
            answer = client.send_dict(message)
        except (OSError, HTTPException, SlackClientError, ValueError) as error:
            return _failed(self.name, error)
        failure = refusal(
            self.name, answer.status_code, answer.headers, answer.body, url_secrets(self.url)
        )
        if failure is None and answer.body.strip() != "ok":
            # a login page or a wrong address answers 200 too
            text = f"{self.name} answered {answer.status_code}, but not as Slack does"
            return DeliveryError(text, permanent=True)
        return failure


def _failed(name: str, error: Exception) -> DeliveryError:
    if isinstance(error, URLError) and isinstance(error.reason, Exception):
        error = error.reason
    if isinstance(error, SlackClientError):
        return DeliveryError(f"{name}: its URL is not http(s)", permanent=True)
    if isinstance(error, HTTPException) and not isinstance(error, OSError):
        # http.client.InvalidURL is one; a broken answer is another
        usable = "URL" not in type(error).__name__
        said = "an answer that is not HTTP" if usable else "its URL cannot be used"
        return DeliveryError(f"{name}: {said}", permanent=not usable)
    if isinstance(error, AddressRefused | OSError | ValueError):
        return failed(name, error)
    return DeliveryError(f"{name}: no connection", permanent=False)


def _silent() -> logging.Logger:
    """A logger that drops everything: slack-sdk logs the URL and, at DEBUG, the page."""
    logger = logging.Logger("driftwatch.slack", level=logging.CRITICAL + 1)
    logger.disabled = True
    return logger


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(GuardedHTTPConnection, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(GuardedHTTPSConnection, req)


class _Client(WebhookClient):
    """slack-sdk's client with the connections of ``guard.py``: no redirect, no proxy, a deadline.

    The client has no public seam for them; ``tests/notify/test_slack.py`` fails if this one moves.
    """

    allow_link_local = False

    def _perform_http_request_internal(
        self, url: str, req: urllib.request.Request
    ) -> WebhookResponse:
        handlers: list[Any] = [urllib.request.ProxyHandler({}), _NoRedirect()]
        if not self.allow_link_local:
            handlers += [_Http(), _Https()]
        opener = urllib.request.build_opener(*handlers)
        # file:, ftp: and data: would open too
        if not url.lower().startswith(("http://", "https://")):
            raise SlackClientError
        deadline = time.monotonic() + self.timeout
        with opener.open(req, timeout=self.timeout) as answer:
            said = b""
            while len(said) < 2048 and (part := answer.read1(2048)):
                said += part
                if time.monotonic() > deadline:
                    raise TimeoutError
            return WebhookResponse(
                url=url,
                status_code=answer.status,
                body=said.decode("utf-8", "replace"),
                headers=dict(answer.headers.items()),
            )


__all__ = ["SlackSender", "blocks", "escape", "harmless"]
