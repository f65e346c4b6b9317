"""Tables that ``driftwatch simulate`` writes: JSON lines or Parquet, by suffix."""

from __future__ import annotations

import contextlib
import gzip
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from driftwatch.cli.simulate.screen import unwritable
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
_ROWS = 200_000  # JSON of so many rows is held at once


def check_outputs(outputs: dict[str, Path | None], inputs: Sequence[Path]) -> None:
    """Refuse, before anything runs, what could not be written afterwards.

    Raises UsageError: a suffix that says no format, no such folder, one file for two tables.
    """
    uses = {path.resolve(): "what is read" for path in inputs}
    for option, path in outputs.items():
        if path is None:
            continue
        if not path.name.endswith(SUFFIXES):
            raise UsageError(
                f"{option} {path}: the suffix names no format",
                help_text=f"end the name in {', '.join(SUFFIXES)}",
            )
        if path.is_dir() or not path.parent.is_dir():
            raise UsageError(
                f"{option} {path}: no such folder, or a folder itself",
                help_text="name a file in a folder that is there",
            )
        if (other := uses.get(path.resolve())) is not None:
            raise UsageError(
                f"{option} {path}: the same file as {other}", help_text="name another file"
            )
        uses[path.resolve()] = option


class TableWriter:
    """A table, written part by part; the file is there once it is whole.

    JSON: one row a line. Floats so that they read back as the same numbers.

    ``path``: the file; its suffix says the format. Raises UsageError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: list[Path] = []
        self._open: list[IO[bytes]] = []  # what is written through, what it lies on
        with self._named_errors():
            # beside it, so that it can be renamed
            self._folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))

    def append(self, frame: pl.DataFrame) -> None:
        """More rows.

        Raises UsageError: they cannot be written.
        """
        with self._named_errors():
            if self._path.name.endswith(".parquet"):
                if frame.height or not self._parts:
                    self._parts.append(self._folder / f"{len(self._parts):06}.parquet")
                    frame.write_parquet(self._parts[-1])
                return
            if not self._open:
                self._parts.append(self._folder / "rows")
                self._open = [self._parts[0].open("wb")]
                if self._path.name.endswith(".gz"):
                    # no name and no time in the header: the same rows are the same bytes
                    packed = gzip.GzipFile("", "wb", 6, self._open[0], mtime=0)
                    self._open.insert(0, cast("IO[bytes]", packed))
            for part in frame.iter_slices(_ROWS):
                self._open[0].write(part.write_ndjson().encode())

    def close(self) -> None:
        """The file, whole.

        Raises UsageError: it cannot be written.
        """
        with self._named_errors():
            for stream in self._open:
                stream.close()
            if len(self._parts) > 1:
                import polars as pl

                whole = self._folder / "whole.parquet"
                pl.scan_parquet(self._parts, glob=False).sink_parquet(whole)
                self._parts = [whole]
            if self._parts:
                self._parts[0].replace(self._path)
        self.discard()

    def discard(self) -> None:
        """Leave nothing behind but what was closed."""
        for stream in self._open:
            with contextlib.suppress(OSError):
                stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        import polars as pl

        try:
            yield
        except OSError as error:
            raise unwritable(self._path, error.strerror or str(error)) from error
        except pl.exceptions.ComputeError as error:
            # what polars makes of a full disk, with its plan in further lines
            raise unwritable(self._path, str(error).splitlines()[0]) from error


class InOrder:
    """Rows that come in any order, handed on in that of their ``index`` from 0."""

    def __init__(self) -> None:
        self._next = 0
        self._held: list[pl.DataFrame] = []

    def take(self, frame: pl.DataFrame) -> pl.DataFrame:
        """More rows; those that are due now, in order."""
        import polars as pl

        self._held.append(frame)
        if not any((rows["index"] == self._next).any() for rows in self._held):
            return frame.clear()
        rows = pl.concat(self._held).sort("index")
        gaps = rows["index"] != pl.int_range(self._next, self._next + rows.height, eager=True)
        due = rows.height if not gaps.any() else int(gaps.arg_max() or 0)
        self._next += due
        self._held = [rows.slice(due)]
        return rows.slice(0, due)
