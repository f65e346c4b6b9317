"""Reset-safe counters, histogram windows and the evidence table. Pure."""
