"""Any recording as a compact one."""

from __future__ import annotations

from pathlib import Path

from driftwatch.collect.recordings.compact import write_manifest, write_part
from driftwatch.collect.schema import Recording


def write_compact(source: Recording, folder: Path) -> None:
    """Write it to a new folder."""
    collected = source.collect(*source.span())
    folder.mkdir(parents=True)
    parts = write_part(folder, "all", collected.scrapes, collected.gpus)
    write_manifest(folder, parts, collected.targets)
