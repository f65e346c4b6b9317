"""The HTTP side of a Prometheus API, with every bound the client library leaves out.

``PrometheusConnect`` takes this session as its own. It has no default time-out, puts the query in
the URL even of a POST, follows redirects, reads any amount, drops ``warnings`` and raises one
exception for everything; here each failure is one of :mod:`driftwatch.errors`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import requests
from requests.exceptions import InvalidHeader, InvalidSchema, InvalidURL, MissingSchema
from urllib3.exceptions import HTTPError

from driftwatch.collect.http_session import EndableSession, why_failed
from driftwatch.collect.prometheus.answer import cut
from driftwatch.collect.prometheus.answer import parsed as parsed_json
from driftwatch.errors import (
    AuthFailed,
    BadPage,
    BadQuery,
    SourceError,
    TooExpensive,
    Unavailable,
)

# a histogram of 10,000 servers at one time has 60 MB; it is never held at once
MAX_BODY_BYTES = 256 * 2**20

_CHUNK_BYTES = 2**20
_ERROR_BODY_BYTES = 64 * 1024  # of an error answer: enough for its message
_TOLD_CHARACTERS = 500

UNSENDABLE = "the address, the credentials or a header cannot be sent as they are"

_NOT_SENT = (InvalidHeader, InvalidSchema, InvalidURL, MissingSchema, UnicodeError)

_QUERIES = ("query_range", "query")  # the other endpoints answer with ``data`` of their own

# Prometheus, Thanos and Mimir say in words that a question is too large
_TOO_MUCH = (
    "exceeded maximum resolution",
    "too many samples",
    "exceeded max",
    "max samples",
    "exceeds the limit",
    "exceeded the limit",
    "exceeds the maximum",
    "exceeded the maximum",
    "err-mimir-max",
    "query timed out",
)


class CheckedResponse(requests.Response):
    """A response whose JSON was parsed once, and checked."""

    parsed: Mapping[str, Any]

    def json(self, **kwargs: Any) -> Any:
        """The parsed answer."""
        return self.parsed


class PrometheusSession(EndableSession):
    """One API server: bounded requests, no redirects, no retries, nothing from the environment.

    One request at a time. ``warnings`` holds what the last answer warned of; ``date`` the server's
    time of it, None where it did not say; ``result_type`` what kind of result a query had.

    ``total_seconds``: for one request from its start to the last byte, however it drips;
    ``body_bytes``: largest answer that is read, unpacked; ``verify``: check TLS certificates: True,
    or a file of authorities.
    """

    def __init__(
        self,
        *,
        connect_seconds: float = 3.0,
        total_seconds: float = 15.0,
        body_bytes: int = MAX_BODY_BYTES,
        verify: bool | str = True,
    ) -> None:
        super().__init__()
        self.verify = verify
        self.headers["Accept"] = "application/json"
        self.warnings: tuple[str, ...] = ()
        self.date: datetime | None = None
        self.result_type: object = None
        self._connect_seconds = min(connect_seconds, total_seconds)
        self._total_seconds = total_seconds
        self._body_bytes = body_bytes
        self._post_refused = False
        self._closed = False

    def request(self, method: str, url: str, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        """One request; the parameters of a POST go into its body.

        A server that takes no POST is asked by GET from then on.

        Raises Unavailable: no connection, no complete answer in time, 429, 5xx; AuthFailed: 401,
        403; BadQuery: 400, 422 and any other refusal of the question; TooExpensive: refused as too
        much, or an answer over the byte limit; BadPage: a redirect, HTML, or anything else than a
        Prometheus answer.
        """
        self.warnings = ()
        deadline = time.monotonic() + self._total_seconds
        kwargs |= {
            "allow_redirects": False,
            "stream": True,
            "timeout": (self._connect_seconds, self._total_seconds),
        }
        params = kwargs.pop("params", None)
        if method == "POST" and not self._post_refused:
            answer = self._bounded(deadline, method, url, data=params, **kwargs)
            if answer.status_code != 405:
                return self._checked(answer, url)
            self._post_refused = True
        answer = self._bounded(deadline, "GET", url, params=params, **kwargs)
        return self._checked(answer, url)

    def close(self) -> None:
        """End the request that is under way, refuse further ones, give back the connection."""
        self._closed = True
        self.abort()
        super().close()

    def _bounded(self, deadline: float, method: str, url: str, **kwargs: Any) -> CheckedResponse:
        """A request and its body, ended from outside when its time is over."""
        if self._closed:
            raise Unavailable("closed")
        self.aborted = False
        # a socket's own time-out starts again with every byte that drips in
        watch = threading.Timer(max(0.0, deadline - time.monotonic()), self.abort)
        watch.daemon = True
        watch.start()
        try:
            with super().request(method, url, **kwargs) as response:
                answer = CheckedResponse()
                answer.__dict__.update(response.__dict__)
                ok = response.status_code == 200
                answer._content = self._body(response, self._body_bytes if ok else None)
        except _NOT_SENT:  # their texts hold the header or the address, secrets and all
            raise Unavailable(UNSENDABLE) from None
        except (requests.RequestException, HTTPError, OSError) as error:
            late = f"no complete answer within {self._total_seconds:g} s"
            why = late if self.aborted else why_failed(error, self._connect_seconds, late)
            raise Unavailable(why) from error
        finally:
            watch.cancel()
            watch.join()  # one that fired late must not end the next request
        if self.aborted:  # an answer without a length looks complete when it is ended
            raise Unavailable(f"no complete answer within {self._total_seconds:g} s")
        return answer

    def _body(self, response: requests.Response, limit: int | None) -> bytes:
        """The body up to ``limit`` bytes; None: the start of an error's, whatever follows."""
        length = response.headers.get("Content-Length", "")
        if limit is not None and length.isdecimal() and len(length) < 20 and int(length) > limit:
            raise TooExpensive(f"the answer has {length} bytes, more than {limit}")
        pieces: list[bytes] = []
        size = 0
        for piece in response.iter_content(_CHUNK_BYTES):
            size += len(piece)
            pieces.append(piece)
            if limit is None and size >= _ERROR_BODY_BYTES:
                break
            if limit is not None and size > limit:
                raise TooExpensive(f"the answer is larger than {limit} bytes")
        return b"".join(pieces)

    def _checked(self, answer: CheckedResponse, url: str) -> CheckedResponse:
        status = answer.status_code
        if 300 <= status < 400:
            to = answer.headers.get("Location", "nowhere")
            raise BadPage(f"answers {status}, a redirect to {to[:200]}, which is not followed")
        self.date = _date(answer.headers.get("Date"))
        found = cut(answer.content) if status == 200 else None
        parsed = parsed_json(answer.content if found is None else found[0])
        if status != 200:
            raise _refusal(status, parsed, answer.content)
        if not isinstance(parsed, dict):
            start = answer.content[:60].decode("utf-8", "replace")
            raise BadPage(f"no JSON from Prometheus, or cut off: it starts with {start!r}")
        if parsed.get("status") != "success":
            raise BadQuery(_error_text(parsed) or "answers without status success")
        data = parsed.get("data")
        if _endpoint(url) not in _QUERIES:
            if data is None:
                raise BadPage("JSON, but not a Prometheus answer: it has no data")
        elif not isinstance(data, dict) or not isinstance(data.get("result"), list):
            raise BadPage("JSON, but not a query answer: it has no data.result")
        else:
            self.result_type = data.get("resultType")
            if found is not None:
                data["result"] = found[1]
        warnings = parsed.get("warnings") or []
        listed = warnings if isinstance(warnings, list) else [warnings]
        if parsed.get("isPartial") is True:  # as VictoriaMetrics says it
            listed = [*listed, "isPartial: some of its storage did not answer"]
        self.warnings = tuple(str(w)[:_TOLD_CHARACTERS] for w in listed)
        answer.parsed = parsed
        return answer


def _date(text: str | None) -> datetime | None:
    """A time as headers write it; None where it is none."""
    try:
        return parsedate_to_datetime(text or "").astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return None


def _refusal(status: int, parsed: object, body: bytes) -> SourceError:
    """The error that an answer without 200 stands for, with what its body says."""
    error = _error_text(parsed)
    if not error and 400 <= status < 500 and not body.lstrip().startswith(b"<"):
        error = " ".join(body.decode("utf-8", "replace").split())[:_TOLD_CHARACTERS]
    text = f"answers {status}" + (f": {error}" if error else "")
    if status in (401, 403):
        return AuthFailed(text)
    if status == 413 or (status >= 400 and any(m in error.lower() for m in _TOO_MUCH)):
        return TooExpensive(text)
    if status in (408, 425, 429) or status >= 500:
        return Unavailable(text)
    if status in (400, 422):
        return BadQuery(text)
    return BadPage(f"{text}; is this the address of a Prometheus API?")


def _endpoint(url: str) -> str:
    return url.rpartition("/")[2]


def _error_text(parsed: object) -> str:
    """What a Prometheus error answer says, shortened; "" where it says nothing."""
    if not isinstance(parsed, dict):
        return ""
    parts = [str(parsed[key]) for key in ("errorType", "error") if parsed.get(key)]
    return " ".join(": ".join(parts).split())[:_TOLD_CHARACTERS]
