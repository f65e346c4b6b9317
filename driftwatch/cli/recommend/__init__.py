"""``driftwatch recommend``."""
