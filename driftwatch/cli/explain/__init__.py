"""``driftwatch explain``."""
