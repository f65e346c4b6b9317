"""Writes the text recording that :mod:`driftwatch.collect.recordings.text` reads."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

import orjson

from driftwatch.fleet.metric_history import Answer
from driftwatch.fleet.naming import exporter_of, instance_of
from driftwatch.fleet.scenario import Scenario
from driftwatch.fleet.server_run import Chunk

FILE = "scrapes.jsonl.gz"


def write_recording(scenario: Scenario, chunks: Iterable[Chunk], folder: Path) -> Path:
    """``scrapes.jsonl.gz``: server by server, each server's pages and its exporter's by time.

    Args:
        chunks: with the texts of the pages.

    Returns:
        the file; the same chunks give the same bytes.
    """
    path = folder / FILE
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        for chunk in chunks:
            lines = [(a, instance_of(scenario, chunk.number)) for a in chunk.answers]
            lines += [(a, exporter_of(scenario, chunk.number)) for a in chunk.gpu_answers]
            for answer, instance in sorted(lines, key=lambda line: (line[0].time, line[1])):
                file.write(_line(answer, instance))
    return path


def _line(answer: Answer, instance: str) -> bytes:
    found = {
        "t": answer.time.timestamp(),
        "instance": instance,
        "status": answer.status,
        "body": answer.body,
    }
    return orjson.dumps(found) + b"\n"
