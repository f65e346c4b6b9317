"""State that outlives the process: SQLAlchemy Core tables in SQLite, the outbox, retention."""

from driftwatch.store.store import Store

__all__ = ["Store"]
