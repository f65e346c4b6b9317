"""``driftwatch plan``."""
