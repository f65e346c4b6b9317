"""``driftwatch sweep``."""
