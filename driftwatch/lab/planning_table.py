"""A measured table of batch and seconds: the line through it, and which batch meets a target.

A step takes c0 + c2 · n (weights and overhead, then each request), not a power of the batch: both
are fitted and their errors said.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from driftwatch.errors import NoVerdict, WorkloadError
from driftwatch.simulate.workload.chunks import Chunk, Problems, chunks, opened
from driftwatch.simulate.workload.formats import Column, numbers

Floats = npt.NDArray[np.float64]

_COLUMNS = (
    Column("batch", 1),
    Column("seconds", 1e-9, whole=False),
    Column("tokens", 1, neutral=1),  # of a row that timed several
)
_FORM = "a CSV whose first line names the columns: batch,seconds[,tokens]"
_MOST_SECONDS = 1e9
_FEWEST_BATCHES = 3  # two points lie on every line


@dataclass(frozen=True, slots=True, eq=False)
class LatencyTable:
    """Measured times, sorted by batch."""

    batch: Floats  # requests that ran together
    seconds_per_token: Floats  # of one request's token


@dataclass(frozen=True, slots=True)
class Line:
    """c0 + c2 · n, and how well it and a power law fit."""

    c0_seconds: float  # a step of none
    c2_seconds: float  # each request
    error_ratio: float  # median |fitted / measured − 1|
    power: float  # exponent of the best power law
    power_error_ratio: float  # its median error
    largest_batch: int  # that was measured; nothing is said beyond it

    def seconds(self, batch: float) -> float:
        """A token of one request, fitted."""
        return self.c0_seconds + self.c2_seconds * batch


def read_table(path: Path) -> LatencyTable:
    """A CSV with the columns ``batch`` and ``seconds``, and ``tokens`` where a row timed several.

    Raises WorkloadError: it cannot be read; every problem with its line.
    """
    problems = Problems(str(path))
    rows: list[Floats] = []
    with opened(path) as stream:
        for chunk in chunks(path, stream, problems, frozenset()):
            table = Chunk(chunk.lines, chunk.frame.rename(_with_known_columns(path, chunk)))
            values = [numbers(column, table, problems, column.name) for column in _COLUMNS]
            late = chunk.lines[values[1] > _MOST_SECONDS]
            problems.add_all(late, [f"seconds are above {_MOST_SECONDS:,.0f}"] * len(late))
            rows.append(np.column_stack([values[0], values[1] / values[2]]))
            problems.sort()
    problems.raise_any(help_text=_FORM)
    points = np.concatenate([np.zeros((0, 2)), *rows])
    if not len(points):
        raise WorkloadError((f"{path}: no rows",), help_text=_FORM)
    points = points[np.lexsort(points.T[::-1])]
    return LatencyTable(points[:, 0], points[:, 1])


def _with_known_columns(path: Path, chunk: Chunk) -> dict[str, str]:
    """Name in the file → ours; one that is not read must not look as if it were."""
    ours = {name: name.casefold() for name in chunk.frame.columns}
    wanted = [column.name for column in _COLUMNS]
    there = list(ours.values())
    wrong = [f"no column {name}" for name in wanted[:2] if name not in there]
    if not wrong:
        wrong += [f"unknown column {name}" for name in there if name not in wanted]
        wrong += [f"column {name} is there twice" for name in wanted if there.count(name) > 1]
    if wrong:
        raise WorkloadError(tuple(f"{path}:1: {problem}" for problem in wrong), help_text=_FORM)
    return ours


def fit_line(table: LatencyTable) -> Line:
    """Least squares of the relative error, neither coefficient negative.

    Raises NoVerdict: fewer than three different batches.
    """
    from scipy.optimize import nnls

    sizes = np.unique(table.batch)
    if len(sizes) < _FEWEST_BATCHES:
        raise NoVerdict(
            f"the table has {len(sizes)} different batch sizes, a line needs {_FEWEST_BATCHES}",
            help_text="measure more batch sizes",
        )
    batch, seconds = table.batch, table.seconds_per_token
    design = np.column_stack([1 / seconds, batch / seconds])
    # scaled, so that both columns have the same size
    scale = design.max(axis=0)
    weights, _ = nnls(design / scale, np.ones(len(batch)))
    c0, c2 = weights / scale
    power, level = np.polyfit(np.log(batch), np.log(seconds), 1)
    curve = np.exp(level) * batch**power
    return Line(
        float(c0),
        float(c2),
        float(np.median(np.abs((c0 + c2 * batch) / seconds - 1))),
        float(power),
        float(np.median(np.abs(curve / seconds - 1))),
        int(batch.max()),
    )


def meeting(table: LatencyTable, line: Line, target_seconds: float) -> tuple[int, int]:
    """The largest batch that meets a time per token: measured, and by the line within the table.

    Measured means that this size and all smaller ones met it. 0: none.
    """
    measured = 0
    for size in np.unique(table.batch):
        if table.seconds_per_token[table.batch == size].max() > target_seconds:
            break
        measured = int(size)
    first = int(table.batch.min())
    if line.seconds(first) > target_seconds:
        return measured, 0
    if line.c2_seconds == 0:
        return measured, line.largest_batch
    fitted = (target_seconds - line.c0_seconds) / line.c2_seconds
    return measured, min(line.largest_batch, int(fitted * (1 + 1e-12)))
