"""A file as frames of a few hundred thousand rows, each row with its line: CSV, JSONL, Parquet.

Memory stays that of one block, whatever the size of the file; gzip is read as a stream. What a
file is, is decided by its first bytes, never by its name.
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
from typing import BinaryIO

import numpy as np
import polars as pl

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import Integers
from driftwatch.simulate.workload.problems import Problems

BLOCK_BYTES = 8 << 20
MAX_LINE_BYTES = 16 << 20  # a longer "line" is no text file
ROWS = 500_000
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Some rows of a file.

    Attributes:
        lines: line (or row) number of each row, from 1, as an editor counts.
        frame: the columns as they stand there; text where the format knows no types.
    """

    lines: Integers
    frame: pl.DataFrame


@contextlib.contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """The file's bytes, gunzipped where it is gzip.

    Raises:
        WorkloadError: it cannot be read, or its gzip data are damaged.
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
        from driftwatch.simulate.workload.jsonl import jsonl_chunks

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
    read = {"has_header": False, "separator": separator, "encoding": "utf8-lossy"}
    try:
        frame = pl.read_csv(block, schema=schema, **read)  # type: ignore[arg-type]
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
