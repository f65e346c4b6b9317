"""Sources of requests: logs, traces and histograms."""
