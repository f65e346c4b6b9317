"""Evidence of a history, computed once and kept in a folder: a file per UTC day."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from driftwatch.backtest.archive_roster import stretches_of
from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.schema import KEY, TIME, SourceProblem
from driftwatch.database_place import Place, SqliteFile
from driftwatch.errors import DocumentError
from driftwatch.model import TargetKey
from driftwatch.pipeline.state import Stretch

MANIFEST = "manifest.json"
SCHEMA_VERSION = 1
# Columns that are there whatever is asked for.
ROW_KEY = ("instance", "engine", "pool", "start", "end")


@dataclass(frozen=True, slots=True)
class Day:
    """Archive minutes of one UTC day."""

    date: date
    start: datetime  # of the first minute, within the span
    end: datetime  # of the last one


@dataclass(frozen=True, slots=True)
class ArchivedDay:
    """What the manifest says of a day."""

    date: date
    end: datetime  # up to where it was computed: midnight, or where the history ended
    rows: int  # targets times minutes
    scrapes: int  # that the sources brought
    usable: int  # of these with values
    reason: str | None  # why the first one without values has none
    problems: tuple[SourceProblem, ...]  # what could not be read, the first of each kind


@dataclass(frozen=True)
class Archive:
    """An opened folder of kept evidence."""

    folder: Path
    span: tuple[datetime, datetime]  # as asked for, in whole minutes
    every: Sequence[ArchivedDay]  # those in the span
    notes: tuple[str, ...] = field(default=())  # why something was computed again

    @property
    def days(self) -> Sequence[Day]:
        """The days with a minute in the span, in order."""
        starts = [day_start(one.date) for one in self.every]
        return [
            Day(one.date, max(start, self.span[0]), min(one.end, self.span[1]))
            for one, start in zip(self.every, starts, strict=True)
            if one.rows
        ]

    @property
    def whole_days(self) -> Sequence[Day]:
        """The same with the minutes before the span that are kept: what was before a page."""
        return [replace(day, start=day_start(day.date)) for day in self.days]

    @property
    def problems(self) -> tuple[SourceProblem, ...]:
        """What the sources could not read."""
        return tuple(problem for one in self.every for problem in one.problems)

    @property
    def has_data(self) -> bool:
        """A scrape of the span itself brought values: what else a day holds does not count."""
        return any(self._has_data(day) for day in self.days)

    def _has_data(self, day: Day) -> bool:
        end = pl.col("end")
        inside = (end > pl.lit(day.start, TIME)) & (end <= pl.lit(day.end, TIME))
        rows = pl.scan_parquet(self._path(day.date, "rows"))
        with_data = rows.filter(inside, pl.col("scrapes") > 0).select("end").head(1)
        return with_data.collect().height > 0

    def rows(
        self, day: Day, columns: Iterable[str], keys: Collection[TargetKey] | None = None
    ) -> pl.DataFrame:
        """Rows of a day by instance, engine and end: :data:`ROW_KEY` and these columns of them.

        ``columns``: of a tick's outcome (:class:`driftwatch.pipeline.state.Outcome`), of
        :data:`driftwatch.pipeline.state.JUDGED_SCHEMA`, but for what a simulation says of the
        capacity; only these are read; ``keys``: only these targets; None = all.
        """
        wanted = list(dict.fromkeys([*ROW_KEY, *columns]))
        end = pl.col("end")
        rows = (
            pl.scan_parquet(self._path(day.date, "rows"))
            .filter(end > pl.lit(day.start, TIME), end <= pl.lit(day.end, TIME))
            .select(wanted)
        )
        if keys is not None:
            names = sorted({key.instance for key in keys})
            rows = rows.filter(pl.col("instance").is_in(names))
        frame = rows.collect()
        if keys is not None:
            theirs = pl.DataFrame(sorted(keys), dict.fromkeys(KEY, pl.String), orient="row")
            frame = frame.join(theirs, on=KEY, how="semi")
        return frame.sort([*KEY, "end"])

    def columns(self, day: Day) -> list[str]:
        """Every column that the rows of a day have."""
        return pl.scan_parquet(self._path(day.date, "rows")).collect_schema().names()

    def roster(self, day: Day) -> list[Stretch]:
        """Who was there: stretches of the same targets, with those who went before and after.

        What ``incidents.closed_for`` closes: ``departed`` before a stretch, ``retired`` after it.
        """
        document = _document(self._path(day.date, "roster"))
        return [
            stretch
            for stretch in stretches_of(document["stretches"])
            if stretch.last > day.start and stretch.first < day.end
        ]

    def gpus(self, day: Day) -> pl.DataFrame:
        """GPU readings of a day: :data:`driftwatch.collect.gpus.GPU_SCHEMA`."""
        path = self._path(day.date, "gpus")
        return pl.read_parquet(path) if path.exists() else empty_gpus()

    def _path(self, of: date, kind: str) -> Path:
        return file_of(self.folder, of, kind)


_SUFFIX = {"rows": "parquet", "gpus": "gpus.parquet", "state": "state.parquet", "roster": "json"}


def file_of(folder: Path, of: date, kind: str) -> Path:
    """A day's file: ``rows``, ``gpus``, ``roster``, or the ``state`` at its end."""
    return folder / f"{of.isoformat()}.{_SUFFIX[kind]}"


def day_start(of: date) -> datetime:
    """Its midnight, UTC."""
    return datetime.fromisoformat(f"{of.isoformat()}T00:00:00+00:00")


def default_folder(database: Place | None) -> Path:
    """Where evidence is kept: beside a SQLite file, else in the user's cache."""
    if isinstance(database, SqliteFile):
        return database.path.parent / "driftwatch-evidence"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "driftwatch"


def read_manifest(folder: Path) -> tuple[dict[str, Any], list[ArchivedDay]] | None:
    """The identity of a folder's evidence and its days; None where there is no manifest.

    Raises DocumentError: it is not of the form that this version reads.
    """
    if not (folder / MANIFEST).is_file():
        return None
    document = _document(folder / MANIFEST)
    if document.get("schema_version") != SCHEMA_VERSION:
        raise DocumentError(f"{folder / MANIFEST}: not of this version")
    try:
        return document["identity"], [_day(row) for row in document["days"]]
    except (KeyError, TypeError, ValueError) as error:
        raise DocumentError(f"{folder / MANIFEST}: not a document of kept evidence") from error


def days_of(start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Midnight and end of each day of a span."""
    while start < end:
        yield start, min(start + timedelta(days=1), end)
        start += timedelta(days=1)


def archived_days(folder: Path) -> dict[date, ArchivedDay]:
    """Date → day, of those whose files are there and whole; without a readable manifest none."""
    try:
        manifest = read_manifest(folder)
    except DocumentError:
        return {}
    return {day.date: day for day in (manifest[1] if manifest else ()) if _is_whole(folder, day)}


def _is_whole(folder: Path, day: ArchivedDay) -> bool:
    """Its files can be read, and hold as many rows as the manifest says."""
    gpus = file_of(folder, day.date, "gpus")
    try:
        _document(file_of(folder, day.date, "roster"))
        if gpus.exists():
            pl.read_parquet_schema(gpus)
        rows = pl.scan_parquet(file_of(folder, day.date, "rows"))
        return not day.rows or rows.select(pl.len()).collect().item() == day.rows
    except (DocumentError, pl.exceptions.PolarsError, OSError):
        return False


def put_down(folder: Path, identity: Mapping[str, Any], days: Mapping[date, ArchivedDay]) -> None:
    """What there is now, in the manifest."""
    write_manifest(folder, identity, [days[one] for one in sorted(days)])


def write_manifest(folder: Path, identity: Mapping[str, Any], days: Sequence[ArchivedDay]) -> None:
    """Put it in the place of the one before."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "identity": identity,
        "days": [_row(day) for day in days],
    }
    write_json(folder / MANIFEST, document)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write what becomes the file, whole or not at all.

    Raises OSError: it cannot be written, which polars does not always say as one.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        yield beside
        beside.replace(path)
    except pl.exceptions.PolarsError as error:
        why = f"cannot be written, is the disk full? {str(error).splitlines()[0]}"
        raise OSError(errno.EIO, why, str(path)) from error
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """A file whole or not at all."""
    with whole(path) as beside:
        beside.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")


def write_frame(path: Path, frame: pl.DataFrame) -> None:
    """A file whole or not at all."""
    with whole(path) as beside:
        frame.write_parquet(beside, compression="zstd", compression_level=3)


def _document(path: Path) -> dict[str, Any]:
    try:
        document = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise DocumentError(f"{path}: not a document of kept evidence: {error}") from error
    if not isinstance(document, dict):
        raise DocumentError(f"{path}: not a document of kept evidence")
    return document


def _row(day: ArchivedDay) -> dict[str, Any]:
    return {
        "date": day.date.isoformat(),
        "end": day.end.isoformat(),
        "rows": day.rows,
        "scrapes": day.scrapes,
        "usable": day.usable,
        "reason": day.reason,
        "problems": [
            [p.where, p.reason, None if p.time is None else p.time.isoformat()]
            for p in day.problems
        ],
    }


def _day(row: Mapping[str, Any]) -> ArchivedDay:
    return ArchivedDay(
        date=date.fromisoformat(row["date"]),
        end=datetime.fromisoformat(row["end"]),
        rows=row["rows"],
        scrapes=row["scrapes"],
        usable=row["usable"],
        reason=row["reason"],
        problems=tuple(
            SourceProblem(where, why, None if at is None else datetime.fromisoformat(at))
            for where, why, at in row["problems"]
        ),
    )
