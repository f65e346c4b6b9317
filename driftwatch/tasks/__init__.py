"""Slow work behind one protocol: threads of this process, or workers on PostgreSQL."""
