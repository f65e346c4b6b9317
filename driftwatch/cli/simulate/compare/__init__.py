"""``driftwatch simulate compare``."""
