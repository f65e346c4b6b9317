"""``driftwatch baseline``."""
