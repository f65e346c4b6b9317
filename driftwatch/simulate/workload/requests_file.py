"""A file of requests → ``Requests``: JSONL or CSV, known by its content.

Its columns are driftwatch's own (arrival_seconds, prompt_tokens, generation_tokens and optional
ones), those of Azure's LLM inference traces 2023 (Patel et al., "Splitwise", ISCA 2024) and 2024
(Stojkovic et al., "DynamoLLM", HPCA 2025), or those of a load generator (sent, p, g). Nothing is
guessed: impossible values are an error that names each with its line.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import NEVER, Requests, make_requests

_NAMED = 20  # problems named one by one; the rest of a broken file's 10^7 lines is a count
_LARGEST = 2**31 - 1
_GZIP, _BYTE_ORDER_MARK = b"\x1f\x8b", b"\xef\xbb\xbf"
_REQUIRED = ("arrival_seconds", "prompt_tokens", "generation_tokens")
# column → its least value, and the value of an empty field (None = it must not be empty); seconds
# are any number, other values are whole
_COLUMNS: dict[str, tuple[float, float | None]] = {
    "arrival_seconds": (0.0, None),
    "prompt_tokens": (1, None),
    "generation_tokens": (1, None),
    "priority": (-_LARGEST, 0),
    "prefix_group": (-1, -1),
    "shared_prefix_tokens": (0, 0),
    "cached_tokens": (-1, -1),
    "cancel_seconds": (0.0, NEVER),
}
# the required columns, of driftwatch, an Azure trace and a load generator
_FORMATS = (_REQUIRED, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), ("sent", "p", "g"))


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    path: Path
    lines: Integers  # line number of each row, from 1, as an editor counts
    frame: pl.DataFrame  # the file's columns, as text


class _Problems:
    """The first problems of a file by line, and the number of all."""

    def __init__(self, table: _Table) -> None:
        self._table, self._count = table, 0
        self._named: list[tuple[int, str]] = []

    def add(self, bad: Flags, text: str | Callable[[int], str]) -> None:
        """A text for all bad rows, or for each."""
        rows = np.flatnonzero(bad)
        self._count += len(rows)
        for row in rows[:_NAMED].tolist():
            message = text if isinstance(text, str) else text(row)
            self._named.append((int(self._table.lines[row]), message))

    def raise_any(self) -> None:
        """Raise WorkloadError where something was wrong."""
        named = sorted(self._named, key=lambda one: one[0])[:_NAMED]
        texts = [f"{self._table.path}:{line}: {text}" for line, text in named]
        if self._count > len(texts):
            texts.append(f"{self._table.path}: and {self._count - len(texts):,} more")
        if texts:
            raise WorkloadError(tuple(texts))


def read_requests(
    path: Path | str, *, limit: int | None = None, any_order: bool = False
) -> Requests:
    """The requests of a JSONL or CSV file, or of one in gzip, known by its content.

    ``limit``: number of requests to read; ``any_order``: sort rows that are not in the order of
    arrival (gateways write a request when it ends). Raises WorkloadError: the file cannot be read,
    lacks a column, or has impossible values: the first twenty with their lines, and the number of
    the others.
    """
    return read_workload(path, limit=limit, any_order=any_order)[0]


def read_workload(
    path: Path | str, *, limit: int | None = None, any_order: bool = False
) -> tuple[Requests, tuple[str, ...]]:
    """The requests of a file as ``read_requests``, and its columns that are not used."""
    table = _read_table(Path(path))
    table = _Table(table.path, table.lines[:limit], table.frame[:limit])
    names = _recognised(table)
    if not table.frame.height:
        raise WorkloadError((f"{path}: no request in it",))
    problems = _Problems(table)
    columns = {
        ours: _times(table.frame[theirs], problems)
        if theirs == "TIMESTAMP"
        else _numbers(ours, theirs, table.frame[theirs], problems)
        for ours, theirs in names.items()
    }
    _check_rows(columns, problems, any_order=any_order)
    problems.raise_any()
    if "prefix_group" in columns and "shared_prefix_tokens" not in columns:
        raise WorkloadError(
            (f"{path}: prefix_group without a column shared_prefix_tokens",),
            help_text="it counts first tokens of a request that are its group's common text",
        )
    if "shared_prefix_tokens" in columns:
        # a group's text may be longer than a prompt that begins with it
        shared = np.minimum(columns["shared_prefix_tokens"], columns["prompt_tokens"])
        columns["shared_prefix_tokens"] = shared
    if any_order:
        order = np.argsort(columns["arrival_seconds"], kind="stable")
        columns = {name: values[order] for name, values in columns.items()}
    unknown = tuple(name for name in table.frame.columns if name not in names.values())
    return make_requests(**columns), unknown


def _read_table(path: Path) -> _Table:
    try:
        body = path.read_bytes()
        body = gzip.decompress(body) if body.startswith(_GZIP) else body
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise WorkloadError(
            (f"{path}: the gzip data are cut off or damaged ({error})",),
            help_text="make or copy the file again; gzip -t FILE tells whether it is whole",
        ) from error
    except OSError as error:
        raise WorkloadError(
            (f"{path}: {error.strerror or error}",),
            help_text="name a file that is there and can be read: JSONL or CSV",
        ) from error
    body = body.removeprefix(_BYTE_ORDER_MARK)
    start = body.lstrip()[:1]
    if not start:
        raise WorkloadError((f"{path}: the file is empty",))
    if start == b"[":
        raise WorkloadError(
            (f"{path}: a JSON array; driftwatch reads one object a line (JSONL)",),
            help_text="convert it with jq -c '.[]' FILE",
        )
    return _jsonl(path, body) if start == b"{" else _csv(path, body)


def _jsonl(path: Path, body: bytes) -> _Table:
    lines, rows = [], []
    for line, text in enumerate(body.split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            row = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            why = f"{path}:{line}: no JSON: {error.msg} (column {error.colno}); an object a line"
            raise WorkloadError((why,)) from error
        if not isinstance(row, dict):
            raise WorkloadError((f"{path}:{line}: no JSON object",))
        lines.append(line)
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [_text(row.get(name)) for row in rows] for name in names}
    return _Table(path, np.array(lines), pl.DataFrame(columns, dict.fromkeys(names, pl.String)))


def _text(value: Any) -> str | None:
    """A JSON value as in the file: text keeps its quotes, so that it is no number."""
    return None if value is None else orjson.dumps(value).decode()


def _csv(path: Path, body: bytes) -> _Table:
    header = body.partition(b"\n")[0].decode("utf-8", "replace")
    separator = max(",;\t", key=header.count)
    try:
        frame = pl.read_csv(body, separator=separator, infer_schema=False, encoding="utf8-lossy")
    except pl.exceptions.PolarsError as error:
        rows = csv.reader(body.decode("utf-8", "replace").splitlines(), delimiter=separator)
        width = len(next(rows, []))
        wide = next(((n, len(row)) for n, row in enumerate(rows, 2) if len(row) > width), None)
        why = f":{wide[0]}: {wide[1]} fields, the header has {width}" if wide else f": {error}"
        raise WorkloadError((f"{path}{why}".splitlines()[0],)) from error
    frame = frame.rename(str.strip)
    lines = np.arange(2, 2 + frame.height)
    filled = frame.select(~pl.all_horizontal(pl.all().is_null())).to_series()
    return _Table(path, lines[filled.to_numpy()], frame.filter(filled))


def _recognised(table: _Table) -> dict[str, str]:
    """Our column → the file's.

    Raises WorkloadError: no format has these columns; it names the missing ones of the nearest.
    """
    there = set(table.frame.columns)
    names = max(_FORMATS, key=lambda one: len(there & set(one)))
    missing = [name for name in names if name not in there]
    if not missing:
        own = {name: name for name in _COLUMNS if name in there and names == _REQUIRED}
        return dict(zip(_REQUIRED, names, strict=True)) | own
    hints = [
        f"{close[0]} for {name}"
        for name in missing
        if (close := difflib.get_close_matches(name, sorted(there - set(names)), n=1))
    ]
    listed = ", ".join(sorted(there)[:12]) or "none"
    raise WorkloadError(
        (f"{table.path}: no column {', '.join(missing)} (there: {listed})",),
        help_text=(f"rename {', '.join(hints)}; " if hints else "")
        + "columns are arrival_seconds, prompt_tokens, generation_tokens, "
        + "those of an Azure trace, or sent, p, g of a load generator",
    )


def _numbers(name: str, label: str, raw: pl.Series, problems: _Problems) -> Floats:
    """A column as checked numbers; NaN = an impossible value. ``label``: its name in the file."""
    least, neutral = _COLUMNS[name]
    whole = not name.endswith("_seconds")
    raw = raw.str.strip_chars().replace("", None)
    values = np.array(raw.cast(pl.Float64, strict=False), dtype=np.float64)  # null is NaN
    if neutral is not None:
        values[raw.is_null().to_numpy()] = neutral
    bad = ~(values >= least) | ((values == np.inf) & (neutral != NEVER))
    if whole:
        bad |= (values != np.floor(values)) | (values > _LARGEST)
    wanted = f"a whole number from {least:g} to {_LARGEST:,}" if whole else "a time from 0 on"
    problems.add(bad, lambda row: _wrong(label, raw[row], wanted))
    values[bad] = np.nan
    return values


def _wrong(label: str, value: object, wanted: str) -> str:
    return f"no {label}" if value is None else f"{label} is {str(value)[:40]}, not {wanted}"


def _times(raw: pl.Series, problems: _Problems) -> Floats:
    """TIMESTAMP as seconds since the first one; a written time zone counts."""
    text = raw.str.strip_chars(' "').str.replace("T", " ", literal=True)
    plain = text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="ns", strict=False)
    zoned = text.str.replace("Z$", "+00:00").str.to_datetime(
        "%Y-%m-%d %H:%M:%S%.f%:z", time_unit="ns", time_zone="UTC", strict=False
    )
    stamps = plain.zip_with(plain.is_not_null(), zoned.dt.replace_time_zone(None))
    unread = stamps.is_null().to_numpy()
    wanted = "a time as 2023-11-16 18:15:46.6805900"
    problems.add(unread, lambda row: _wrong("TIMESTAMP", raw[row], wanted))
    ticks = stamps.to_physical()
    # subtracted as integers: a float holds no nanoseconds of an epoch
    since = ticks - next(iter(ticks.drop_nulls()), 0)
    return np.where(unread, np.nan, since.fill_null(0).to_numpy() / 1e9)


def _check_rows(columns: dict[str, Floats], problems: _Problems, *, any_order: bool) -> None:
    """Problems between columns and rows; refused values cause none."""
    arrival, prompt = columns["arrival_seconds"], columns["prompt_tokens"]
    if not any_order:
        before = np.append(-np.inf, arrival[:-1])
        late = arrival < before
        more = f", as in {late.sum() - 1:,} more rows" if late.sum() > 1 else ""
        text = f"arrival_seconds is before that of the row above{more}: sort the file by arrival"
        problems.add(late & (late.cumsum() == 1), text)
    if (cancel := columns.get("cancel_seconds")) is not None:
        problems.add(cancel < arrival, "cancel_seconds is before arrival_seconds")
    if (cached := columns.get("cached_tokens")) is not None:
        text = "cached_tokens is not below prompt_tokens: the last token is always computed"
        problems.add(cached >= prompt, text)
    if (shared := columns.get("shared_prefix_tokens")) is not None:
        group = columns.get("prefix_group", np.full(len(shared), -1.0))
        problems.add((shared > 0) & (group < 0), "shared_prefix_tokens without a prefix_group")
