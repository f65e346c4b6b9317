"""Pages of Prometheus text, scraped directly."""
