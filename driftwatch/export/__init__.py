"""Rules as alerts of Prometheus over the target metrics. Pure."""
