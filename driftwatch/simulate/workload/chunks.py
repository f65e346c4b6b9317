"""A file as frames of a few hundred thousand rows, each row with its line: CSV, JSONL, Parquet.

Memory stays that of one block, whatever the size of the file; gzip is read as a stream. What a
file is, is decided by its first bytes, never by its name. Problems are collected by line.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import Integers

NAMED = 20  # problems that are spelt out; of a broken file of 10^7 lines the rest is a count


class Problems:
    """Collects problems of one file in bounded memory.

    Attributes:
        path: the file as the user named it.
        unit: what is counted in it, ``line`` or ``row`` (Parquet has no lines).
    """

    def __init__(self, path: str, unit: str = "line") -> None:
        self.path = path
        self.unit = unit
        self._named: list[tuple[int, str]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, line: int, message: str) -> None:
        """One problem at one line."""
        self._count += 1
        if len(self._named) < NAMED:
            self._named.append((line, message))

    def add_all(self, lines: npt.NDArray[np.int64], messages: list[str]) -> None:
        """Many problems, in any order; ``messages`` may stop after the first ``NAMED``."""
        self._count += len(lines)
        self._named += zip(lines.tolist()[:NAMED], messages, strict=False)

    def sort(self) -> None:
        """Keep the first by line; called between blocks, which come in order."""
        self._named = sorted(self._named, key=lambda one: one[0])[:NAMED]

    def texts(self) -> tuple[str, ...]:
        """``path:line: what``, and how many more there are."""
        self.sort()
        where = ":" if self.unit == "line" else f":{self.unit} "
        texts = [f"{self.path}{where}{line}: {message}" for line, message in self._named]
        if self._count > len(texts):
            texts.append(f"{self.path}: and {self._count - len(texts):,} more")
        return tuple(texts)

    def raise_any(self) -> None:
        """End here where something was wrong.

        Raises WorkloadError: with every named problem and the count of the rest.
        """
        if self:
            raise WorkloadError(self.texts())


BLOCK_BYTES = 8 << 20
MAX_LINE_BYTES = 16 << 20  # a longer "line" is no text file
ROWS = 500_000
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Some rows of a file."""

    lines: Integers  # line (or row) number of each row, from 1, as an editor counts
    frame: pl.DataFrame  # the columns as they stand there; text where the format knows no types


@contextlib.contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """The file's bytes, gunzipped where it is gzip.

    Raises WorkloadError: it cannot be read, or its gzip data are damaged.
    """
    try:
        with path.open("rb") as raw:
            if raw.peek(2)[:2] == _GZIP:
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    # GzipFile is a reader; its peek would not give more than it has at hand
                    yield io.BufferedReader(unpacked, buffer_size=1 << 16)
            else:
                yield raw
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


def chunks(
    path: Path, stream: io.BufferedReader, problems: Problems, wanted: frozenset[str]
) -> Iterator[Chunk]:
    """The rows of an opened file.

    Args:
        path: the file as the user named it, for messages.
        stream: its bytes, from ``opened``.
        problems: takes the lines that are no rows; its ``unit`` is set to ``row`` for Parquet.
        wanted: columns whose values must be numbers or null where the format has types.

    Raises:
        WorkloadError: the file is empty, no text, or no table.
    """
    head = stream.peek(4)[:4]
    if not head:
        raise WorkloadError((f"{path}: the file is empty",))
    if head == _PARQUET:
        problems.unit = "row"
        yield from _parquet(path, stream)
        return
    blocks = _text_blocks(path, stream)
    first = next(blocks, None)
    if first is None or not first[1].strip():
        raise WorkloadError((f"{path}: the file is empty",))
    start = first[1].removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start == b"[":
        raise WorkloadError(
            (f"{path}: a JSON array; one object a line (JSONL) is read",),
            help_text="jq -c '.[]' FILE writes it so",
        )
    if start == b"{":
        yield from jsonl_chunks(first, blocks, problems, wanted)
    else:
        yield from _csv(path, first, blocks, problems)


def _text_blocks(path: Path, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Whole lines of about ``BLOCK_BYTES``, with the number of the first one."""
    line, rest = 1, b""
    while data := stream.read(BLOCK_BYTES):
        rest += data
        end = rest.rfind(b"\n") + 1
        if not end:
            if len(rest) > MAX_LINE_BYTES:
                raise WorkloadError(
                    (f"{path}:{line}: no line end in {len(rest):,} bytes: no text file",)
                )
            continue
        yield line, rest[:end]
        line += rest.count(b"\n", 0, end)
        rest = rest[end:]
    if rest:
        yield line, rest


def _csv(
    path: Path, first: tuple[int, bytes], blocks: Iterator[tuple[int, bytes]], problems: Problems
) -> Iterator[Chunk]:
    """Columns by the header's names, every value as text."""
    line, block = first
    header_bytes, _, body = block.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    header_text = header_bytes.decode("utf-8", "replace").strip("\r")
    separator = max(",;\t", key=header_text.count)
    header = [name.strip().strip('"').strip() for name in header_text.split(separator)]
    if doubled := sorted({name for name in header if header.count(name) > 1}):
        raise WorkloadError((f"{path}:1: column {', '.join(map(repr, doubled))} stands twice",))
    if body.strip():
        yield _csv_chunk(line + 1, body, header, separator, problems)
    else:
        yield Chunk(np.zeros(0, np.int64), pl.DataFrame(schema=dict.fromkeys(header, pl.String)))
    for number, data in blocks:
        if data.strip():
            yield _csv_chunk(number, data, header, separator, problems)


def _csv_chunk(
    line: int, block: bytes, header: list[str], separator: str, problems: Problems
) -> Chunk:
    if b'"' in block and (broken := _open_quote(block)) is not None:
        raise WorkloadError(
            (f"{problems.path}:{line + broken}: a quote that does not end on its line",)
        )
    schema = dict.fromkeys(header, pl.String)
    options = {"has_header": False, "separator": separator, "encoding": "utf8-lossy"}
    try:
        frame = pl.read_csv(block, schema=schema, **options)  # type: ignore[arg-type]
    except pl.exceptions.PolarsError:  # too many fields somewhere, or too few in the first line
        frame = _field_by_field(line, block, header, separator, problems)
    lines = np.arange(line, line + frame.height, dtype=np.int64)
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series().to_numpy()
    return Chunk(lines, frame) if not blank.any() else Chunk(lines[~blank], frame.filter(~blank))


def _field_by_field(
    line: int, block: bytes, header: list[str], separator: str, problems: Problems
) -> pl.DataFrame:
    rows: list[list[str | None]] = []
    for offset, text in enumerate(block.decode("utf-8", "replace").rstrip("\n").split("\n")):
        fields = next(csv.reader([text.rstrip("\r")], delimiter=separator), [])
        if len(fields) > len(header):
            problems.add(line + offset, f"{len(fields)} fields, the header has {len(header)}")
        wanted = [field or None for field in fields[: len(header)]]
        rows.append(wanted + [None] * (len(header) - len(wanted)))
    return pl.DataFrame(rows, schema=dict.fromkeys(header, pl.String), orient="row")


def _open_quote(block: bytes) -> int | None:
    """Offset of the first line with an odd number of quotes."""
    for offset, text in enumerate(block.split(b"\n")):
        if text.count(b'"') % 2:
            return offset
    return None


def _parquet(path: Path, stream: io.BufferedReader) -> Iterator[Chunk]:
    """Typed columns, some row groups at a time."""
    # Parquet is read from its end: out of gzip or a pipe it is put into a file first, not memory
    with contextlib.ExitStack() as stack:
        source = path
        if isinstance(stream.raw, gzip.GzipFile) or not stream.seekable():
            beside = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".parquet"))
            shutil.copyfileobj(stream, beside)
            beside.flush()
            source = Path(beside.name)
        try:
            scan = pl.scan_parquet(source, glob=False)
            # nested columns are named, not read, except for lists
            names = scan.collect_schema().names()
            rows = scan.select(pl.len()).collect().item()
            for start in range(0, max(rows, 1), ROWS):
                frame = scan.select(names).slice(start, ROWS).collect()
                yield Chunk(np.arange(start + 1, start + 1 + frame.height), frame)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            reason = str(error).splitlines()[0]
            raise WorkloadError((f"{path}: no whole Parquet file ({reason})",)) from error


def jsonl_chunks(
    first: tuple[int, bytes],
    blocks: Iterator[tuple[int, bytes]],
    problems: Problems,
    wanted: frozenset[str],
) -> Iterator[Chunk]:
    """One chunk a block; lines that are no JSON object go to ``problems``."""
    line, block = first
    yield _chunk(line, block.removeprefix(b"\xef\xbb\xbf"), problems, wanted)
    for line, block in blocks:
        yield _chunk(line, block, problems, wanted)


def _chunk(line: int, block: bytes, problems: Problems, wanted: frozenset[str]) -> Chunk:
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    try:
        frame = pl.read_ndjson(block, infer_schema_length=None)
    except pl.exceptions.PolarsError:
        return _line_by_line(line, block, problems)
    # text or a truth value among numbers becomes text there; a blank line shifts the rows
    typed = all(
        dtype.is_numeric() or dtype == pl.Null
        for name, dtype in frame.schema.items()
        if name in wanted
    )
    if frame.height != lines or not typed:
        return _line_by_line(line, block, problems)
    return Chunk(np.arange(line, line + frame.height, dtype=np.int64), frame)


def _line_by_line(line: int, block: bytes, problems: Problems) -> Chunk:
    """Every value as text: of a number its digits, of anything else its JSON."""
    numbers: list[int] = []
    rows: list[dict[str, str | None]] = []
    for offset, text in enumerate(block.split(b"\n")):
        if not text.strip():
            continue
        try:
            fields = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            problems.add(line + offset, f"no JSON: {error.msg} (column {error.colno})")
            continue
        if not isinstance(fields, dict):
            problems.add(line + offset, "no JSON object")
            continue
        numbers.append(line + offset)
        rows.append({name: _text(value) for name, value in fields.items()})
    names = list(dict.fromkeys(name for row in rows for name in row))
    frame = pl.DataFrame(
        {name: pl.Series([row.get(name) for row in rows], dtype=pl.String) for name in names}
    )
    return Chunk(np.array(numbers, dtype=np.int64), frame)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value)
    return orjson.dumps(value).decode()
