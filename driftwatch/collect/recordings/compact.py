"""The compact recording: scrapes of many servers over weeks, as Parquet.

A folder: ``recording.json`` (the manifest) and Parquet parts beside it. A part of scrapes holds
rows of :data:`~driftwatch.collect.schema.SCRAPE_SCHEMA`, a part of GPUs rows of
:data:`~driftwatch.collect.gpus.GPU_SCHEMA`; failed scrapes are rows with their reason. Text
of a server-day is some 150 MB of pages, the same rows as Parquet are about 1 MB.

Only the parts, and of them only the row groups, that reach into an asked interval are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from driftwatch.collect.gpus import GPU_SCHEMA, empty_gpus
from driftwatch.collect.recordings.text import Progress
from driftwatch.collect.schema import (
    SCRAPE_SCHEMA,
    Collected,
    Recording,
    SourceProblem,
    empty_scrapes,
    in_order,
)
from driftwatch.errors import RecordingError
from driftwatch.model import Target, TargetKey

MANIFEST = "recording.json"
FORMAT = "driftwatch-compact-recording"
VERSION = 1

_MAX_MANIFEST_BYTES = 64 * 2**20
_HELP = (
    "a compact recording is a folder with recording.json and its Parquet parts, as\n"
    "  driftwatch demo --scenario NAME --write DIR --format compact\nwrites it"
)


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet file of a compact recording."""

    file: str  # its name, in the folder of the manifest
    kind: str  # ``scrapes`` or ``gpus``
    first: float  # unix seconds of its first row
    last: float  # unix seconds of its last row
    rows: int  # how many it has


@dataclass(frozen=True, slots=True)
class Relabelled:
    """Labels of one target from a moment on, as after a rollout of another image."""

    key: TargetKey  # the target
    since: float  # unix seconds
    labels: Mapping[str, str]  # those that are new or have another value; the others stay


@dataclass(frozen=True, slots=True)
class Manifest:
    """What ``recording.json`` says."""

    parts: tuple[Part, ...]  # the Parquet files
    targets: Mapping[TargetKey, Target]  # the servers' engines with their labels
    # what could not be read when it was made
    problems: tuple[SourceProblem, ...] = field(default=())
    # whose labels changed later, in order of time
    relabelled: tuple[Relabelled, ...] = field(default=())

    def targets_until(self, until: datetime) -> Mapping[TargetKey, Target]:
        """Targets with the labels that they had just before a moment."""
        found = dict(self.targets)
        for one in self.relabelled:
            if one.since < until.timestamp() and one.key in found:
                target = found[one.key]
                found[one.key] = replace(target, labels={**target.labels, **one.labels})
        return found if self.relabelled else self.targets

    def to_json(self) -> bytes:
        """The file's bytes; the same manifest gives the same bytes."""
        found = {
            "format": FORMAT,
            "version": VERSION,
            "parts": [
                {
                    "file": p.file,
                    "kind": p.kind,
                    "first": p.first,
                    "last": p.last,
                    "rows": p.rows,
                }
                for p in self.parts
            ],
            "targets": [
                {"instance": key.instance, "engine": key.engine, "labels": dict(target.labels)}
                for key, target in self.targets.items()
            ],
            "problems": [
                {
                    "where": p.where,
                    "reason": p.reason,
                    "time": None if p.time is None else p.time.timestamp(),
                }
                for p in self.problems
            ],
        }
        if self.relabelled:
            found["relabelled"] = [
                {
                    "instance": one.key.instance,
                    "engine": one.key.engine,
                    "since": one.since,
                    "labels": dict(one.labels),
                }
                for one in self.relabelled
            ]
        return orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n"


class CompactRecordingSource:
    """A compact recording as a source.

    Args:
        path: its folder, or the manifest in it.
        progress: called with (parts read, parts in all) as an interval is collected.
        labels: labels that its targets get besides.
    """

    def __init__(
        self,
        path: str | Path,
        progress: Progress | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._given = Path(path)
        self._folder = self._given if self._given.is_dir() else self._given.parent
        self._progress = progress
        self._labels = dict(labels or {})
        self._manifest: Manifest | None = None
        self._times: pl.Series | None = None
        self.name = f"recording {self._given}"
        self.settle_seconds = 0.0

    def span(self) -> tuple[datetime, datetime]:
        """First scrape and just after the last: ``collect(*span())`` is all of it.

        Raises:
            RecordingError: as :meth:`collect`.
        """
        parts = self._said().parts
        return (
            datetime.fromtimestamp(min(p.first for p in parts), UTC),
            datetime.fromtimestamp(max(p.last for p in parts), UTC) + timedelta(microseconds=1),
        )

    def relabelled_at(self) -> tuple[datetime, ...]:
        """When labels of a target changed, in order.

        Raises:
            RecordingError: as :meth:`collect`.
        """
        found = sorted({one.since for one in self._said().relabelled})
        return tuple(datetime.fromtimestamp(since, UTC) for since in found)

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Scrapes and problems with since <= time < until.

        Raises:
            RecordingError: the manifest or a part is not there, broken, or of a later version.
        """
        said = self._said()
        inside = [
            p for p in said.parts if p.last >= since.timestamp() and p.first < until.timestamp()
        ]
        rows: dict[str, list[pl.DataFrame]] = {"scrapes": [], "gpus": []}
        for done, part in enumerate(inside):
            rows[part.kind].append(self._read(part, since, until))
            if self._progress is not None:
                self._progress(done + 1, len(inside))
        scrapes = in_order(pl.concat([empty_scrapes(), *rows["scrapes"]]))
        # in one piece: polars panics where a text is put together from columns in unlike pieces
        gpus = pl.concat([empty_gpus(), *rows["gpus"]]).rechunk()
        problems = tuple(p for p in said.problems if p.time is None or since <= p.time < until)
        return Collected(scrapes, said.targets_until(until), problems, gpus=gpus)

    def targets_until(self, until: datetime) -> Mapping[TargetKey, Target]:
        """Targets with the labels that they had just before a moment.

        Raises:
            RecordingError: the manifest is not there, broken, or of a later version.
        """
        return self._said().targets_until(until)

    def next_after(self, time: datetime) -> datetime | None:
        """The first scrape at or after ``time``; None after the last."""
        if self._times is None:
            files = [self._folder / p.file for p in self._said().parts if p.kind == "scrapes"]
            every = [pl.read_parquet(f, columns=["time"])["time"].unique() for f in files]
            self._times = pl.concat([empty_scrapes()["time"], *every]).unique().sort()
        later = self._times.filter(self._times >= time)
        found = later.min() if len(later) else None
        return found.astimezone(UTC) if isinstance(found, datetime) else None

    def close(self) -> None:
        """Forget what was read."""
        self._manifest = self._times = None

    def _said(self) -> Manifest:
        if self._manifest is None:
            self._manifest = read_manifest(self._folder / MANIFEST, self._labels)
        return self._manifest

    def _read(self, part: Part, since: datetime, until: datetime) -> pl.DataFrame:
        schema = SCRAPE_SCHEMA if part.kind == "scrapes" else GPU_SCHEMA
        path = self._folder / part.file
        try:
            found = (
                pl.scan_parquet(path)
                .filter(pl.col("time").is_between(since, until, closed="left"))
                .collect()
            )
        except (OSError, pl.exceptions.PolarsError) as error:
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise RecordingError(f"{path}: not a part of a recording: {reason}") from error
        if unknown := sorted(set(found.columns) - set(schema)):
            raise RecordingError(
                f"{path}: columns of another version of driftwatch: {', '.join(unknown[:5])}"
            )
        # a part of an older driftwatch lacks the columns that came since: they are unknown
        return found.select(
            (pl.col(name).cast(kind) if name in found.columns else pl.lit(None, kind).alias(name))
            for name, kind in schema.items()
        )


def is_compact(path: Path) -> bool:
    """Whether that is a compact recording (it may be a broken one)."""
    return path.name == MANIFEST or (path / MANIFEST).is_file()


def read_manifest(path: Path, labels: Mapping[str, str] | None = None) -> Manifest:
    """The manifest; every target gets these labels besides.

    Raises:
        RecordingError: it is not there, none, of a later version, or names no part.
    """
    try:
        if path.stat().st_size > _MAX_MANIFEST_BYTES:
            raise RecordingError(f"{path}: larger than {_MAX_MANIFEST_BYTES} bytes")
        said: Any = orjson.loads(path.read_bytes())
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}", help_text=_HELP) from error
    except orjson.JSONDecodeError as error:
        raise RecordingError(f"{path}: not JSON: {error}", help_text=_HELP) from error
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        raise RecordingError(f"{path}: not the manifest of a recording", help_text=_HELP)
    version = said.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= VERSION:
        raise RecordingError(
            f"{path}: version {version!r:.20}; this driftwatch reads up to {VERSION}"
        )
    try:
        parts = tuple(_part(one) for one in said["parts"])
        targets = _targets(said["targets"], labels or {})
        problems = tuple(_problem(one) for one in said.get("problems", ()))
        later = sorted(map(_relabelled, said.get("relabelled", ())), key=lambda one: one.since)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        raise RecordingError(f"{path}: not a manifest: {error!r:.200}", help_text=_HELP) from error
    if not parts:
        raise RecordingError(f"{path}: names no part", help_text=_HELP)
    return Manifest(parts, targets, problems, tuple(later))


def _part(said: Mapping[str, Any]) -> Part:
    part = Part(
        str(said["file"]),
        str(said["kind"]),
        float(said["first"]),
        float(said["last"]),
        int(said["rows"]),
    )
    if Path(part.file).name != part.file:
        raise ValueError(f"a part lies beside the manifest, not at {part.file!r:.80}")
    if part.kind not in ("scrapes", "gpus"):
        raise ValueError(f"kind {part.kind!r:.80}")
    if not (math.isfinite(part.first) and part.first <= part.last < math.inf):
        raise ValueError(f"{part.file}: its times are in no order")
    return part


def _targets(said: Sequence[Mapping[str, Any]], more: Mapping[str, str]) -> dict[TargetKey, Target]:
    found = {}
    for one in said:
        key = TargetKey(str(one["instance"]), str(one["engine"]))
        own = {str(name): str(value) for name, value in one["labels"].items()}
        # what a target is known by cannot be renamed from outside
        fixed = {"instance": key.instance, "engine": key.engine}
        found[key] = Target(key, {**more, **own, **fixed})
    return found


def _relabelled(said: Mapping[str, Any]) -> Relabelled:
    key = TargetKey(str(said["instance"]), str(said["engine"]))
    labels = {str(name): str(value) for name, value in said["labels"].items()}
    since = float(said["since"])
    if not math.isfinite(since) or {"instance", "engine"} & labels.keys():
        raise ValueError(f"labels of {key.text} since {since!r:.40}")
    return Relabelled(key, since, labels)


def _problem(said: Mapping[str, Any]) -> SourceProblem:
    time = said["time"]
    at = None if time is None else datetime.fromtimestamp(float(time), UTC)
    return SourceProblem(str(said["where"]), str(said["reason"]), at)


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
