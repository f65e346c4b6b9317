"""State that outlives the process: SQLAlchemy Core tables in SQLite, the outbox, retention."""
