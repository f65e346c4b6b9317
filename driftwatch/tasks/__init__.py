"""Jobs on PostgreSQL, done by any number of processes with procrastinate."""
