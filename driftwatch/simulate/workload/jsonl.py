"""JSON objects, one a line: fast where all is well, line by line where something is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import polars as pl

from driftwatch.simulate.workload.chunks import Chunk
from driftwatch.simulate.workload.problems import Problems


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
            found = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            problems.add(line + offset, f"no JSON: {error.msg} (column {error.colno})")
            continue
        if not isinstance(found, dict):
            problems.add(line + offset, "no JSON object")
            continue
        numbers.append(line + offset)
        rows.append({name: _text(value) for name, value in found.items()})
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
