"""A measured table of batch and seconds: the line through it, and which batch meets a target.

A step takes c0 + c2 · n (weights and overhead, then each request), not a power of the batch: both
are fitted and their errors said.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from driftwatch.errors import NoVerdict, WorkloadError

Floats = npt.NDArray[np.float64]

_COLUMNS = ("batch", "seconds", "tokens")
_FORM = "a CSV whose first line names the columns: batch,seconds[,tokens]"
_MOST = 1e9  # seconds, tokens or requests
_MOST_ROWS = 10_000
_MOST_PROBLEMS = 20
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
    problems: list[str] = []
    rows: list[tuple[float, float]] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, skipinitialspace=True)
            columns = [name.strip().casefold() for name in reader.fieldnames or ()]
            reader.fieldnames = columns
            if wrong := _header_problems(columns):
                raise WorkloadError(
                    tuple(f"{path}:1: {problem}" for problem in wrong),
                    help_text=_FORM,
                )
            for row in reader:
                if len(rows) >= _MOST_ROWS or len(problems) >= _MOST_PROBLEMS:
                    problems.append(f"{path}:{reader.line_num}: not read on from here")
                    break
                _add(row, f"{path}:{reader.line_num}", rows, problems)
    except OSError as error:
        raise WorkloadError(
            (f"{path}: {(error.strerror or 'cannot be read').lower()}",), help_text=_FORM
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise WorkloadError((f"{path}: no CSV text ({error})",), help_text=_FORM) from error
    if not rows and not problems:
        problems.append(f"{path}: no rows")
    if problems:
        raise WorkloadError(tuple(problems), help_text=_FORM)
    points = np.array(sorted(rows))
    return LatencyTable(points[:, 0], points[:, 1])


def _header_problems(columns: list[str]) -> list[str]:
    """Missing, unknown and repeated columns: one that is not read must not look as if it were."""
    problems = []
    if missing := [name for name in _COLUMNS[:2] if name not in columns]:
        problems.append(f"no column {' and '.join(missing)}")
    if not missing and (unknown := [name for name in columns if name not in _COLUMNS]):
        problems.append(f"unknown column {', '.join(unknown)}")
    problems += [f"column {n} is there twice" for n in _COLUMNS if columns.count(n) > 1]
    return problems


def _add(
    row: dict[str, str], where: str, rows: list[tuple[float, float]], problems: list[str]
) -> None:
    values: dict[str, float] = {"tokens": 1.0}
    for name in _COLUMNS:
        text = row.get(name)
        if name == "tokens" and name not in row:
            continue
        try:
            value = float(text or "")
        except ValueError:
            problems.append(f"{where}: {name} {text!r} is no number")
            return
        if not math.isfinite(value) or value <= 0 or (name != "seconds" and value < 1):
            problems.append(
                f"{where}: {name} {text} must be {'above 0' if name == 'seconds' else 'at least 1'}"
            )
            return
        if value > _MOST or (name == "seconds" and value < 1 / _MOST):
            problems.append(f"{where}: {name} {text} is beyond what a measurement can be")
            return
        if name != "seconds" and value != int(value):
            problems.append(f"{where}: {name} {text} must be a whole number")
            return
        values[name] = value
    rows.append((values["batch"], values["seconds"] / values["tokens"]))


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
