"""The settings of receivers: one module a kind, as in ``driftwatch/receivers``."""
