"""Tables that ``driftwatch simulate`` writes: JSON lines or Parquet, by suffix."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from driftwatch.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
_ROWS = 200_000  # JSON of so many rows is held at once


def check_outputs(outputs: dict[str, Path | None], inputs: Sequence[Path]) -> None:
    """Refuse, before anything runs, what could not be written afterwards.

    Args:
        outputs: option → file, None where it is not asked for.
        inputs: files that are read.

    Raises:
        UsageError: a suffix that says no format, no such folder, one file for two tables.
    """
    taken = {path.resolve(): "what is read" for path in inputs}
    for option, path in outputs.items():
        if path is None:
            continue
        if not path.name.endswith(SUFFIXES):
            raise UsageError(
                f"{option} {path}: the suffix says no format",
                help_text=f"end the name in {', '.join(SUFFIXES)}",
            )
        if path.is_dir() or not path.parent.is_dir():
            raise UsageError(f"{option} {path}: no such folder, or a folder itself")
        if (other := taken.get(path.resolve())) is not None:
            raise UsageError(f"{option} {path}: the same file as {other}")
        taken[path.resolve()] = option


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """One row a line, or Parquet; floats so that they read back as the same numbers.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        if path.name.endswith(".parquet"):
            frame.write_parquet(path)
        elif path.name.endswith(".gz"):
            # no name and no time in the header: the same rows are the same bytes
            with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
                for part in frame.iter_slices(_ROWS):
                    packed.write(part.write_ndjson().encode())
        else:
            with path.open("wb") as plain:
                for part in frame.iter_slices(_ROWS):
                    plain.write(part.write_ndjson().encode())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
