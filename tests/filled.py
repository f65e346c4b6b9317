"""Stores that recordings were replayed into."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from driftwatch.collect.recordings import open_recording
from driftwatch.collect.schema import Source
from driftwatch.pipeline.plan import Plan
from driftwatch.service.replay import replay
from driftwatch.store.store import Store


def fill(
    store: Store,
    sources: Sequence[Source],
    span: tuple[datetime, datetime],
    plan: Plan,
    **options: Any,
) -> None:
    """Replay into an empty store."""
    for _ in replay(sources, span, plan, store=store, **options):
        pass


def filled(recording: Path, plan: Plan, **options: Any) -> Store:
    """A store in memory with all of a recording."""
    store, source = Store.in_memory(), open_recording(recording)
    fill(store, [source], source.span(), plan, **options)
    return store
