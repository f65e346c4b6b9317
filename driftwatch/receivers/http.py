"""The one way out to receivers over HTTP(S): every bound of it, and what an answer means."""

from __future__ import annotations

import logging
import ssl
from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import closing
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import unquote

import orjson

from driftwatch import __version__
from driftwatch.address_guard import REFUSED
from driftwatch.collect.http_session import UNSENDABLE, Answer, Bounds, EndableSession, NoAnswer
from driftwatch.errors import DeliveryError
from driftwatch.numbers import clean, cut
from driftwatch.receivers.sender import LONGEST_RETRY_AFTER_SECONDS
from driftwatch.settings.values import redact

# what it logs holds paths, which are secrets of webhooks
logging.getLogger("urllib3.connectionpool").setLevel(logging.WARNING)

SECONDS, CONNECT_SECONDS = 10.0, 5.0  # of everything together; of the connection to one address
ANSWER_BYTES = 1024 * 1024
JSON = {"Content-Type": "application/json"}
_HEADERS = {"User-Agent": f"driftwatch/{__version__}", "Connection": "close"}
_TRANSIENT = frozenset((408, 425, 429))
_REASON_LIMIT = 120


def post(
    name: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str] = JSON,
    secrets: Iterable[str] = (),
    seconds: float = SECONDS,
    method: str = "POST",
) -> Answer:
    """Ask once; returns the answer where its status is 2xx.

    ``name``: of the receiver, the only thing of it that an error prints; ``secrets``: what no
    error may hold besides the ``url``.

    Raises DeliveryError: there was none, or of another status.
    """
    hidden = (*url_secrets(url), *secrets)
    answer = exchange(name, method, url, body, headers, hidden, seconds)
    if 200 <= answer.status < 300:
        return answer
    raise refusal(name, answer, hidden)


def exchange(
    name: str,
    method: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    secrets: Iterable[str],
    seconds: float = SECONDS,
) -> Answer:
    """The answer, whatever its status; no redirect, no proxy, no password from the environment.

    Raises DeliveryError: there was none. It is raised outside every handler: the text of a
    library's error, which would be its context, holds the URL.
    """
    bounds = Bounds(CONNECT_SECONDS, seconds, seconds, ANSWER_BYTES)
    with closing(EndableSession(_trusted())) as session:
        try:
            given = {**_HEADERS, **headers}
            return session.exchange(method, url, bounds, data=body, headers=given)
        except NoAnswer as error:
            reason = redact(str(error), secrets)
    raise DeliveryError(f"{name}: {reason}", permanent=reason in (REFUSED, UNSENDABLE))


@cache
def _trusted() -> ssl.SSLContext:
    """What the machine trusts (``SSL_CERT_FILE`` counts); requests adds Mozilla's list."""
    return ssl.create_default_context()


def json_of(answer: Answer, name: str, service: str) -> dict[str, Any]:
    """The answer of ``service`` as a JSON object; ``name``: of the receiver.

    Raises DeliveryError: it is none.
    """
    try:
        document = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        document = None
    if isinstance(document, dict):
        return document
    raise unexpected(answer, name, service)


def unexpected(answer: Answer, name: str, service: str) -> DeliveryError:
    """What a 2xx means that ``service`` does not give.

    A page of HTML comes from something else at that address: trying again cannot help. Any other
    answer may have been one: the same message is sent again.
    """
    is_page = answer.body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")
    return DeliveryError(f"{name} answered, but not as {service} does", permanent=is_page)


def refusal(name: str, answer: Answer, secrets: Iterable[str]) -> DeliveryError:
    """What an answer means that is no 2xx; its text is the receiver's own reason."""
    status = answer.status
    if 300 <= status < 400:
        text = f"{name} answered {status}: redirects are not followed"
        return DeliveryError(text, permanent=True)
    text = answer.body.decode(errors="replace").strip()
    reason = cut(clean(redact(text, secrets)), _REASON_LIMIT)
    text = f"{name} answered {status}" + (f": {reason}" if reason else "")
    transient = status in _TRANSIENT or status >= 500
    wish = retry_after(answer.headers) if transient else None
    return DeliveryError(text, permanent=not transient, retry_after_seconds=wish)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a ``Retry-After`` header, None without a usable one.

    A date counts from the answer's own ``Date``, not from this machine's clock.

    >>> retry_after({"retry-after": "30"}), retry_after({"Retry-After": "soon"})
    (30.0, None)
    """
    fields = {name.lower(): text for name, text in headers.items()}
    text = fields.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), LONGEST_RETRY_AFTER_SECONDS)
    try:
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(fields.get("date", ""))
    except (ValueError, TypeError):
        return None
    return min(max(0.0, wait.total_seconds()), LONGEST_RETRY_AFTER_SECONDS)


def url_secrets(url: str) -> tuple[str, ...]:
    """The parts of a receiver's URL that give it away: all of it, what follows the host, and a
    login in each way in which it is written.
    """
    rest = url.split("://", 1)[-1]
    host, slash, path = rest.partition("/")
    login = host.rpartition("@")[0]
    parts = [url, rest, slash + path, path, login, *login_secrets(unquote(login))]
    return tuple(part for part in parts if len(part) > 3)


def login_secrets(login: str) -> tuple[str, str, str]:
    """``user:password``, the password, and how a header of HTTP has them."""
    return login, login.partition(":")[2], b64encode(login.encode()).decode()
