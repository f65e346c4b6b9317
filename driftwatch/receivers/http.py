"""The one way out to receivers over HTTP(S): every bound of the outside is here.

No redirect, no proxy, no password from the environment, no link-local or metadata address. Bounded
are the time in total (name, connection, handshake, headers, body) and the bytes that come in.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import NamedTuple
from urllib.parse import unquote

from urllib3.exceptions import LocationParseError
from urllib3.util import Url, make_headers, parse_url

from driftwatch import __version__
from driftwatch.address_guard import REFUSED, AddressRefused
from driftwatch.errors import DeliveryError
from driftwatch.receivers.bounded_socket import Bounds, TooManyBytes, open_socket, with_tls
from driftwatch.receivers.sender import refusal, url_secrets

# of all headers of an answer together; Slack, PagerDuty and Cloudflare send 1 to 3 KiB
HEADER_BYTES = 32 * 1024
# chunk sizes and trailers come in beside the text
_FRAMING_BYTES = 16 * 1024
_PORTS = {"http": 80, "https": 443}


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
    headers: Mapping[str, str]
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
    hidden = (*url_secrets(url), *url_secrets(parse_url(url).url), *secrets)
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
    try:
        parts = parse_url(url)
    except LocationParseError:
        parts = Url()
    if parts.scheme not in _PORTS or not parts.host:
        return DeliveryError(f"{name}: its URL is not http(s)", permanent=True)
    bounds = Bounds(limits.seconds, HEADER_BYTES + limits.answer_bytes + _FRAMING_BYTES)
    try:
        connection = _connection(parts, bounds, limits, allow_link_local)
        with closing(connection):
            bounds.missing = "it does not read"
            connection.request(method, parts.request_uri, body, _headers(parts, headers))
            bounds.missing = "no answer"
            answer = connection.getresponse()
            with closing(answer):
                text, complete = _text(answer, limits)
    except (OSError, HTTPException, ValueError) as error:
        return _failed(name, error, bounds.missing)
    fields = {field: ", ".join(answer.headers.get_all(field, ())) for field in answer.headers}
    return HttpAnswer(answer.status, fields, text, complete)


def _connection(
    parts: Url, bounds: Bounds, limits: Limits, allow_link_local: bool
) -> HTTPConnection:
    """A connection that is open; TLS where the URL says so."""
    host = (parts.host or "").strip("[]")
    port = parts.port or _PORTS[parts.scheme or "http"]
    opened = open_socket(
        host, port, bounds, limits.connect_seconds, allow_link_local=allow_link_local
    )
    connection = HTTPConnection(host, port)
    connection.sock = opened
    if parts.scheme == "https":
        try:
            connection.sock = with_tls(opened, host)
        except BaseException:
            opened.close()
            raise
    return connection


def _headers(parts: Url, headers: Mapping[str, str]) -> dict[str, str]:
    """What is sent besides the caller's own; a password in the URL is sent as one."""
    default = {"Host": parts.netloc or "", "User-Agent": f"driftwatch/{__version__}"}
    if parts.auth is not None:
        default["Authorization"] = make_headers(basic_auth=unquote(parts.auth))["authorization"]
    return {**default, **headers, "Connection": "close"}


def _text(answer: HTTPResponse, limits: Limits) -> tuple[str, bool]:
    """The beginning of an answer's text, and whether that is all of it."""
    content, most, length = b"", limits.answer_bytes, answer.length
    complete = length == 0
    try:
        while len(content) <= most and not complete:
            # of a known length nothing is asked for beyond it: the peer may keep the line open
            remaining = most + 1 if length is None else length
            part = answer.read1(min(most + 1, remaining) - len(content))
            content += part
            complete = not part if length is None else len(content) == length
            if not part:
                break
    except (OSError, HTTPException, ValueError):
        pass  # the status has come, and so has what stands before
    return content[:most].decode(errors="replace"), complete and len(content) <= most


def _failed(name: str, error: Exception, missing: str) -> DeliveryError:
    """What an exception means for the message; its text is never used, it may hold the URL."""
    if isinstance(error, AddressRefused):
        text = f"{name}: {REFUSED}"
        return DeliveryError(text, permanent=True)
    if isinstance(error, TimeoutError):
        return DeliveryError(f"{name}: timed out: {missing}", permanent=False)
    if isinstance(error, ssl.SSLCertVerificationError):
        why = _CERTIFICATE.get(error.verify_code, "it is not trusted")
        text = f"{name}: its certificate was not accepted: {why}"
        return DeliveryError(text, permanent=False)
    if isinstance(error, ssl.SSLError):
        return DeliveryError(f"{name}: no TLS", permanent=False)
    if isinstance(error, TooManyBytes):
        return DeliveryError(f"{name}: the headers of its answer are too long", permanent=False)
    if isinstance(error, OSError):
        return DeliveryError(f"{name}: {missing}", permanent=False)
    if isinstance(error, HTTPException):
        text = f"{name}: its answer is no HTTP, or has too many headers"
        return DeliveryError(text, permanent=False)
    return DeliveryError(f"{name}: its URL cannot be used", permanent=True)


# OpenSSL's X509_V_ERR_* (x509_vfy.h) in words
_CERTIFICATE = {
    9: "it is not valid yet",
    10: "it has expired",
    18: "it is self-signed",
    19: "its chain ends in a self-signed one",
    20: "its issuer is not known",
    62: "it is another host's",
    64: "it is another host's",
}
