"""Any recording: text (``scrapes.jsonl.gz``) or compact (Parquet), by what lies at the path."""

from __future__ import annotations

from pathlib import Path

from driftwatch.collect.recordings.compact import CompactRecordingSource, is_compact
from driftwatch.collect.recordings.text import Progress, RecordingSource
from driftwatch.collect.schema import Recording


def open_recording(
    path: str | Path,
    instance: str = "host:8000",
    progress: Progress | None = None,
) -> Recording:
    """The recording at a path; nothing is read yet.

    ``path``: ``scrapes.jsonl`` (or .gz), a folder that holds it, or a compact recording's folder;
    ``instance``: name of the server where a line of a text recording has none; ``progress``: called
    with (done, in all) as it is read.
    """
    if is_compact(Path(path)):
        return CompactRecordingSource(path, progress)
    return RecordingSource(path, instance, progress)
