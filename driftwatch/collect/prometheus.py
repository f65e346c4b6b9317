"""A Prometheus-compatible API as a source: a few range queries for the whole fleet."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from urllib3.util.retry import Retry

from driftwatch.collect.exposition import folded
from driftwatch.collect.prometheus_points import Points, points
from driftwatch.collect.prometheus_query import Grid, grid, matchers, queries, select
from driftwatch.collect.prometheus_rows import Asked, failed_rows, scrape_rows
from driftwatch.collect.prometheus_series import Placements
from driftwatch.collect.prometheus_session import PrometheusSession
from driftwatch.collect.prometheus_table import Answers, answers
from driftwatch.collect.schema import Collected, SourceProblem, empty_scrapes
from driftwatch.errors import (
    AuthFailed,
    Partial,
    SourceError,
    TooExpensive,
    Unavailable,
    UsageError,
)
from driftwatch.model import Target, TargetKey

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _Brought:
    """What came of one query, and what went wrong on the way."""

    chunks: list[Points] = field(default_factory=list)
    errors: list[SourceError] = field(default_factory=list)

    @property
    def failure(self) -> SourceError | None:
        """What to tell of it, None where all of it came."""
        return next((e for e in self.errors if not isinstance(e, Partial)), None)


class PrometheusSource:
    """vLLM servers as a Prometheus-compatible API knows them.

    Each metric is one range query for the whole fleet on a grid of ``step_seconds``; a row's time
    is that of the scrape itself (``timestamp(up)``), so a grid time that shows the scrape of the
    one before gives no second row. Choose the step no longer than the scrape interval, and keep
    ``until`` at least ``settle_seconds`` behind now.

    Args:
        url: address of the API, with its path prefix if it has one.
        selector: label → value that all targets' series carry, ``up`` too; values are escaped
            here. Empty: every instance that has a ``vllm:`` series.
        step_seconds: distance of the grid's times.
        timeout_seconds: for one query, from its start to its last byte.
        budget_seconds: for all queries of one ``collect``; those beyond it are not asked.
        settle_seconds: how old a scrape must be to be there for sure: it carries the time it
            began and becomes visible when it ended, at most Prometheus's scrape_timeout (10 s
            where nothing is said) later.
        name: how problems and pages call this source.
        headers: sent with each query (a tenant, for example).
        bearer_token: sent as ``Authorization: Bearer``.
        basic_auth: user and password.
        verify: check TLS certificates: True, or a file of authorities.

    Raises:
        UsageError: not an http or https address, a label that cannot be matched, a step or
            time-out that is not above 0, or two kinds of credentials.
    """

    def __init__(
        self,
        url: str,
        *,
        selector: Mapping[str, str],
        step_seconds: float = 15.0,
        timeout_seconds: float = 15.0,
        budget_seconds: float = 60.0,
        settle_seconds: float = 15.0,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        bearer_token: str | None = None,
        basic_auth: tuple[str, str] | None = None,
        verify: bool | str = True,
    ) -> None:
        host = _host(url)
        for what, seconds in (("step", step_seconds), ("time-out", timeout_seconds)):
            if not seconds >= 0.001:
                raise UsageError(f"the {what} must be at least 1 ms, not {seconds:g} s")
        if bearer_token is not None and basic_auth is not None:
            raise UsageError("give a bearer token or a user with a password, not both")
        self.name = name or f"prometheus {host}"
        self.settle_seconds = settle_seconds
        self._step_seconds = step_seconds
        self._timeout_seconds = timeout_seconds
        self._budget_seconds = budget_seconds
        self._selector = dict(selector)
        self._queries = queries(selector)
        self._up = select(("up",), matchers(selector))
        self._session = PrometheusSession(total_seconds=timeout_seconds, verify=verify)
        sent = dict(headers or {})
        if bearer_token is not None:
            sent["Authorization"] = f"Bearer {bearer_token}"
        self._api = PrometheusConnect(
            url=url.rstrip("/"),
            headers=sent,
            auth=basic_auth,
            session=self._session,
            retry=Retry(0, read=False),
            method="POST",
        )
        self._targets: dict[TargetKey, Target] = {}
        self._placements = Placements()
        self._deadline = 0.0

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Scrapes with since <= time < until.

        A query that fails leaves its columns NULL and is a problem; where no target can be read
        at all, every known target has a row with ``ok`` False and the reason, just before
        ``until``.
        """
        times = grid(since, until, self._step_seconds)
        if times is None:
            return Collected(empty_scrapes(), dict(self._targets))
        self._deadline = time.monotonic() + self._budget_seconds
        at = _EPOCH + timedelta(milliseconds=times.last)
        problems: list[SourceProblem] = []

        def ask(text: str) -> tuple[Answers, SourceError | None]:
            brought = self._ask(text, times)
            problems.extend(SourceProblem(text, _told(error), at) for error in brought.errors)
            return answers(brought.chunks), brought.failure

        up, failure = ask(self._up)
        if failure is not None and not up.heads:
            return self._lost(failure, at, problems)
        scraped_at, _ = ask(f"timestamp({self._up})")
        asked: list[Asked] = []
        for query in self._queries:
            found, failure = ask(query.text)
            asked.append(Asked(query, found, None if failure is None else _told(failure)))
        vllm = [one for one in asked if one.query.metrics[0].wire_name.startswith("vllm:")]
        if all(one.failure is not None and not one.answers.heads for one in vllm):
            return self._lost(vllm[0].failure or "", at, problems)
        made = scrape_rows(
            up,
            scraped_at,
            asked,
            since=since,
            any_instance=bool(self._selector),
            known=self._targets,
            placements=self._placements,
        )
        problems += [SourceProblem(p.where, p.reason, at) for p in made.problems]
        self._targets = dict(made.targets)
        return Collected(made.scrapes, made.targets, folded(problems))

    def close(self) -> None:
        """Give back the connection."""
        self._session.close()

    def _lost(
        self, failure: SourceError | str, at: datetime, problems: list[SourceProblem]
    ) -> Collected:
        reason = failure if isinstance(failure, str) else _told(failure)
        rows = failed_rows(self._targets, at, f"{self.name}: {reason}")
        return Collected(rows, dict(self._targets), folded(problems))

    def _ask(self, text: str, times: Grid) -> _Brought:
        """One query over the grid, in pieces; one that is too much is asked in halves."""
        brought = _Brought()
        todo = list(times.chunks())[::-1]
        while todo:
            piece = todo.pop()
            try:
                result = self._range(text, piece)
                brought.chunks.append(points(result, self._placements.heads(text)))
            except TooExpensive as error:
                if piece.points == 1:
                    brought.errors.append(error)
                    break
                half = piece.points // 2
                todo += list(piece.chunks(piece.points - half))[::-1]
                continue
            except (Unavailable, AuthFailed) as error:
                brought.errors.append(error)
                break  # the other pieces would fare no better
            except SourceError as error:
                brought.errors.append(error)
            else:
                brought.errors += [Partial(warning) for warning in self._session.warnings]
        return brought

    def _range(self, text: str, times: Grid) -> Sequence[Any]:
        if time.monotonic() > self._deadline:
            raise Unavailable(
                f"not asked: the {self._budget_seconds:g} s for all queries are used up"
            )
        params = {
            # the client rounds times to seconds; its own arguments come first, so these count
            "start": _seconds(times.first),
            "end": _seconds(times.last),
            "timeout": f"{max(1, round(self._timeout_seconds * 1000))}ms",
        }
        first = _EPOCH + timedelta(milliseconds=times.first)
        last = _EPOCH + timedelta(milliseconds=times.last)
        try:
            result: Sequence[Any] = self._api.custom_query_range(
                text, first, last, _seconds(times.step), params=params
            )
        except requests.RequestException as error:  # an address or header that cannot be sent
            raise Unavailable(str(error)[:200]) from error
        return result


def _host(url: str) -> str:
    """host:port of an address, without a user and password in it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(
            f"{url!r} is not an http or https address", help_text="give http://host:9090"
        )
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"


def _told(error: SourceError) -> str:
    return f"{type(error).__name__}: {error.message}"
