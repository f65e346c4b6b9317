"""A file of requests → ``Requests``: any known format, checked value by value.

Nothing is guessed: a value that cannot be ends the reading, with the first problems by line; what
is not used of the file is named in ``Workload.notes``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import Floats, Requests, make_requests
from driftwatch.simulate.workload.formats import (
    BY_NAME,
    NUMERIC,
    Format,
    cross_problems,
    numbers,
    recognise,
)
from driftwatch.simulate.workload.tables import Problems, Table, read_table


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
    table = read_table(path, problems, NUMERIC)
    table = table if limit is None else table.head(limit)
    columns: dict[str, Floats] = {}
    if table.frame.columns:
        kind = recognise(str(path), table.frame.columns)
        columns = _columns(kind, table, problems)
        cross_problems(columns, table.lines, problems, any_order=any_order)
    problems.raise_any()
    if not len(table.lines):
        raise WorkloadError((f"{path}: no request in it",))
    if "shared_prefix_tokens" in columns:
        # a group's text may be longer than a prompt that begins with it
        shared = np.minimum(columns["shared_prefix_tokens"], columns["prompt_tokens"])
        columns["shared_prefix_tokens"] = shared
    elif "prefix_group" in columns:
        raise WorkloadError(
            (f"{path}: prefix_group without a column shared_prefix_tokens",),
            help_text="it counts first tokens of a request that are its group's common text",
        )
    if any_order:
        order = np.argsort(columns["arrival_seconds"], kind="stable")
        columns = {name: values[order] for name, values in columns.items()}
    unknown = [n for n in table.frame.columns if n not in (*kind.required, *kind.optional)]
    more = f" and {len(unknown) - 12} more" if len(unknown) > 12 else ""
    notes = (f"columns not used: {', '.join(unknown[:12])}{more}",) if unknown else ()
    make: Callable[..., Requests] = make_requests
    typed = {n: v.astype(np.int64) if BY_NAME[n].whole else v for n, v in columns.items()}
    return Workload(make(**typed), kind.name, notes)


def _columns(kind: Format, table: Table, problems: Problems) -> dict[str, Floats]:
    """Our columns of a format's, checked value by value."""
    columns: dict[str, Floats] = {}
    if kind.times is not None:
        columns["arrival_seconds"] = kind.times(table, problems)
    for theirs, ours in kind.renamed.items():
        if theirs in table.frame.columns or theirs in kind.required:
            renamed = Table(table.lines, table.frame.rename({theirs: ours}, strict=False))
            columns[ours] = numbers(BY_NAME[ours], renamed, problems, theirs)
    return columns
