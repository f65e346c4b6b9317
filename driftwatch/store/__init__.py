"""State that outlives the process: SQLAlchemy Core tables in SQLite, the outbox, retention."""

from driftwatch.store.store import Store, TickRecord

__all__ = ["Store", "TickRecord"]
