"""A stand-in for a Prometheus API: recorded answers, evaluated on any grid, and faults on demand.

It knows the forms that driftwatch asks: a selector, ``selector[5000ms]``, ``timestamp(selector)``,
and the list of a label's values.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal
from urllib.parse import parse_qs

from fakes.loopback import Answer, LoopbackServer, Request

MAX_POINTS = 11_000  # per series, as in Prometheus
LOOKBACK_SECONDS = 300.0

_PATHS = ("/api/v1/query_range", "/api/v1/query")
_JSON = {"Content-Type": "application/json"}
_RANGE = re.compile(r"(.*)\[(\d+)ms\]", re.DOTALL)
_SELECTOR = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)?(?:\{(?P<inside>.*)\})?", re.DOTALL)
_MATCHER = re.compile(r'([a-zA-Z_]\w*)(=~|=)"((?:[^"\\\n]|\\.)*)"(,|$)', re.DOTALL)
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Series:
    """One series."""

    labels: Mapping[str, str]  # with ``__name__``
    points: Sequence[tuple[float, str]]  # (unix seconds, value as text), in order of time
    # how long a point is seen; answers of a range query already looked back when they were
    # recorded, so theirs is their step
    lookback_seconds: float = LOOKBACK_SECONDS


def recorded(answers: Mapping[str, Any], step_seconds: float) -> list[Series]:
    """Recorded answers of the query_range API → their series; derived ones are left out."""
    return [
        Series(one["metric"], [(at, value) for at, value in one["values"]], step_seconds)
        for answer in answers.values()
        for one in answer["data"]["result"]
        if "__name__" in one["metric"]
    ]


class PrometheusApi(LoopbackServer):
    """Answers ``query_range``, ``query`` and ``label/NAME/values``.

    Args:
        times: whether ``timestamp()`` answers; some compatible servers have none.
        authorization: the header it wants, None: no credentials asked.

    Attributes:
        queries: parameters of each query, in order.
        faults: (part of a query's text, what to answer then); the first that fits counts.
        warnings: sent with every good answer.
        posts: whether it takes POST.
        drip: send an endless answer, byte by byte.
        reached: unix seconds; of samples those that were scraped later are not there yet.
    """

    reached = float("inf")

    def __init__(
        self, series: Iterable[Series], *, times: bool = True, authorization: str | None = None
    ) -> None:
        super().__init__()
        self.series = list(series)
        self._times = times
        self._authorization = authorization
        self.queries: list[dict[str, str]] = []
        self.faults: list[tuple[str, Answer]] = []
        self.warnings: list[str] = []
        self.posts = True
        self.drip: Literal["", "headers", "body"] = ""

    def judge(self, request: Request) -> Answer:
        path, _, text = request.path.partition("?")
        if request.method == "POST":
            if not self.posts:
                return Answer(405, "Method Not Allowed")
            text = request.body.decode()
        if path not in _PATHS and not path.startswith("/api/v1/label/"):
            return Answer(404, "404 page not found")
        wanted = self._authorization
        if wanted is not None and request.headers.get("authorization") != wanted:
            return Answer(401, "Unauthorized")
        params = {name: values[0] for name, values in parse_qs(text).items()}
        params.setdefault("query", params.get("match[]", ""))
        self.queries.append(params)
        for part, answer in self.faults:
            if part in params["query"]:
                return answer
        if path not in _PATHS:
            return self._labels(path, parse_qs(text).get("match[]", []))
        return self._evaluate(params)

    def _labels(self, path: str, selectors: Sequence[str]) -> Answer:
        wanted = [_wanted(one) or [] for one in selectors]
        fitting = [
            series.labels
            for series in self.series
            if not wanted or any(_fits(series, one) for one in wanted)
        ]
        name = path.removeprefix("/api/v1/label/").removesuffix("/values")
        values = sorted({labels[name] for labels in fitting if name in labels})
        answer = {"status": "success", "data": values}
        return Answer(200, json.dumps(answer), _JSON)

    def _raw(self, selector: str, seconds: float, params: Mapping[str, str]) -> Answer:
        wanted, last = _wanted(selector), float(params["time"])
        if wanted is None:
            return refused(f"invalid parameter 'query': parse error: {selector}")
        result = []
        for series in self.series:
            if _fits(series, wanted):
                values = [
                    [round(at, 3), value]
                    for at, value in series.points
                    if last - seconds <= round(at, 3) <= min(last, self.reached)
                ]
                if values:
                    result.append({"metric": dict(series.labels), "values": values})
        return self._good("matrix", result)

    def _good(self, kind: str, result: list[dict[str, Any]]) -> Answer:
        answer: dict[str, Any] = {"status": "success"}
        answer["data"] = {"resultType": kind, "result": result}
        if self.warnings:
            answer["warnings"] = self.warnings
        # to the byte as Prometheus writes it
        return Answer(200, json.dumps(answer, separators=(",", ":")), _JSON)

    def _evaluate(self, params: Mapping[str, str]) -> Answer:
        if raw := _RANGE.fullmatch(params["query"]):
            return self._raw(raw[1], int(raw[2]) / 1000, params)
        instant = "start" not in params
        if instant:
            params = {**params, "start": params["time"], "end": params["time"], "step": "1"}
        start, end, step = (Decimal(params[name]) for name in ("start", "end", "step"))
        points = int((end - start) / step) + 1
        if points > MAX_POINTS:
            return refused(
                "exceeded maximum resolution of 11,000 points per timeseries. "
                "Try decreasing the query resolution (?step=XX)"
            )
        grid = [float(start + step * i) for i in range(points)]
        text = params["query"]
        times = text.startswith("timestamp(") and text.endswith(")")
        text = text.removeprefix("timestamp(").removesuffix(")") if times else text
        wanted = _wanted(text)
        if wanted is None:
            return refused(f"invalid parameter 'query': parse error: {text}")
        result = []
        for series in self.series:
            if _fits(series, wanted):
                if times and not self._times:
                    continue
                values = _on(grid, series, times)
                if values:
                    drop = {"__name__"} if times else set()
                    labels = {k: v for k, v in series.labels.items() if k not in drop}
                    one = {"value": values[-1]} if instant else {"values": values}
                    result.append({"metric": labels, **one})
        return self._good("vector" if instant else "matrix", result)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        if not self.drip:
            # a client that gave up has closed its end
            with suppress(ConnectionError):
                super()._serve(handler)
            return
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        handler.close_connection = True
        with suppress(ConnectionError):
            if self.drip == "body":
                handler.send_response(200)
                handler.send_header("Content-Length", "100000")
                handler.end_headers()
            else:
                handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not self._closing.wait(0.01):
                handler.wfile.write(b" ")
                handler.wfile.flush()


def refused(message: str, status: int = 400, kind: str = "bad_data") -> Answer:
    body = {"status": "error", "errorType": kind, "error": message}
    return Answer(status, json.dumps(body), _JSON)


def _wanted(selector: str) -> list[tuple[str, re.Pattern[str]]] | None:
    """What a selector asks of labels, None where it does not parse."""
    match = _SELECTOR.fullmatch(selector)
    return None if match is None else _matchers(match["name"], match["inside"])


def _fits(series: Series, wanted: Iterable[tuple[str, re.Pattern[str]]]) -> bool:
    return all(fits.fullmatch(series.labels.get(name, "")) for name, fits in wanted)


def _matchers(name: str | None, inside: str | None) -> list[tuple[str, re.Pattern[str]]] | None:
    """Label → pattern, None where it does not parse."""
    matchers = [] if name is None else [("__name__", re.compile(re.escape(name)))]
    at, inside = 0, inside or ""
    while at < len(inside):
        match = _MATCHER.match(inside, at)
        if match is None:
            return None
        label, kind, quoted, _ = match.groups()
        if any(c not in _ESCAPES for c in re.findall(r"\\(.)", quoted, re.DOTALL)):
            return None
        value = re.sub(r"\\(.)", lambda m: _ESCAPES[m[1]], quoted, flags=re.DOTALL)
        matchers.append((label, re.compile(value if kind == "=~" else re.escape(value))))
        at = match.end()
    return matchers or None


def _on(grid: Sequence[float], series: Series, times: bool) -> list[list[Any]]:
    """The newest point at each time of the grid, if it is not too old."""
    points: list[list[Any]] = []
    moments = [at for at, _ in series.points]
    for now in grid:
        index = bisect_right(moments, now) - 1
        if index >= 0 and now - moments[index] < series.lookback_seconds:
            at, value = series.points[index]
            points.append([now, repr(at) if times else value])
    return points
