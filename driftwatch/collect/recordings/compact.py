"""The compact recording: scrapes of many servers over weeks, as Parquet.

A folder: ``recording.json`` (the manifest) and Parquet parts beside it. A part of scrapes holds
rows of :data:`~driftwatch.collect.schema.SCRAPE_SCHEMA`, a part of GPUs rows of
:data:`~driftwatch.collect.gpus.GPU_SCHEMA`; failed scrapes are rows with their reason. Only the
parts, and of them only the row groups, that reach into an interval are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import orjson
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from driftwatch.collect.gpus import GPU_SCHEMA, empty_gpus
from driftwatch.collect.recordings.text import Progress
from driftwatch.collect.schema import (
    SCRAPE_SCHEMA,
    Collected,
    empty_scrapes,
    in_order,
)
from driftwatch.errors import RecordingError
from driftwatch.model import Target, TargetKey

MANIFEST = "recording.json"

# rows of one row group: what is read at the least. 720 scrapes are 6 h at 30 s, 1.2 MB in memory.
_ROW_GROUP = 720
_MAX_MANIFEST_BYTES = 64 * 2**20
_SCHEMAS: Mapping[str, Mapping[str, Any]] = {"scrapes": SCRAPE_SCHEMA, "gpus": GPU_SCHEMA}
_HELP = (
    "a compact recording is a folder with recording.json and its Parquet parts, as\n"
    "  driftwatch demo --scenario NAME --write DIR --format compact\nwrites it"
)


class _Entry(BaseModel):
    """A part of the manifest; fields in the order of the file."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)


class Part(_Entry):
    """One Parquet file of a compact recording."""

    file: str = Field(pattern=r"^[^/\\]+$")
    kind: Literal["scrapes", "gpus"]
    first: FiniteFloat  # unix seconds of the first row
    last: FiniteFloat
    rows: int


class _Labelled(_Entry):
    instance: str
    engine: str
    labels: dict[str, str]

    @property
    def key(self) -> TargetKey:
        return TargetKey(self.instance, self.engine)


class Relabelled(_Labelled):
    """Labels of one target from a moment on, as after a rollout of another image: those that are
    new or have another value; the others stay.
    """

    since: FiniteFloat  # unix seconds


class _Manifest(_Entry):
    format: Literal["driftwatch-compact-recording"]
    version: Literal[1]
    parts: tuple[Part, ...] = Field(min_length=1)
    targets: tuple[_Labelled, ...]
    relabelled: tuple[Relabelled, ...] = ()


class CompactRecordingSource:
    """A compact recording as a source.

    ``path``: its folder, or the manifest in it; ``progress``: called with (parts read, parts in
    all) as an interval is collected.
    """

    def __init__(self, path: str | Path, progress: Progress | None = None) -> None:
        location = Path(path)
        self._folder = location if location.is_dir() else location.parent
        self._progress = progress
        self._read_manifest: _Manifest | None = None
        self._times: pl.Series | None = None
        self.name = f"recording {location}"
        self.settle_seconds = 0.0

    def span(self) -> tuple[datetime, datetime]:
        """First scrape and just after the last: ``collect(*span())`` is all of it.

        Raises RecordingError: the manifest is not there, broken, or of a later version.
        """
        parts = self._manifest.parts
        return (
            _utc(min(part.first for part in parts)),
            _utc(max(part.last for part in parts)) + timedelta(microseconds=1),
        )

    def relabelled_at(self) -> tuple[datetime, ...]:
        """When labels of a target changed, in order.

        Raises RecordingError: as :meth:`span`.
        """
        return tuple(map(_utc, sorted({one.since for one in self._manifest.relabelled})))

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Scrapes with since <= time < until.

        Raises RecordingError: as :meth:`span`; a part is not there or broken.
        """
        first, last = since.timestamp(), until.timestamp()
        inside = [p for p in self._manifest.parts if p.last >= first and p.first < last]
        rows: dict[str, list[pl.DataFrame]] = {"scrapes": [], "gpus": []}
        for done, part in enumerate(inside):
            rows[part.kind].append(self._rows_of(part, since, until))
            if self._progress is not None:
                self._progress(done + 1, len(inside))
        scrapes = in_order(pl.concat([empty_scrapes(), *rows["scrapes"]]))
        # in one piece: polars panics where a text is put together from columns in unlike pieces
        gpus = pl.concat([empty_gpus(), *rows["gpus"]]).rechunk()
        return Collected(scrapes, self.targets_until(until), gpus=gpus)

    def targets_until(self, until: datetime) -> dict[TargetKey, Target]:
        """Targets with the labels that they had just before a moment.

        Raises RecordingError: as :meth:`span`.
        """
        labels = {one.key: dict(one.labels) for one in self._manifest.targets}
        for later in sorted(self._manifest.relabelled, key=lambda one: one.since):
            if later.since < until.timestamp() and later.key in labels:
                labels[later.key] |= later.labels
        # what a target is known by cannot be renamed from outside
        return {
            key: Target(key, {**own, "instance": key.instance, "engine": key.engine})
            for key, own in labels.items()
        }

    def next_after(self, time: datetime) -> datetime | None:
        """The first scrape at or after ``time``; None after the last."""
        if self._times is None:
            files = [self._folder / p.file for p in self._manifest.parts if p.kind == "scrapes"]
            every = [pl.read_parquet(f, columns=["time"])["time"].unique() for f in files]
            self._times = pl.concat([empty_scrapes()["time"], *every]).unique().sort()
        first = self._times.filter(self._times >= time).min()
        return first.astimezone(UTC) if isinstance(first, datetime) else None

    def close(self) -> None:
        """Forget what was read."""
        self._read_manifest = self._times = None

    @property
    def _manifest(self) -> _Manifest:
        if self._read_manifest is None:
            self._read_manifest = _manifest(self._folder / MANIFEST)
        return self._read_manifest

    def _rows_of(self, part: Part, since: datetime, until: datetime) -> pl.DataFrame:
        schema, path = _SCHEMAS[part.kind], self._folder / part.file
        inside = pl.col("time").is_between(since, until, closed="left")
        try:
            rows = pl.scan_parquet(path).filter(inside).collect()
        except (OSError, pl.exceptions.PolarsError) as error:
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise RecordingError(f"{path}: not a part of a recording: {reason}") from error
        # a part of another driftwatch may lack columns, which are unknown, and have others
        return rows.select(
            (pl.col(name).cast(kind) if name in rows.columns else pl.lit(None, kind).alias(name))
            for name, kind in schema.items()
        )


def is_compact(path: Path) -> bool:
    """Whether that is a compact recording (it may be a broken one)."""
    return path.name == MANIFEST or (path / MANIFEST).is_file()


def _manifest(path: Path) -> _Manifest:
    """The manifest at a path, or a RecordingError."""
    try:
        if path.stat().st_size > _MAX_MANIFEST_BYTES:
            raise RecordingError(f"{path}: larger than {_MAX_MANIFEST_BYTES} bytes")
        return _Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}", help_text=_HELP) from error
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        wrong = ": ".join([".".join(map(str, first["loc"])), first["msg"]]).removeprefix(": ")
        if first["type"] == "string_pattern_mismatch":
            wrong = f"{wrong}: a part lies beside the manifest"
        raise RecordingError(f"{path}: {wrong}", help_text=_HELP) from error


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def write_part(
    folder: Path, stem: str, scrapes: pl.DataFrame, gpus: pl.DataFrame | None = None
) -> list[Part]:
    """Rows as one Parquet file of each kind that has any; returns their entries in the manifest.

    ``folder``: of the recording; it must exist; ``stem``: unique in it; the files are
    ``STEM.scrapes.parquet`` and ``STEM.gpus.parquet``.
    """
    parts = []
    for kind, rows in (("scrapes", scrapes), ("gpus", gpus)):
        if rows is None or rows.is_empty():
            continue
        if dict(rows.schema) != dict(_SCHEMAS[kind]):
            raise ValueError(f"{stem}: not a table of {kind}")
        file = f"{stem}.{kind}.parquet"
        rows = rows.sort("time", maintain_order=True)
        rows.write_parquet(
            folder / file, compression="zstd", compression_level=3, row_group_size=_ROW_GROUP
        )
        first, last = (at / 1e6 for at in rows["time"].dt.epoch("us").gather([0, -1]))
        fields = {"file": file, "kind": kind, "first": first, "last": last, "rows": len(rows)}
        parts.append(Part.model_validate(fields))
    return parts


def write_manifest(
    folder: Path,
    parts: Iterable[Part],
    targets: Mapping[TargetKey, Target],
    relabelled: Sequence[Relabelled] = (),
) -> None:
    """The manifest, last of all: a folder without one is no recording."""
    listed = (_Labelled(**key._asdict(), labels={**one.labels}) for key, one in targets.items())
    manifest = _Manifest(
        format="driftwatch-compact-recording",
        version=1,
        parts=tuple(parts),
        targets=tuple(listed),
        relabelled=tuple(relabelled),
    )
    beside = folder / f"{MANIFEST}.new"
    beside.write_bytes(orjson.dumps(manifest.model_dump(), option=orjson.OPT_INDENT_2) + b"\n")
    beside.replace(folder / MANIFEST)
