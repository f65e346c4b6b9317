"""``driftwatch simulate``."""
