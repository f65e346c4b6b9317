"""Where requests come from: logs and traces, production statistics, histograms."""
