"""From a Prometheus to a configuration: what `driftwatch init` writes."""
