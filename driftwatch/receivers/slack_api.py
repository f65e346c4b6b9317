"""Slack's Web API through the bounded way out; JSON and forms as docs.slack.dev has them.

slack-sdk builds the blocks. Its WebClient reads answers without a bound, takes proxies from the
environment and follows redirects, and none of that can be changed through its public interface.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import orjson

from driftwatch.errors import DeliveryError
from driftwatch.receivers.http import HttpAnswer, Limits, exchange, incomplete
from driftwatch.receivers.sender import refusal, retry_after, url_secrets
from driftwatch.receivers.slack_errors import SlackRefusal, code_of
from driftwatch.receivers.slack_pace import PACE, Pace

# a page of conversations.members or of conversations.history
LIMITS = Limits(answer_bytes=1024 * 1024, whole=True)
SCOPES_HEADER = "x-oauth-scopes"
# without a Retry-After, as Slack's own clients
_RETRY_SECONDS = 30.0
# these put something into a channel, and count against its second
_POSTS = frozenset(("chat.postMessage", "chat.update"))


@dataclass(frozen=True, slots=True)
class SlackApi:
    """Calls of one app; every error names the receiver and no token."""

    name: str  # receiver name
    token: str = field(repr=False)  # a bot token, or an app-level token
    url: str  # https://slack.com/api/
    limits: Limits = LIMITS
    pace: Pace = field(default=PACE, repr=False)

    def call(self, method: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Call a method that writes: JSON in and out.

        Raises SlackRefusal: Slack answered that it is not ok; DeliveryError: there was no answer.
        """
        body = orjson.dumps(document)
        channel = str(document.get("channel") or document.get("channel_id") or "")
        return self._call(method, body, "application/json;charset=utf-8", channel)[0]

    def ask(self, method: str, **arguments: str) -> dict[str, Any]:
        """Call a method that reads: these take forms. Raises as above."""
        return self._ask(method, arguments)[0]

    def scopes(self) -> frozenset[str]:
        """What the token may do, as the header of ``auth.test`` names it. Raises as above."""
        headers = self._ask("auth.test", {})[1]
        return frozenset(filter(None, map(str.strip, headers.get(SCOPES_HEADER, "").split(","))))

    def close(self, method: str, channel: str, seconds: float) -> None:
        """Call it no more for so long: it needs a scope that the token lacks."""
        self.pace.close(self._app, method, channel, seconds)

    def is_closed(self, method: str, channel: str) -> bool:
        """Whether it is not to be called now."""
        return self.pace.is_closed(self._app, method, channel)

    @property
    def _app(self) -> str:
        return hashlib.sha256(self.token.encode()).hexdigest()

    def outside(self, url: str, body: bytes, content_type: str) -> None:
        """Post to an address that Slack named, without the token.

        Raises DeliveryError: it was not taken, or the address is not Slack's.
        """
        if not self.is_slack(url):
            text = f"{self.name}: Slack named an address that is not its own; refused"
            raise DeliveryError(text, permanent=True)
        answer = exchange(self.name, url, body, {"Content-Type": content_type}, self.limits)
        if isinstance(answer, HttpAnswer):
            secrets = (*url_secrets(url), self.token)
            failure = refusal(self.name, answer.status, answer.headers, answer.text, secrets)
        else:
            failure = answer
        if failure is not None:
            raise failure

    def is_slack(self, url: str) -> bool:
        """Whether an address is of the API's host, or below its domain, and as safe as that."""
        try:
            own, other = urlsplit(self.url), urlsplit(url)
            host, domain = other.hostname or "", own.hostname or ""
            secure = {"https": ("https", "wss"), "http": ("http", "ws")}[own.scheme]
            usual_port = own.scheme == "http" or other.port in (None, 443)
        except (ValueError, KeyError):
            return False
        same = host == domain or host.endswith(f".{domain}")
        return same and other.scheme in secure and usual_port and other.username is None

    def _ask(
        self, method: str, arguments: Mapping[str, str]
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        form = "application/x-www-form-urlencoded"
        body = urlencode(arguments).encode()
        return self._call(method, body, form, arguments.get("channel", ""))

    def _call(
        self, method: str, body: bytes, content_type: str, channel: str
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        if seconds := self.pace.wait(self._app, method, channel, posts=method in _POSTS):
            raise _closed(self.name, seconds)
        headers = {"Content-Type": content_type, "Authorization": f"Bearer {self.token}"}
        answer = exchange(self.name, urljoin(self.url, method), body, headers, self.limits)
        failure, document = self._outcome(method, answer)
        if failure is None and isinstance(answer, HttpAnswer):
            return document, {name.lower(): text for name, text in answer.headers.items()}
        assert failure is not None  # noqa: S101 - one of the two
        if failure.retry_after_seconds is not None:
            self.pace.close(self._app, method, channel, failure.retry_after_seconds)
        # raised here, outside every handler: a library's error text holds addresses
        raise failure

    def _outcome(
        self, method: str, answer: HttpAnswer | DeliveryError
    ) -> tuple[DeliveryError | None, dict[str, Any]]:
        """What went wrong, and the document."""
        if isinstance(answer, DeliveryError):
            return answer, {}
        document = _object(answer.text)
        if document is not None and answer.status < 300:
            if code_of(document) is None:
                return (None, document) if answer.complete else (incomplete(self.name, answer), {})
            refused = SlackRefusal(self.name, method, document)
            if refused.code in ("ratelimited", "rate_limited"):
                refused.retry_after_seconds = retry_after(answer.headers) or _RETRY_SECONDS
            return refused, {}
        failure = refusal(self.name, answer.status, answer.headers, answer.text, (self.token,))
        if failure is None:
            # a login page or a wrong address answers 200 too
            text = f"{self.name} answered {answer.status} to {method}, but not as Slack does"
            return DeliveryError(text, permanent=answer.complete), {}
        if answer.status == 429:
            return _closed(self.name, failure.retry_after_seconds or _RETRY_SECONDS), {}
        return failure, {}


def _closed(name: str, seconds: float) -> DeliveryError:
    text = f"{name}: Slack takes one message a second and channel; asked to wait {seconds:.0f} s"
    return DeliveryError(text, permanent=False, retry_after_seconds=seconds)


def _object(text: str) -> dict[str, Any] | None:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) and "ok" in document else None
