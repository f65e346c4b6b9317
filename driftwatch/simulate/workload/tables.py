"""A file as one table, each row with its line: CSV, JSONL, Parquet, or one of them in gzip.

What a file is, is decided by its first bytes, never by its name. Problems are collected by line.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import Integers

NAMED = 20  # problems that are spelt out; of a broken file of 10^7 lines the rest is a count
MAX_LINE_BYTES = 16 << 20  # a longer "line" is no text file
_GZIP, _PARQUET, _BYTE_ORDER_MARK = b"\x1f\x8b", b"PAR1", b"\xef\xbb\xbf"


@dataclass(slots=True)
class Problems:
    """Collects problems of one file in bounded memory."""

    path: str  # the file as the user named it
    unit: str = "line"  # what is counted in it; ``row`` in Parquet
    _named: list[tuple[int, str]] = field(default_factory=list)
    _count: int = 0

    def add(self, line: int, message: str) -> None:
        """One problem at one line."""
        self.add_all(np.array([line]), [message])

    def add_all(self, lines: npt.NDArray[np.int64], messages: list[str]) -> None:
        """Many problems, by line; ``messages`` may stop after the first ``NAMED``."""
        self._count += len(lines)
        self._named += zip(lines.tolist()[:NAMED], messages, strict=False)
        self._named = sorted(self._named, key=lambda one: one[0])[:NAMED]

    def raise_any(self) -> None:
        """End here where something was wrong.

        Raises WorkloadError: ``path:line: what`` of the first problems, and how many more there
        are.
        """
        where = ":" if self.unit == "line" else f":{self.unit} "
        texts = [f"{self.path}{where}{line}: {message}" for line, message in self._named]
        if self._count > len(texts):
            texts.append(f"{self.path}: and {self._count - len(texts):,} more")
        if texts:
            raise WorkloadError(tuple(texts))


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The rows of a file."""

    lines: Integers  # line (or row) number of each row, from 1, as an editor counts
    frame: pl.DataFrame  # the columns as they stand there; text where the format knows no types

    def head(self, count: int) -> Table:
        """The first rows."""
        return Table(self.lines[:count], self.frame.head(count))


def read_table(path: Path, problems: Problems, wanted: frozenset[str]) -> Table:
    """The rows of a file.

    ``problems``: takes the lines that are no rows; its ``unit`` is set to ``row`` for Parquet;
    ``wanted``: columns whose values must be numbers or null where the format has types.
    Raises WorkloadError: the file cannot be read, is empty, damaged, no text, or no table.
    """
    body = _unpacked(path)
    if body.startswith(_PARQUET):
        problems.unit = "row"
        return _parquet(path, body)
    body = body.removeprefix(_BYTE_ORDER_MARK)
    if not body.strip():
        raise WorkloadError((f"{path}: the file is empty",))
    if len(body) > MAX_LINE_BYTES and b"\n" not in body[:MAX_LINE_BYTES]:
        raise WorkloadError((f"{path}:1: no line end in {MAX_LINE_BYTES:,} bytes: no text file",))
    start = body.lstrip()[:1]
    if start == b"[":
        raise WorkloadError(
            (f"{path}: a JSON array; one object a line (JSONL) is read",),
            help_text="jq -c '.[]' FILE writes it so",
        )
    return _jsonl(body, problems, wanted) if start == b"{" else _csv(path, body, problems)


def _unpacked(path: Path) -> bytes:
    try:
        body = path.read_bytes()
        return gzip.decompress(body) if body.startswith(_GZIP) else body
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise WorkloadError(
            (f"{path}: the gzip data are cut off or damaged ({error})",),
            help_text="make or copy the file again; gzip -t FILE tells whether it is whole",
        ) from error
    except OSError as error:
        raise WorkloadError(
            (f"{path}: {error.strerror or error}",),
            help_text="name a file that is there and can be read: JSONL, CSV or Parquet",
        ) from error


def _parquet(path: Path, body: bytes) -> Table:
    try:
        frame = pl.read_parquet(BytesIO(body))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).splitlines()[0]
        raise WorkloadError((f"{path}: no whole Parquet file ({reason})",)) from error
    return Table(np.arange(1, 1 + frame.height), frame)


def _csv(path: Path, body: bytes, problems: Problems) -> Table:
    """Columns by the header's names, every value as text."""
    header_bytes, _, rows = body.partition(b"\n")
    header_text = header_bytes.decode("utf-8", "replace").strip("\r")
    separator = max(",;\t", key=header_text.count)
    header = [name.strip().strip('"').strip() for name in header_text.split(separator)]
    if doubled := sorted({name for name in header if header.count(name) > 1}):
        raise WorkloadError((f"{path}:1: column {', '.join(map(repr, doubled))} stands twice",))
    schema = dict.fromkeys(header, pl.String)
    if not rows.strip():
        return Table(np.zeros(0, np.int64), pl.DataFrame(schema=schema))
    if b'"' in rows:
        for line, text in enumerate(rows.split(b"\n"), start=2):
            if text.count(b'"') % 2:
                raise WorkloadError((f"{path}:{line}: a quote that does not end on its line",))
    options = {"has_header": False, "separator": separator, "encoding": "utf8-lossy"}
    try:
        frame = pl.read_csv(rows, schema=schema, **options)  # type: ignore[arg-type]
    except pl.exceptions.PolarsError:  # too many fields somewhere, or too few in the first line
        frame = _field_by_field(rows, header, separator, problems)
    lines = np.arange(2, 2 + frame.height, dtype=np.int64)
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series().to_numpy()
    return Table(lines[~blank], frame.filter(~blank))


def _field_by_field(
    body: bytes, header: list[str], separator: str, problems: Problems
) -> pl.DataFrame:
    rows: list[list[str | None]] = []
    text = body.decode("utf-8", "replace").rstrip("\n")
    for number, line in enumerate(text.split("\n"), start=2):
        fields = next(csv.reader([line.rstrip("\r")], delimiter=separator), [])
        if len(fields) > len(header):
            problems.add(number, f"{len(fields)} fields, the header has {len(header)}")
        known = [text or None for text in fields[: len(header)]]
        rows.append(known + [None] * (len(header) - len(known)))
    return pl.DataFrame(rows, schema=dict.fromkeys(header, pl.String), orient="row")


def _jsonl(body: bytes, problems: Problems, wanted: frozenset[str]) -> Table:
    """A row a line; lines that are no JSON object go to ``problems``."""
    lines = body.count(b"\n") + (not body.endswith(b"\n"))
    try:
        frame = pl.read_ndjson(body, infer_schema_length=None)
    except pl.exceptions.PolarsError:
        return _line_by_line(body, problems)
    # text or a truth value among numbers becomes text there; a blank line shifts the rows
    typed = all(
        dtype.is_numeric() or dtype == pl.Null
        for name, dtype in frame.schema.items()
        if name in wanted
    )
    if frame.height != lines or not typed:
        return _line_by_line(body, problems)
    return Table(np.arange(1, 1 + frame.height, dtype=np.int64), frame)


def _line_by_line(body: bytes, problems: Problems) -> Table:
    """Every value as text: of a number its digits, of anything else its JSON."""
    numbers: list[int] = []
    rows: list[dict[str, str | None]] = []
    for number, text in enumerate(body.split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            fields = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            problems.add(number, f"no JSON: {error.msg} (column {error.colno})")
            continue
        if not isinstance(fields, dict):
            problems.add(number, "no JSON object")
            continue
        numbers.append(number)
        rows.append({name: _text(value) for name, value in fields.items()})
    names = list(dict.fromkeys(name for row in rows for name in row))
    frame = pl.DataFrame(
        {name: pl.Series([row.get(name) for row in rows], dtype=pl.String) for name in names}
    )
    return Table(np.array(numbers, dtype=np.int64), frame)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value)
    return orjson.dumps(value).decode()
