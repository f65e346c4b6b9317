"""The HTTP side of a Prometheus API, with every bound the client library leaves out."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import requests

from driftwatch.collect.http_session import Answer, Bounds, EndableSession, NoAnswer, TooLarge
from driftwatch.collect.prometheus.answer import parsed_json, split_series
from driftwatch.errors import (
    AuthFailed,
    BadPage,
    BadQuery,
    SourceError,
    TooExpensive,
    Unavailable,
)

# a histogram of 10,000 servers at one time has 60 MB; it is never held at once
BOUNDS = Bounds(
    connect_seconds=3.0, read_seconds=15.0, total_seconds=15.0, body_bytes=256 * 2**20, packed=True
)
_MESSAGE_CHARACTERS = 500
_QUERIES = ("query_range", "query")  # the other endpoints answer with ``data`` of their own

# Prometheus, Thanos and Mimir say in words that a question is too large
_TOO_MUCH = (
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


class PrometheusSession(EndableSession):
    """One API server: bounded requests, none twice. One request at a time.

    ``PrometheusConnect`` takes it as its own. That has no default time-out, puts the query in the
    URL even of a POST, follows redirects, reads any amount, drops ``warnings`` and raises one
    exception for everything; here each failure is one of :mod:`driftwatch.errors`.
    ``warnings``: of the last answer; ``date``: the server's time of it, None where it did not say;
    ``result_type``: what kind of result a query had.
    """

    def __init__(self, bounds: Bounds = BOUNDS, *, verify: bool | str = True) -> None:
        super().__init__()
        self.verify = verify
        self.headers["Accept"] = "application/json"
        self.warnings: tuple[str, ...] = ()
        self.date: datetime | None = None
        self.result_type: object = None
        self._bounds = bounds
        self._post_refused = False
        self._closed = False

    def request(self, method: str, url: str, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        """One request; the parameters of a POST go into its body.

        To a server that takes no POST, GET is sent from then on.

        Raises Unavailable: no connection, no complete answer in time, 429, 5xx; AuthFailed: 401,
        403; BadQuery: 400, 422 and any other refusal of the question; TooExpensive: refused as too
        much, or an answer over the byte limit; BadPage: a redirect, HTML, or anything else than a
        Prometheus answer.
        """
        self.warnings = ()
        sent_with = {k: v for k, v in kwargs.items() if k in ("headers", "auth")}
        params = kwargs.get("params")
        if self._closed:
            raise Unavailable("closed")
        try:
            answer = None
            if method == "POST" and not self._post_refused:
                answer = self.exchange(method, url, self._bounds, data=params, **sent_with)
                self._post_refused = answer.status == 405
            if answer is None or self._post_refused:
                answer = self.exchange("GET", url, self._bounds, params=params, **sent_with)
        except TooLarge as error:
            raise TooExpensive(str(error)) from error
        except NoAnswer as error:
            raise Unavailable(str(error)) from error.__cause__
        document = self._checked(answer, url)
        response = requests.Response()
        response.status_code = answer.status
        response.json = lambda **_: document  # type: ignore[method-assign]
        return response

    def close(self) -> None:
        """End the request that is under way, refuse further ones, give back the connection."""
        self._closed = True
        self.abort()
        super().close()

    def _checked(self, answer: Answer, url: str) -> Any:
        """The parsed answer.

        Raises SourceError.
        """
        status = answer.status
        if 300 <= status < 400:
            to = answer.headers.get("Location", "nowhere")
            raise BadPage(f"answers {status}, a redirect to {to[:200]}, which is not followed")
        self.date = _date(answer.headers.get("Date"))
        found = split_series(answer.body) if status == 200 else None
        parsed = parsed_json(answer.body if found is None else found[0])
        if status != 200:
            raise _refusal(status, parsed, answer.body)
        if not isinstance(parsed, dict):
            start = answer.body[:60].decode("utf-8", "replace")
            raise BadPage(f"no JSON from Prometheus, or cut off: it starts with {start!r}")
        if parsed.get("status") != "success":
            raise BadQuery(_error_text(parsed) or "answers without status success")
        data = parsed.get("data")
        if url.rpartition("/")[2] not in _QUERIES:
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
        if parsed.get("isPartial") is True:  # in VictoriaMetrics' words
            listed = [*listed, "isPartial: some of its storage did not answer"]
        self.warnings = tuple(str(w)[:_MESSAGE_CHARACTERS] for w in listed)
        return parsed


def _date(text: str | None) -> datetime | None:
    """The time of a ``Date`` header; None where it cannot be read."""
    try:
        return parsedate_to_datetime(text or "").astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return None


def _refusal(status: int, parsed: object, body: bytes) -> SourceError:
    """The error for an answer without status 200, with the text of its body."""
    error = _error_text(parsed)
    if not error and 400 <= status < 500 and not body.lstrip().startswith(b"<"):
        error = " ".join(body.decode("utf-8", "replace").split())[:_MESSAGE_CHARACTERS]
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


def _error_text(parsed: object) -> str:
    """The error text of a Prometheus answer, shortened; "" where it has none."""
    if not isinstance(parsed, dict):
        return ""
    parts = [str(parsed[key]) for key in ("errorType", "error") if parsed.get(key)]
    return " ".join(": ".join(parts).split())[:_MESSAGE_CHARACTERS]
