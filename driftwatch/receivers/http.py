"""The one way out to receivers over HTTP(S), and every bound of it; on requests.

No redirect, no proxy, no password from the environment, no link-local or metadata address. Bounded
are the seconds of everything together and the bytes of the answer that are read.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

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
    """An answer of any status."""

    status: int
    headers: Mapping[str, str]  # names in any case
    text: str  # its beginning, as much as the limits take in
    complete: bool  # whether that is all of it


def post(
    name: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    limits: Limits = LIMITS,
    allow_link_local: bool = False,
    secrets: tuple[str, ...] = (),
    method: str = "POST",
) -> str | DeliveryError:
    """Ask once; returns the answer's text where the status is 2xx, else what went wrong.

    ``name``: of the receiver, the only thing of it that an error prints; ``allow_link_local``:
    permit link-local and metadata addresses; ``secrets``: what no error may hold besides the
    ``url``. An error is returned and not raised: its context would hold the URL.
    """
    answer = exchange(name, url, body, headers, limits, allow_link_local, method)
    if isinstance(answer, DeliveryError):
        return answer
    hidden = (*url_secrets(url), *secrets)
    failure = refusal(name, answer.status, answer.headers, answer.text, hidden)
    if failure is None and limits.whole and not answer.complete:
        return incomplete(name, answer)
    return answer.text if failure is None else failure


def incomplete(name: str, answer: HttpAnswer) -> DeliveryError:
    """Of an answer whose whole text is needed, and that is longer or broke off."""
    reason = f"{name} answered {answer.status}, but its answer broke off or is too long"
    return DeliveryError(reason, permanent=False)


def exchange(
    name: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    limits: Limits = LIMITS,
    allow_link_local: bool = False,
    method: str = "POST",
) -> HttpAnswer | DeliveryError:
    """Ask once; returns the answer, whatever its status, or why there is none.

    Arguments as of :func:`post`; the answer's text may repeat the URL.
    """
    with _ending_session(limits.seconds, allow_link_local) as session:
        try:
            with session.request(
                method,
                url,
                data=body,
                headers={**_HEADERS, **headers},
                stream=True,
                allow_redirects=False,
                timeout=(limits.connect_seconds, limits.seconds),
            ) as response:
                if session.aborted:  # headers that break off look whole
                    raise TimeoutError
                content, complete = _content(response, limits)
        except _NO_URL:
            return DeliveryError(f"{name}: its URL cannot be used", permanent=True)
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            in_time = f"no answer within {limits.seconds:g} s"
            reason = why_failed(error, limits.connect_seconds, in_time)
            reason = in_time if session.aborted else redact(reason, url_secrets(url))
            return DeliveryError(f"{name}: {reason}", permanent=reason == REFUSED)
        # an answer without a length looks complete when its connection is shut
        complete = complete and not session.aborted
    text = content.decode(errors="replace")
    return HttpAnswer(response.status_code, response.headers, text, complete)


def _content(response: requests.Response, limits: Limits) -> tuple[bytes, bool]:
    """The beginning of an answer, and whether that is all of it."""
    most = limits.answer_bytes
    try:
        content: bytes = response.raw.read(most + 1, decode_content=False)
        return content[:most], len(content) <= most and not response.raw.length_remaining
    except (HTTPError, OSError, ValueError):
        return b"", False  # the status has come


@contextmanager
def _ending_session(seconds: float, allow_link_local: bool) -> Iterator[EndableSession]:
    """A session whose exchange is ended after so many seconds, in whatever phase it is."""
    session = EndableSession(_trusted(), allow_link_local=allow_link_local)
    deadline = threading.Timer(seconds, session.abort)
    deadline.daemon = True
    deadline.start()
    try:
        yield session
    finally:
        deadline.cancel()
        session.close()


@cache
def _trusted() -> ssl.SSLContext:
    """What the machine trusts (``SSL_CERT_FILE`` counts); requests adds Mozilla's list."""
    return ssl.create_default_context()
