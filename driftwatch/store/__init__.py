"""State that outlives the process: SQLAlchemy Core tables in SQLite, the outbox, retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftwatch.store.store import Store, TickRecord

__all__ = ["Store", "TickRecord"]


def __getattr__(name: str) -> Any:
    """Import the whole store, with Polars, at its first use."""
    if name not in __all__:
        raise AttributeError(name)
    from driftwatch.store import store

    return getattr(store, name)
