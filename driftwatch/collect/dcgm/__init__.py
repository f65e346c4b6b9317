"""dcgm-exporter, scraped directly or through a Prometheus-compatible API."""
