"""``replay --evidence FILE``: the evidence table as a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from driftwatch.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".csv")


class EvidenceFile:
    """Parquet (or JSON lines, CSV by suffix), minutes in order.

    Rows wait on disk until the end: those of weeks do not fit into memory.

    Raises:
        UsageError: the suffix is none that is written, or the folder or file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix not in _SUFFIXES:
            raise UsageError(f"{path}: give a name that ends in .parquet, .jsonl or .csv")
        if not path.parent.is_dir():
            raise UsageError(
                f"{path}: there is no folder {path.parent}", help_text=f"mkdir -p {path.parent}"
            )
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UsageError(f"{path}: not writable for this user")
        self.path = path
        self._folder = tempfile.TemporaryDirectory(prefix="driftwatch-")
        self._parts: list[Path] = []

    def add(self, rows: pl.DataFrame) -> None:
        """The minutes of one stretch; none of them before those of the last."""
        from driftwatch.diagnose.evidence_order import evidence_only

        if rows.is_empty():
            return
        part = Path(self._folder.name) / f"{len(self._parts):06}.parquet"
        evidence_only(rows).sort("start", "instance", "engine").write_parquet(part)
        self._parts.append(part)

    def close(self) -> None:
        """Write the file.

        Raises:
            UsageError: it cannot be written.
        """
        import polars as pl

        rows = pl.scan_parquet(self._parts) if self._parts else pl.LazyFrame()
        try:
            if self.path.suffix == ".parquet":
                rows.sink_parquet(self.path, compression="zstd", statistics=False)
            elif self.path.suffix == ".csv":
                rows.sink_csv(self.path)
            else:
                rows.sink_ndjson(self.path)
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror or error}") from error
        finally:
            self._folder.cleanup()
