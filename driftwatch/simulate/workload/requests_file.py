"""A file of requests → ``Requests``: any known format, checked value by value, bounded memory.

Nothing is guessed: a value that cannot be ends the reading, with the first problems by line; what
is not used of the file is named in ``Workload.notes``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import Floats, Requests, make_requests
from driftwatch.simulate.workload.chunks import Chunk, Problems, chunks, opened
from driftwatch.simulate.workload.formats import (
    BY_NAME,
    NUMERIC,
    Format,
    cross_problems,
    numbers,
    recognise,
)

_WHOLE = np.int32  # tokens are below 2^31: half the memory until they are all read


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Requests and where they come from."""

    requests: Requests  # in the order of the file, which is that of arrival
    source: str  # the format, for people
    # what of the file is not used, or cannot be expressed; a sentence each
    notes: tuple[str, ...] = ()


def read_requests(
    path: Path | str, *, limit: int | None = None, any_order: bool = False
) -> Requests:
    """The requests of a file; ``read_workload`` says where they come from as well.

    Raises WorkloadError: as ``read_workload``.
    """
    return read_workload(path, limit=limit, any_order=any_order).requests


def read_workload(
    path: Path | str, *, limit: int | None = None, any_order: bool = False
) -> Workload:
    """Requests of a JSONL, CSV or Parquet file, or of one in gzip, known by its content.

    ``path``: the file; what it is is decided by its first bytes and its columns; ``limit``: read
    only so many requests; ``any_order``: the rows may come in another order than that of arrival
    (gateways write a request when it ends); they are sorted. Raises WorkloadError: the file cannot
    be read, lacks a column, or holds what cannot be: the first twenty problems with their lines,
    and how many more there are.
    """
    path = Path(path)
    problems = Problems(str(path))
    reader: _Reader | None = None
    with opened(path) as stream:
        for chunk in chunks(path, stream, problems, NUMERIC):
            if reader is None and chunk.frame.columns:
                reader = _Reader(recognise(str(path), chunk.frame.columns), problems, any_order)
            if reader is not None:
                most = None if limit is None else limit - reader.count
                reader.take(chunk if most is None else _first(chunk, most))
                if limit is not None and reader.count >= limit:
                    break
            problems.sort()
    problems.raise_any()
    if reader is None or not reader.count:
        raise WorkloadError((f"{path}: no request in it",))
    return reader.workload()


def _first(chunk: Chunk, count: int) -> Chunk:
    return Chunk(chunk.lines[:count], chunk.frame.head(count))


class _Reader:
    """Collects the columns of one file."""

    def __init__(self, kind: Format, problems: Problems, any_order: bool) -> None:
        self._kind = kind
        self._any_order = any_order
        self._problems = problems
        self._parts: dict[str, list[npt.NDArray[Any]]] = {}
        self._unknown: dict[str, None] = {}
        self._before = -np.inf
        self._zero: int | None = None
        self.count = 0

    def take(self, chunk: Chunk) -> None:
        """One more chunk of the file."""
        kind, frame = self._kind, chunk.frame
        names = {*kind.required, *kind.optional}
        self._unknown |= dict.fromkeys(name for name in frame.columns if name not in names)
        if not frame.height:
            return
        columns: dict[str, Floats] = {}
        if kind.times is not None:
            times, self._zero = kind.times(chunk, self._zero, self._problems)
            columns["arrival_seconds"] = times
        for theirs, ours in kind.renamed.items():
            if theirs in frame.columns or theirs in kind.required or ours in self._parts:
                renamed = Chunk(chunk.lines, frame.rename({theirs: ours}, strict=False))
                columns[ours] = numbers(BY_NAME[ours], renamed, self._problems, theirs)
        before = None if self._any_order else self._before
        cross_problems(columns, chunk.lines, before, self._problems)
        arrival = columns["arrival_seconds"]
        self._before = float(arrival[-1])  # a refused one, NaN, says nothing of the next
        self._keep(columns, len(arrival))

    def _keep(self, columns: dict[str, Floats], count: int) -> None:
        """Into as little memory as holds it; nothing once the file is known to be broken."""
        before, self.count = self.count, self.count + count
        if self._problems:
            self._parts.clear()
            return
        for name, values in columns.items():
            column = BY_NAME[name]
            if name not in self._parts and before:  # an optional column that begins late
                neutral = np.inf if column.neutral is None else column.neutral
                dtype = _WHOLE if column.whole else np.float64
                self._parts[name] = [np.full(before, neutral, dtype=dtype)]
            part = values.astype(_WHOLE) if column.whole else values
            self._parts.setdefault(name, []).append(part)

    def workload(self) -> Workload:
        """All of it, once the file has ended without a problem."""
        notes = []
        if self._unknown:
            unknown = list(self._unknown)
            more = f" and {len(unknown) - 12} more" if len(unknown) > 12 else ""
            notes.append(f"columns not used: {', '.join(unknown[:12])}{more}")
        columns: dict[str, npt.NDArray[Any]] = {}
        for name in list(self._parts):
            parts = self._parts.pop(name)
            columns[name] = np.concatenate(
                parts, dtype=np.int64 if BY_NAME[name].whole else np.float64, casting="unsafe"
            )
        if "prefix_group" in columns and "shared_prefix_tokens" not in columns:
            raise WorkloadError(
                (f"{self._problems.path}: prefix_group without a column shared_prefix_tokens",),
                help_text="it counts first tokens of a request that are its group's common text",
            )
        if "shared_prefix_tokens" in columns:
            # a group's text may be longer than a prompt that begins with it
            np.minimum(
                columns["shared_prefix_tokens"],
                columns["prompt_tokens"],
                out=columns["shared_prefix_tokens"],
            )
        if self._any_order:
            order = np.argsort(columns["arrival_seconds"], kind="stable")
            columns = {name: values[order] for name, values in columns.items()}
        make: Callable[..., Requests] = make_requests
        return Workload(make(**columns), self._kind.name, tuple(notes))
