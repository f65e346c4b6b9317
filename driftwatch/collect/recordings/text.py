"""Recorded scrapes (``scrapes.jsonl.gz``), through the same parser as live pages.

One JSON object a line: ``t`` (unix seconds), ``status`` (200, another status, or ``"exc"`` where
there was no answer), ``body`` (the page, or what went wrong), ``instance`` where the file holds
several servers; other fields are not read.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

import polars as pl
from pydantic import BaseModel, Field, ValidationError

from driftwatch.collect.pages import PageParser
from driftwatch.collect.schema import Collected
from driftwatch.errors import RecordingError

Progress = Callable[[int, int], None]

HOW_TO_RECORD = (
    'a recording has one JSON object a line: {"t": unix seconds, "status": 200, "body": the text '
    "of /metrics}; to make one:\n"
    "  while sleep 5; do curl -sS http://HOST:8000/metrics | jq -Rsc "
    "'{t: now, status: 200, body: .}'; done > scrapes.jsonl\n"
    "samples with times are OpenMetrics: load them with promtool, and give a Prometheus"
)

_NAMES = ("scrapes.jsonl.gz", "scrapes.jsonl")
_MAX_LINE_BYTES = 64 * 2**20  # twice the largest live page, for JSON's escapes
_NAMED_LINES = 20  # broken lines named per file; the others are counted


class _Line(BaseModel):
    """One line: ``status`` 200 has a page in ``body``, any other the failure's text."""

    t: float = Field(strict=True, ge=0, le=253_402_300_799)  # unix seconds, to the year 9999
    status: int | str = Field(200, union_mode="left_to_right")
    body: str = ""
    instance: str = ""

    @property
    def time(self) -> datetime:
        """When it was scraped."""
        return datetime.fromtimestamp(self.t, UTC)

    @property
    def failure(self) -> str:
        """What went wrong, where the status is not 200."""
        if isinstance(self.status, int):
            return f"answered {self.status}"
        if "ConnectionRefusedError" in self.body:
            return "no answer: connection refused"
        return f"no answer: {' '.join(self.body.split())[:200] or self.status}"


class RecordingSource:
    """A recording as a source.

    ``path``: the file, plain or gzipped, or the folder that holds ``scrapes.jsonl.gz``;
    ``instance``: name of the server where a line has none; ``progress``: called with (bytes read,
    bytes in all) of the file as it is read.
    """

    def __init__(
        self,
        path: str | Path,
        instance: str = "host:8000",
        progress: Progress | None = None,
    ) -> None:
        self._location = Path(path)
        self._instance = instance
        self._progress = progress
        self._parser = PageParser()
        self._read: Collected | None = None
        self.name = f"recording {self._location}"
        self.settle_seconds = 0.0

    def span(self) -> tuple[datetime, datetime]:
        """First scrape and just after the last: ``collect(*span())`` is all of it.

        Raises RecordingError: as :meth:`collect`.
        """
        times = self._whole().scrapes["time"]
        first, last = times.min(), times.max()
        assert isinstance(first, datetime)  # noqa: S101 - a page without rows was refused
        assert isinstance(last, datetime)  # noqa: S101
        return first.astimezone(UTC), last.astimezone(UTC) + timedelta(microseconds=1)

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Scrapes and problems with since <= time < until; the file is read once.

        A broken line is a problem with file:line and the time of the line before it.

        Raises RecordingError: the file is not there, or no line of it is a scrape.
        """
        whole = self._whole()
        inside = pl.col("time").is_between(since, until, closed="left")
        problems = tuple(p for p in whole.problems if p.time is None or since <= p.time < until)
        return Collected(whole.scrapes.filter(inside), whole.targets, problems)

    def next_after(self, time: datetime) -> datetime | None:
        """The first scrape at or after ``time``; None after the last."""
        first = self._whole().scrapes.filter(pl.col("time") >= time)["time"].min()
        return first.astimezone(UTC) if isinstance(first, datetime) else None

    def close(self) -> None:
        """Forget what was read."""
        self._read = None

    def _whole(self) -> Collected:
        if self._read is None:
            file = _file(self._location)
            self._read = _parsed(file, self._instance, self._parser, self._progress)
        return self._read


def _file(location: Path) -> Path:
    if not location.is_dir():
        return location
    for name in _NAMES:
        if (location / name).is_file():
            return location / name
    raise RecordingError(f"{location}: holds no {' or '.join(_NAMES)}", help_text=HOW_TO_RECORD)


def _parsed(path: Path, instance: str, parser: PageParser, progress: Progress | None) -> Collected:
    """The whole file as a table; each body is let go once its numbers are read."""
    batch = parser.batch()
    read: set[tuple[str, datetime]] = set()
    broken: list[tuple[int, str, datetime | None]] = []
    at: datetime | None = None
    for number, text in _lines(path, progress):
        line = text if isinstance(text, str) else _line(text)
        if isinstance(line, str):
            broken.append((number, line, at))
            continue
        at, name = line.time, line.instance or instance
        if (name, at) in read:
            what = f"another scrape of {name} at {at.isoformat()}: the first is kept"
            broken.append((number, what, at))
            continue
        read.add((name, at))
        if line.status != 200:
            batch.fail(name, at, line.failure)
        else:
            batch.add(name, at, line.body.encode())
    if not read:
        number, why, _ = broken[0] if broken else (1, "the file is empty", None)
        raise RecordingError(f"{path}:{number}: not a recording: {why}", help_text=HOW_TO_RECORD)
    first = min(time for _, time in read)
    for number, why, time in broken[:_NAMED_LINES]:
        batch.problem(f"{path}:{number}", why, time or first)
    if len(broken) > _NAMED_LINES:
        number, _, time = broken[_NAMED_LINES]
        rest = len(broken) - _NAMED_LINES
        batch.problem(f"{path}:{number}", f"and {rest} more lines from here on", time or first)
    return batch.finish()


def _line(text: bytes) -> _Line | str:
    """One line, or why it is no scrape."""
    try:
        return _Line.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        return ": ".join([*map(str, first["loc"][:1]), first["msg"]])


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
                if not line.strip():
                    continue
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
