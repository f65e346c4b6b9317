"""Slow drift over days, and what the change of throughput is made of."""
