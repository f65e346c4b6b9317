"""The one way out to receivers over HTTP(S), and every bound of it; on requests.

No redirect, no proxy, no password from the environment, no link-local or metadata address. Bounded
are the seconds of everything together and the bytes of the answer that are read.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import orjson
import requests
from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema
from urllib3.exceptions import HTTPError, LocationParseError

from driftwatch import __version__
from driftwatch.address_guard import REFUSED
from driftwatch.collect.http_session import EndableSession, why_failed
from driftwatch.errors import DeliveryError
from driftwatch.receivers.sender import refusal, url_secrets
from driftwatch.settings.values import redact

# what it logs holds paths, which are secrets of webhooks
logging.getLogger("urllib3.connectionpool").setLevel(logging.WARNING)

JSON = {"Content-Type": "application/json"}
_NO_URL = (InvalidSchema, InvalidURL, MissingSchema, LocationParseError, UnicodeError)
_HEADERS = {"User-Agent": f"driftwatch/{__version__}", "Connection": "close"}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one exchange may take."""

    seconds: float = 10.0  # of everything together
    connect_seconds: float = 5.0  # of the connection to one address
    answer_bytes: int = 2048  # of the answer's text; more is not read
    # the caller needs the whole text: an answer that is longer or breaks off is a failure. Else a
    # status of 2xx says that the message was taken, whatever becomes of the text.
    whole: bool = False


LIMITS = Limits()


class HttpAnswer(NamedTuple):
    """An answer."""

    status: int
    headers: Mapping[str, str]  # names in any case
    text: str  # its beginning, as much as the limits take in
    complete: bool  # whether that is all of it

    def json(self, name: str, service: str) -> dict[str, Any]:
        """The answer of ``service`` as a JSON object; ``name``: of the receiver.

        Raises DeliveryError: it is none.
        """
        try:
            document = orjson.loads(self.text)
        except orjson.JSONDecodeError:
            document = None
        if isinstance(document, dict):
            return document
        raise self.unexpected(name, service)

    def unexpected(self, name: str, service: str) -> DeliveryError:
        """What a 2xx means that ``service`` does not give.

        A page of HTML comes from something else at that address: trying again cannot help. An
        answer that is empty or breaks off may have been one: the same message is sent again.
        """
        is_page = self.text.lstrip("\ufeff \t\r\n").startswith("<")
        return DeliveryError(f"{name} answered, but not as {service} does", permanent=is_page)


def post(
    name: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    limits: Limits = LIMITS,
    secrets: tuple[str, ...] = (),
    method: str = "POST",
) -> HttpAnswer:
    """Ask once; returns the answer where its status is 2xx.

    ``name``: of the receiver, the only thing of it that an error prints; ``secrets``: what
    no error may hold besides the ``url``.

    Raises DeliveryError: there was none, or of another status. It is raised outside every handler:
    the text of a library's error, which would be its context, holds the URL.
    """
    hidden = (*url_secrets(url), *secrets)
    asked = (name, url, body, {**_HEADERS, **headers}, limits, method)
    answer = _exchange(*asked, hidden)
    failure = refusal(name, answer.status, answer.headers, answer.text, hidden)
    if failure is not None:
        raise failure
    if limits.whole and not answer.complete:
        reason = f"{name} answered {answer.status}, but its answer broke off or is too long"
        raise DeliveryError(reason, permanent=False)
    return answer


def _exchange(
    name: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    limits: Limits,
    method: str,
    hidden: tuple[str, ...],
) -> HttpAnswer:
    """The answer, whatever its status; the exchange is ended at its time in whatever phase."""
    session = EndableSession(_trusted())
    deadline = threading.Timer(limits.seconds, session.abort)
    deadline.daemon = True
    deadline.start()
    times = (limits.connect_seconds, limits.seconds)
    asked: dict[str, Any] = {"data": body, "headers": headers, "timeout": times, "stream": True}
    try:
        with session.request(method, url, allow_redirects=False, **asked) as response:
            if session.aborted:  # headers that break off look whole
                raise TimeoutError
            content, complete = _content(response, limits)
        # an answer without a length looks complete when its connection is shut
        complete = complete and not session.aborted
        text = content.decode(errors="replace")
        return HttpAnswer(response.status_code, response.headers, text, complete)
    except _NO_URL:
        failure = DeliveryError(f"{name}: its URL cannot be used", permanent=True)
    except (requests.RequestException, HTTPError, OSError, ValueError) as error:
        in_time = f"no answer within {limits.seconds:g} s"
        reason = why_failed(error, limits.connect_seconds, in_time)
        reason = in_time if session.aborted else redact(reason, hidden)
        failure = DeliveryError(f"{name}: {reason}", permanent=reason == REFUSED)
    finally:
        deadline.cancel()
        session.close()
    raise failure


def _content(response: requests.Response, limits: Limits) -> tuple[bytes, bool]:
    """The beginning of an answer, and whether that is all of it."""
    most = limits.answer_bytes
    try:
        content: bytes = response.raw.read(most + 1, decode_content=False)
        return content[:most], len(content) <= most and not response.raw.length_remaining
    except (HTTPError, OSError, ValueError):
        return b"", False  # the status has come


@cache
def _trusted() -> ssl.SSLContext:
    """What the machine trusts (``SSL_CERT_FILE`` counts); requests adds Mozilla's list."""
    return ssl.create_default_context()
