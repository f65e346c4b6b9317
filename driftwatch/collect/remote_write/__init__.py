"""What a Prometheus, vmagent or Alloy writes to driftwatch, as a source."""
