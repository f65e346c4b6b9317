"""Writes the compact recording that :mod:`driftwatch.collect.compact` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from driftwatch.collect.compact import MANIFEST, Manifest, Part, Relabelled
from driftwatch.collect.gpu_schema import GPU_SCHEMA
from driftwatch.collect.recordings import Recording
from driftwatch.collect.schema import SCRAPE_SCHEMA, SourceProblem
from driftwatch.model import Target, TargetKey

# rows of one row group: what is read at the least. 720 scrapes are 6 h at 30 s, 1.2 MB in memory.
_ROW_GROUP = 720


def write_part(
    folder: Path, stem: str, scrapes: pl.DataFrame, gpus: pl.DataFrame | None = None
) -> list[Part]:
    """Rows as one Parquet file of each kind that has any.

    Args:
        folder: of the recording; it must exist.
        stem: unique in it; the files are ``STEM.scrapes.parquet`` and ``STEM.gpus.parquet``.

    Returns:
        what the manifest says of them.
    """
    parts = []
    for kind, rows, schema in (
        ("scrapes", scrapes, SCRAPE_SCHEMA),
        ("gpus", gpus, GPU_SCHEMA),
    ):
        if rows is None or rows.is_empty():
            continue
        if dict(rows.schema) != dict(schema):
            raise ValueError(f"{stem}: not a table of {kind}")
        file = f"{stem}.{kind}.parquet"
        rows = rows.sort("time", maintain_order=True)
        rows.write_parquet(
            folder / file, compression="zstd", compression_level=3, row_group_size=_ROW_GROUP
        )
        seconds = rows["time"].dt.epoch("us")
        parts.append(Part(file, kind, seconds[0] / 1e6, seconds[-1] / 1e6, len(rows)))
    return parts


def write_manifest(
    folder: Path,
    parts: Iterable[Part],
    targets: Mapping[TargetKey, Target],
    problems: Sequence[SourceProblem] = (),
    relabelled: Sequence[Relabelled] = (),
) -> None:
    """The manifest, last of all: a folder without one is no recording."""
    manifest = Manifest(tuple(parts), targets, tuple(problems), tuple(relabelled))
    beside = folder / f"{MANIFEST}.new"
    beside.write_bytes(manifest.to_json())
    beside.replace(folder / MANIFEST)


def write_compact(source: Recording, folder: Path) -> None:
    """Any recording as a compact one, in a new folder.

    Raises:
        RecordingError: it cannot be read.
        FileExistsError: the folder is there.
    """
    collected = source.collect(*source.span())
    folder.mkdir(parents=True)
    parts = write_part(folder, "all", collected.scrapes, collected.gpus)
    write_manifest(folder, parts, collected.targets, collected.problems)
