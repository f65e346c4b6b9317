"""``driftwatch verify``."""
