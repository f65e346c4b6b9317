"""``driftwatch rules``."""
