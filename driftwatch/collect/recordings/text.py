"""Recorded scrapes (``scrapes.jsonl.gz``), through the same parser as live pages.

One JSON object a line: ``t`` (unix seconds), ``status`` (200, another status, or ``"exc"`` where
there was no answer), ``body`` (the page, or what went wrong), ``instance`` where the file holds
several servers; other fields are not read. Pages of dcgm-exporter may stand between those of the
servers, each exporter with an ``instance`` of its own.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson
import polars as pl

from driftwatch.collect.dcgm_sources import DcgmBatch, is_dcgm_page
from driftwatch.collect.pages import PageParser
from driftwatch.collect.schema import Collected, SourceProblem
from driftwatch.errors import RecordingError
from driftwatch.model import Target

Progress = Callable[[int, int], None]

HOW_TO_RECORD = (
    'a recording has one JSON object a line: {"t": unix seconds, "status": 200, "body": the text '
    "of /metrics}; to make one:\n"
    "  while sleep 5; do curl -sS http://HOST:8000/metrics | jq -Rsc "
    "'{t: now, status: 200, body: .}'; done > scrapes.jsonl"
)

_NAMES = ("scrapes.jsonl.gz", "scrapes.jsonl")
_MAX_LINE_BYTES = 64 * 2**20  # twice the largest live page, for JSON's escapes
_NAMED_LINES = 20  # broken lines named per file; the others are counted


class _Scrape(NamedTuple):
    """One line: ``status`` 200 has a page in ``body``, any other says there what went wrong."""

    instance: str
    time: datetime
    status: int | str
    body: str


class _Recorded(NamedTuple):
    """A whole file: the servers' pages, and the readings of GPUs."""

    page: Collected
    gpus: pl.DataFrame
    problems: tuple[SourceProblem, ...]


class RecordingSource:
    """A recording as a source.

    ``path``: the file, plain or gzipped, or the folder that holds ``scrapes.jsonl.gz``;
    ``instance``: name of the server where a line has none; ``progress``: called with (bytes read,
    bytes in all) of the file as it is read; ``labels``: labels that its targets get besides.
    """

    def __init__(
        self,
        path: str | Path,
        instance: str = "host:8000",
        progress: Progress | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._location = Path(path)
        self._instance = instance
        self._progress = progress
        self._labels = dict(labels or {})
        self._parser = PageParser()
        self._tables: _Recorded | None = None
        self.name = f"recording {self._location}"
        self.settle_seconds = 0.0

    def span(self) -> tuple[datetime, datetime]:
        """First scrape and just after the last: ``collect(*span())`` is all of it.

        Raises RecordingError: as :meth:`collect`.
        """
        recorded = self._recorded()
        times = pl.concat([recorded.page.scrapes["time"], recorded.gpus["time"]])
        first, last = times.min(), times.max()
        assert isinstance(first, datetime)  # noqa: S101 - a page without rows was refused
        assert isinstance(last, datetime)  # noqa: S101
        return first.astimezone(UTC), last.astimezone(UTC) + timedelta(microseconds=1)

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Scrapes and problems with since <= time < until; the file is read once.

        A broken line is a problem with file:line and the time of the line before it.

        Raises RecordingError: the file is not there, or no line of it is a scrape.
        """
        recorded = self._recorded()
        inside = pl.col("time").is_between(since, until, closed="left")
        problems = tuple(p for p in recorded.problems if p.time is None or since <= p.time < until)
        targets = {
            # what a target is known by cannot be renamed from outside
            key: Target(key, {**self._labels, **target.labels})
            for key, target in recorded.page.targets.items()
        }
        scrapes, gpus = recorded.page.scrapes.filter(inside), recorded.gpus.filter(inside)
        return Collected(scrapes, targets, problems, gpus=gpus)

    def next_after(self, time: datetime) -> datetime | None:
        """The first scrape at or after ``time``; None after the last."""
        first = self._recorded().page.scrapes.filter(pl.col("time") >= time)["time"].min()
        return first.astimezone(UTC) if isinstance(first, datetime) else None

    def close(self) -> None:
        """Forget what was read."""
        self._tables = None

    def _recorded(self) -> _Recorded:
        if self._tables is None:
            self._tables = _parsed(
                _file(self._location), self._instance, self._parser, self._progress
            )
        return self._tables


def _file(location: Path) -> Path:
    if not location.is_dir():
        return location
    for name in _NAMES:
        if (location / name).is_file():
            return location / name
    raise RecordingError(f"{location}: holds no {' or '.join(_NAMES)}", help_text=HOW_TO_RECORD)


def _parsed(path: Path, instance: str, parser: PageParser, progress: Progress | None) -> _Recorded:
    """The whole file as two tables; each body is let go once its numbers are read."""
    batch = parser.batch()
    gpus = DcgmBatch()
    exporters: set[str] = set()
    failed: list[_Scrape] = []
    digests: dict[tuple[str, datetime], int] = {}
    broken: list[tuple[int, str, datetime | None]] = []
    at: datetime | None = None
    for number, line in _lines(path, progress):
        scrape = line if isinstance(line, str) else _scrape(line, instance)
        if scrape is None:
            continue
        if isinstance(scrape, str):
            broken.append((number, scrape, at))
            continue
        at = scrape.time
        # a digest instead of the page: a day of scrapes must not stay in memory
        digest = hash((scrape.status, scrape.body))
        if (scrape.instance, at) not in digests:
            digests[scrape.instance, at] = digest
            body = scrape.body.encode()
            if scrape.status != 200:
                failed.append(scrape)  # of a server or of an exporter: a page of it says which
            elif not is_dcgm_page(body):
                batch.add(scrape.instance, at, body)
            elif gpus.add(scrape.instance, at, body):
                exporters.add(scrape.instance)
        elif digests[scrape.instance, at] != digest:
            what = f"another scrape of {scrape.instance} at {at.isoformat()}: the first is kept"
            broken.append((number, what, at))
    if not digests:
        number, why, _ = broken[0] if broken else (1, "the file is empty", None)
        raise RecordingError(f"{path}:{number}: not a recording: {why}", help_text=HOW_TO_RECORD)
    first = min(time for _, time in digests)
    for number, why, time in broken[:_NAMED_LINES]:
        batch.problem(f"{path}:{number}", why, time or first)
    if len(broken) > _NAMED_LINES:
        number, _, time = broken[_NAMED_LINES]
        rest = len(broken) - _NAMED_LINES
        batch.problem(f"{path}:{number}", f"and {rest} more lines from here on", time or first)
    for scrape in failed:
        if scrape.instance in exporters:
            gpus.problem(scrape.instance, _failure(scrape), scrape.time)
        else:
            batch.fail(scrape.instance, scrape.time, _failure(scrape))
    page = batch.finish()
    table, problems = gpus.finish()
    if page.scrapes.is_empty() and table.is_empty():
        why = "; ".join(f"{p.where}: {p.reason}" for p in problems[:1])
        raise RecordingError(f"{path}: not a recording: {why}", help_text=HOW_TO_RECORD)
    return _Recorded(page, table, (*page.problems, *problems))


def _failure(scrape: _Scrape) -> str:
    if isinstance(scrape.status, int):
        return f"answered {scrape.status}"
    text = " ".join(scrape.body.split())[:200]
    return f"no answer: {_plain(text) or scrape.status}"


def _plain(text: str) -> str:
    """What a client's exception says, without its internals.

    >>> _plain("ClientConnectorError(Key(host='h'), ConnectionRefusedError(111, 'x'))")
    'connection refused'
    >>> _plain("TimeoutError()"), _plain("reset by peer")
    ('TimeoutError', 'reset by peer')
    """
    if "ConnectionRefusedError" in text:
        return "connection refused"
    raised = re.match(r"([A-Za-z]+(?:Error|Exception|Disconnected))\(", text)
    return text if raised is None else raised[1]


def _scrape(line: bytes, instance: str) -> _Scrape | str | None:
    """One line: the scrape, why it is none, or None for a blank line."""
    if not line.strip():
        return None
    try:
        fields: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return f"not JSON: {error}"
    if not isinstance(fields, dict):
        return "not a JSON object"
    time, status, body = fields.get("t"), fields.get("status", 200), fields.get("body")
    if isinstance(time, bool) or not isinstance(time, int | float) or not math.isfinite(time):
        return "no t (unix seconds)" if time is None else f"t is not unix seconds: {time!r:.40}"
    try:
        at = datetime.fromtimestamp(time, UTC)
    except (ValueError, OverflowError, OSError):
        return f"t is not unix seconds: {time!r:.40}"
    if isinstance(status, str) and status.isascii() and status.isdecimal() and len(status) < 4:
        status = int(status)
    if isinstance(status, bool) or not isinstance(status, int | str):
        return f"status is neither a number nor a word: {status!r:.40}"
    if not isinstance(body, str):
        if status == 200:
            return "no body" if body is None else "body is not a string"
        body = ""
    named = fields.get("instance")
    return _Scrape(named if isinstance(named, str) and named else instance, at, status, body)


def _lines(path: Path, progress: Progress | None) -> Iterator[tuple[int, bytes | str]]:
    """(line number, line), or the reason in place of a line that cannot be had."""
    number = 0
    try:
        size = path.stat().st_size
        with path.open("rb") as raw, closing(_unpacked(raw)) as file:
            while True:
                line = file.readline(_MAX_LINE_BYTES + 1)
                number += 1
                if progress is not None:
                    progress(min(raw.tell(), size), size)
                if not line:
                    return
                if len(line) > _MAX_LINE_BYTES:
                    while line and not line.endswith(b"\n"):
                        line = file.readline(_MAX_LINE_BYTES)
                    yield number, f"longer than {_MAX_LINE_BYTES} bytes"
                    continue
                yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        yield number + 1, f"the gzip data ends or breaks here, the rest is lost ({error})"
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}") from error


def _unpacked(raw: IO[bytes]) -> io.BufferedReader:
    """The file's bytes, unpacked if they are gzip, whatever its name is."""
    magic = raw.read(2)
    raw.seek(0)
    packed = gzip.GzipFile(fileobj=raw) if magic == b"\x1f\x8b" else raw
    return io.BufferedReader(packed, 1 << 20)  # type: ignore[arg-type]
