"""Any recording: text (``scrapes.jsonl.gz``) or compact (Parquet), by what lies at the path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from driftwatch.collect.recordings.compact import CompactRecordingSource, is_compact
from driftwatch.collect.recordings.text import HOW_TO_RECORD, Progress, RecordingSource
from driftwatch.collect.schema import Recording
from driftwatch.errors import RecordingError

_METRICS = re.compile(rb"# (HELP|TYPE|EOF)|[a-zA-Z_:][\w:]*(\{[\w]+=| -?[0-9])")
_HELP = (
    "samples with times are OpenMetrics, which a Prometheus reads:\n"
    "  promtool tsdb create-blocks-from openmetrics FILE DATA\n"
    "  prometheus --config.file /dev/null --storage.tsdb.path DATA\n"
    "then give it with --prometheus; to record pages instead:\n" + HOW_TO_RECORD
)


def open_recording(
    path: str | Path,
    instance: str = "host:8000",
    progress: Progress | None = None,
    labels: Mapping[str, str] | None = None,
) -> Recording:
    """The recording at a path; nothing is read yet.

    ``path``: ``scrapes.jsonl`` (or .gz), a folder that holds it, or a compact recording's folder;
    ``instance``: name of the server where a line of a text recording has none; ``progress``: called
    with (done, in all) as it is read; ``labels``: labels that its targets get besides.
    Raises RecordingError: it is OpenMetrics or a page.
    """
    if is_compact(Path(path)):
        return CompactRecordingSource(path, progress, labels)
    if _is_metrics_text(Path(path)):
        raise RecordingError(f"{path}: the text of metrics, no recording", help_text=_HELP)
    return RecordingSource(path, instance, progress, labels)


def _is_metrics_text(path: Path) -> bool:
    """Whether a file begins as OpenMetrics or a page of metrics does; no recording does."""
    try:
        with path.open("rb") as file:
            return _METRICS.match(file.read(256)) is not None
    except OSError:
        return False
