"""``driftwatch demo``."""
