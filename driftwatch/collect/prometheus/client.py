"""Questions to a Prometheus-compatible API: each bounded, each failure by its name."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from urllib3.util.retry import Retry

from driftwatch.collect.http import address_of
from driftwatch.collect.http_session import UNSENDABLE
from driftwatch.collect.prometheus.answer import RawSamples, raw_samples
from driftwatch.collect.prometheus.session import BOUNDS, PrometheusSession
from driftwatch.collect.registry import short_name
from driftwatch.errors import (
    AuthFailed,
    BadPage,
    BadQuery,
    ConfigError,
    Partial,
    SourceError,
    TooExpensive,
    Unavailable,
    UsageError,
)
from driftwatch.settings.values import SECRET, redact

# words in the refusal of an API that answers no range selector at /api/v1/query
_OF_RANGES = ("range", "matrix", "[")
_GIVE_RANGES = (
    "driftwatch queries samples as they were scraped (up[60s]): give the address of an API that "
    "answers range selectors at /api/v1/query, as Prometheus, Thanos, Mimir and VictoriaMetrics do"
)
_START = 16  # characters of a secret that give it away
# What one answer holds of samples: they take about 150 bytes each while they are read.
PIECE_SAMPLES = 1_000_000
PIECE_MS = 600_000  # span of the first query, which shows how dense samples are


class PrometheusAsker:
    """One API server and how to ask it; not for use from several threads at once.

    ``url``: address of the API, with its path prefix if it has one; ``timeout_seconds``: for one
    question, from its start to its last byte; ``headers``: sent with each question (a tenant, for
    example); ``bearer_token``: sent as ``Authorization: Bearer``; a callable is called before each
    question, so that a token that was exchanged is used at once; ``verify``: check TLS
    certificates: True, or a file of authorities.
    ``host``: host:port of the address; ``warnings``: of the last answer; with any, some of what was
    asked for is missing; ``date``: the server's time of the last answer, to the second.
    Raises UsageError: not an http or https address, a time-out that is not above 0, or two kinds of
    credentials.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = 15.0,
        headers: Mapping[str, str] | None = None,
        bearer_token: str | Callable[[], str | None] | None = None,
        basic_auth: tuple[str, str] | None = None,
        verify: bool | str = True,
    ) -> None:
        address_of(url if "://" in url else f"://{url}", "http://host:9090")
        self.host = urlsplit(url).netloc.rpartition("@")[2]
        # OpenShift's tenancy port, for example, wants ?namespace=ml with every question
        url, _, query = url.partition("?")
        if not timeout_seconds >= 0.001:
            raise UsageError(f"the time-out must be at least 1 ms, not {timeout_seconds:g} s")
        if bearer_token is not None and basic_auth is not None:
            raise UsageError("give a bearer token or a user with a password, not both")
        self._bearer_token = bearer_token
        self._secrets = _secrets(url, basic_auth)
        self._token: str | None = None
        # how long the API itself may work on a question
        self._patience = f"{max(1, round(timeout_seconds * 1000))}ms"
        bounds = replace(BOUNDS, read_seconds=timeout_seconds, total_seconds=timeout_seconds)
        self._session = PrometheusSession(bounds, verify=verify)
        self._session.params = dict(parse_qsl(query))
        self._api = PrometheusConnect(
            url=url.rstrip("/"),
            headers=dict(headers or {}),
            auth=basic_auth,
            session=self._session,
            retry=Retry(0, read=False),
            method="POST",
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the last answer warned of."""
        return tuple(self._redacted(warning) for warning in self._session.warnings)

    @property
    def date(self) -> datetime | None:
        """The server's time of the last answer; None where it did not say."""
        return self._session.date

    def instant(self, text: str, at: datetime) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series at one time, in the API's order.

        ``text``: PromQL whose answer is a vector; ``at``: aware.
        Raises SourceError: the API did not answer, or not with a vector; see
        :meth:`PrometheusSession.request`.
        """
        result = self._query(text, round(at.timestamp() * 1000), "vector")
        try:
            return [(dict(one["metric"]), float(one["value"][1])) for one in result]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise BadPage(f"a series of the answer is malformed ({type(error).__name__})") from None

    def raw(self, selector: str, first_ms: int, last_ms: int) -> RawSamples:
        """The samples of a selector as they were scraped, ``first_ms`` to ``last_ms``, both in.

        Raises SourceError: as :meth:`instant`.
        """
        # whether a range holds its first moment is another thing in Prometheus 2 and 3
        text = f"{selector}[{last_ms - first_ms + 1}ms]"
        try:
            return raw_samples(self._query(text, last_ms, "matrix"), first_ms)
        except BadQuery as error:
            if not any(word in error.message for word in _OF_RANGES):
                raise
            raise BadQuery(f"{error.message}; {_GIVE_RANGES}") from error

    def pieces(
        self,
        selectors: Sequence[str],
        first_ms: int,
        last_ms: int,
        errors: list[SourceError],
        deadline: float = math.inf,
    ) -> Iterator[RawSamples]:
        """The samples of selectors that name different series, both moments in, in pieces.

        ``errors``: what went wrong is added: :class:`Partial` where an answer came with a warning,
        any other error where some of the span has none; ``deadline``: monotonic seconds; questions
        after it are refused.
        """
        for selector in selectors:
            start, length = first_ms, PIECE_MS
            while start <= last_ms:
                end = min(start + length - 1, last_ms)
                try:
                    if time.monotonic() > deadline:
                        raise Unavailable("not asked: the time for all queries is used up")
                    answer = self.raw(selector, start, end)
                except TooExpensive as error:
                    if end - start < 1000:
                        errors.append(error)
                        return
                    length = (end - start + 1) // 2
                    continue
                except (Unavailable, AuthFailed) as error:
                    errors.append(error)
                    return  # the other pieces would fare no better
                except SourceError as error:
                    errors.append(error)
                    start = end + 1
                    continue
                errors += [Partial(warning) for warning in self.warnings]
                if answer.native:
                    first, more = min(map(short_name, answer.native)), len(answer.native) - 1
                    many = f", and {more} more," if more else ""
                    why = f"{first}{many} in the form of a native histogram: not read"
                    errors.append(BadPage(why))
                yield answer
                dense = len(answer.series) / (end - start + 1)
                length = round(PIECE_SAMPLES / dense) if dense else last_ms
                start = end + 1

    def _query(self, text: str, at_ms: int, wanted: str) -> Any:
        params = {"time": _seconds(at_ms), "timeout": self._patience}
        result = self._answer(lambda: self._api.custom_query(text, params=params))
        kind = self._session.result_type
        if kind != wanted:
            raise BadPage(self._redacted(f"resultType {kind!r} instead of {wanted!r}"))
        return result

    def label_values(
        self,
        name: str,
        selectors: Sequence[str] = (),
        span_ms: tuple[int, int] | None = None,
    ) -> list[str]:
        """Values of one label, in order; of any series, or of those that a selector matches.

        ``span_ms``: of series that have samples between these times; None: as the API thinks right.
        Raises SourceError: as :meth:`instant`.
        """
        params: dict[str, Any] = {"match[]": list(selectors)}
        if span_ms is not None:
            params |= {"start": _seconds(span_ms[0]), "end": _seconds(span_ms[1])}
        url = f"{self._api.url}/api/v1/label/{quote(name, safe='')}/values"
        kept = {"headers": self._api.headers, "auth": self._api.auth}
        values = self._answer(
            lambda: self._session.request("GET", url, params=params, **kept).json()["data"]
        )
        if not isinstance(values, list):
            raise BadPage("the list of label values is none")
        return [str(one) for one in values]

    def close(self) -> None:
        """Give back the connection."""
        self._session.close()

    def _answer(self, ask: Callable[[], Any]) -> Any:
        try:
            token = self._bearer_token() if callable(self._bearer_token) else self._bearer_token
        except ConfigError as error:  # its file was there when the service started
            raise AuthFailed(f"no bearer token: {error.message}") from error
        self._token = token
        if token is not None:
            self._api.headers["Authorization"] = f"Bearer {token}"
        try:
            return ask()
        except SourceError as error:  # a server may say what it was sent
            message = self._redacted(error.message)
            if message == error.message:
                raise
            raise type(error)(message, help_text=error.help_text) from None
        except requests.RequestException:  # its text may hold a header or the address
            raise Unavailable(UNSENDABLE) from None

    def _redacted(self, text: str) -> str:
        secrets = [*self._secrets, self._token or ""]
        text = redact(text, secrets)
        for start in (secret[:_START] for secret in secrets if len(secret) > _START):
            if start in text:  # a long one at the end of what was cut short
                text = text.partition(start)[0] + SECRET
        return text


def _secrets(url: str, basic_auth: tuple[str, str] | None) -> tuple[str, ...]:
    """Texts that no message may hold: passwords, and what is sent of them."""
    pairs = [] if basic_auth is None else [basic_auth]
    parts = urlsplit(url)
    secrets = []
    if parts.password:
        secrets.append(parts.password)
        pairs.append((unquote(parts.username or ""), unquote(parts.password)))
    for user, password in pairs:
        both = f"{user}:{password}".encode("latin-1", "replace")
        secrets += [password, base64.b64encode(both).decode()]
    return tuple(secrets)


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"


def error_text(error: SourceError) -> str:
    """An error as problems and reasons of rows name it."""
    return f"{type(error).__name__}: {error.message}"
