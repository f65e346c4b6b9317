"""A Prometheus-compatible API as a source."""
