"""The evidence rows behind a ``driftwatch replay`` that runs in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import polars as pl
import pytest

from driftwatch.collect.schema import KEY
from driftwatch.evidence import COLUMNS
from driftwatch.service import replay as module


def evidence_only(rows: pl.DataFrame) -> pl.DataFrame:
    """Key, pool, window, seconds of it that were observed, and the evidence columns."""
    window = ("start", "end", "duration_seconds")
    return rows.select([*KEY, "pool", *window, *(c.name for c in COLUMNS)])


class Rows:
    """What was kept, in order."""

    def __init__(self) -> None:
        self.parts: list[pl.DataFrame] = []

    @property
    def table(self) -> pl.DataFrame:
        return pl.concat(self.parts).sort("start", "instance", "engine")


@contextmanager
def replayed_rows() -> Iterator[Rows]:
    """Keep the rows of every replay inside the block."""
    rows, replay = Rows(), module.replay

    def kept(*arguments: Any, **options: Any) -> Iterator[module.Outcome]:
        for outcome in replay(*arguments, **options):
            if not outcome.rows.is_empty():
                rows.parts.append(evidence_only(outcome.rows))
            yield outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "replay", kept)
        yield rows
