"""Any recording: text (``scrapes.jsonl.gz``) or compact (Parquet), by what lies at the path."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Protocol, runtime_checkable

from driftwatch.collect.compact import CompactRecordingSource, is_compact
from driftwatch.collect.recording import Progress, RecordingSource
from driftwatch.collect.schema import Source


@runtime_checkable
class Recording(Source, Protocol):
    """A source that holds all it will ever say."""

    def span(self) -> tuple[datetime, datetime]:
        """First scrape and just after the last."""

    def next_after(self, time: datetime) -> datetime | None:
        """The first scrape at or after ``time``; None after the last."""


def open_recording(
    path: str | Path,
    instance: str = "host:8000",
    progress: Progress | None = None,
    labels: Mapping[str, str] | None = None,
) -> Recording:
    """The recording at a path; nothing is read yet.

    Args:
        path: ``scrapes.jsonl`` (or .gz), a folder that holds it, or a compact recording's folder.
        instance: name of the server where a line of a text recording has none.
        progress: called with (done, in all) as it is read.
        labels: labels that its targets get besides.
    """
    if is_compact(Path(path)):
        return CompactRecordingSource(path, progress, labels)
    return RecordingSource(path, instance, progress, labels)
